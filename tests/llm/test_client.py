"""The client against a real server on a local port: what it sends, what it forgives, what it counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cockpithat.llm import ChatClient, Completion, Ledger, LlmError, LlmSettings, Role, RoleSettings, Schema
from cockpithat.llm.errors import (
    BudgetExhaustedError,
    CircuitOpenError,
    ConnectionFailedError,
    DeadlineExceededError,
    KeyMissingError,
    RateLimitedError,
    RejectedError,
    ServerFailedError,
)
from cockpithat.llm.settings import BreakerSettings, CacheSettings, OutputMode, RetrySettings
from tests.support.chat_server import ChatServer, Reply, Request, json_reply, serve

KEY = "sk-very-secret-0123456789"
SCHEMA = Schema(
    "verdict", {"type": "object", "properties": {"step": {"type": "integer"}}, "required": ["step"]}
)
GOOD = json_reply({"step": 3})


class Harness:
    """A client with time that does not pass while it waits: waits are noted instead."""

    def __init__(self, client: ChatClient, ledger: Ledger, waits: list[float]) -> None:
        self.client, self.ledger, self.waits = client, ledger, waits

    async def ask(self, text: str = "which step?", deadline: float | None = None) -> Completion:
        return await self.client.complete(
            Role.ANALYST,
            [{"role": "user", "content": text}],
            SCHEMA,
            ledger=self.ledger,
            purpose="test",
            deadline=deadline,
        )


@asynccontextmanager
async def client_for(
    server: ChatServer, role: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Harness]:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    settings = LlmSettings(
        analyst=RoleSettings(
            base_url=server.url,
            model="m",
            api_key_env="TEST_KEY",
            input_price=1.0,
            output_price=10.0,
            **(role or {}),
        ),
        trust_environment=False,
        **{"cache": CacheSettings(enabled=False), **more},
    )
    async with ChatClient(settings, sleep=note, environ={"TEST_KEY": KEY}) as client:
        yield Harness(client, Ledger(), waits)


def sequence(*replies: Reply) -> Callable[[Request], Reply]:
    """Answers in turn; the last one from then on."""
    left = list(replies)
    return lambda _request: left.pop(0) if len(left) > 1 else left[0]


async def test_decoding_is_deterministic_as_in_section_4_1() -> None:
    with serve(lambda _: GOOD) as server:
        async with client_for(server) as harness:
            completion = await harness.ask()
    body = server.requests[0].body
    assert completion.data == {"step": 3}
    assert (body["temperature"], body["top_p"]) == (0.0, 1.0)
    assert body["response_format"]["json_schema"]["schema"] == SCHEMA.body
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [400, 422, 500])  # llama.cpp's Python server answers 500
async def test_an_endpoint_without_schemas_is_found_out_once(status: int) -> None:
    def picky(request: Request) -> Reply:
        if request.body.get("response_format", {}).get("type") == "json_schema":
            return Reply(status=status, raw=b'{"error": "response_format json_schema is not supported"}')
        return Reply(content='Sure! ```json\n{"step": 3,}\n``` Hope this helps.')

    with serve(picky) as server:
        async with client_for(server) as harness:
            assert (await harness.ask("a")).data == {"step": 3}
            assert (await harness.ask("b")).data == {"step": 3}
    formats = [request.body.get("response_format", {}).get("type") for request in server.requests]
    assert formats == ["json_schema", "json_object", "json_object"]
    assert harness.ledger.outcomes() == {"rejected": 1, "ok": 2}


async def test_a_request_refused_for_another_reason_teaches_nothing() -> None:
    """A context that is too long is refused in every form; the next, shorter one gets its schema again."""
    with serve(lambda r: Reply(status=400, raw=b"too long") if "long" in r.prompt else GOOD) as server:
        async with client_for(server) as harness:
            with pytest.raises(RejectedError):
                await harness.ask("a long question")
            await harness.ask("a question")
    assert server.requests[-1].body["response_format"]["type"] == "json_schema"


async def test_a_fixed_output_mode_is_not_given_up() -> None:
    with serve(lambda _: Reply(status=400, raw=b"no schemas here")) as server:
        async with client_for(server, {"output": OutputMode.JSON_SCHEMA}) as harness:
            with pytest.raises(RejectedError, match="HTTP 400"):
                await harness.ask()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("bad", "outcome"),
    [
        (Reply(status=500, raw=b"oops"), "server"),
        (Reply(status=503, raw=b""), "server"),
        (Reply(status=429, raw=b"slow down"), "rate_limited"),
        (Reply(close=True), "connection"),
        (Reply(content="{", cut=True), "connection"),
        (Reply(raw=b"<html>gateway</html>"), "protocol"),
        (Reply(raw=b'{"choices": []}'), "protocol"),
    ],
)
async def test_what_may_pass_is_tried_again(bad: Reply, outcome: str) -> None:
    with serve(sequence(bad, GOOD)) as server:
        async with client_for(server) as harness:
            assert (await harness.ask()).data == {"step": 3}
    assert harness.ledger.outcomes() == {outcome: 1, "ok": 1}
    assert len(harness.waits) == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_what_cannot_pass_is_not_tried_again(status: int) -> None:
    with serve(lambda _: Reply(status=status, raw=b"no")) as server:
        async with client_for(server, {"output": OutputMode.TEXT}) as harness:
            with pytest.raises(RejectedError):
                await harness.ask()
    assert len(server.requests) == 1
    assert harness.waits == []


async def test_retry_after_in_seconds_is_waited_out() -> None:
    with serve(sequence(Reply(status=429, headers={"retry-after": "7"}, raw=b""), GOOD)) as server:
        async with client_for(server) as harness:
            await harness.ask()
    assert 7.0 <= harness.waits[0] <= 7.5


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    with serve(lambda _: Reply(status=429, headers={"retry-after": "3600"}, raw=b"")) as server:
        async with client_for(server) as harness:
            with pytest.raises(RateLimitedError):
                await harness.ask()
    assert harness.waits == []


async def test_tries_are_bounded_and_each_is_booked() -> None:
    with serve(lambda _: Reply(status=500, raw=b"")) as server:
        async with client_for(server, retry=RetrySettings(attempts=3)) as harness:
            with pytest.raises(ServerFailedError):
                await harness.ask()
    assert [record.attempt for record in harness.ledger.records] == [0, 1, 2]
    assert len(server.requests) == 3


async def test_a_slow_endpoint_meets_the_call_deadline() -> None:
    with serve(lambda _: Reply(content="{}", delay=1.0)) as server:
        async with client_for(server, call_seconds=0.15) as harness:
            with pytest.raises(LlmError) as caught:
                await harness.ask()
    assert caught.value.kind in {"deadline", "timeout"}
    record = harness.ledger.records[0]
    assert record.input_tokens > 0 and record.estimated, "the endpoint may bill what it was sent"


async def test_the_panel_deadline_cuts_a_call_short() -> None:
    with serve(lambda _: GOOD) as server:
        async with client_for(server) as harness:
            with pytest.raises(DeadlineExceededError):
                await harness.ask(deadline=harness.client._monotonic() - 1)
    assert server.requests == []


async def test_cancelling_stops_the_call_and_books_it() -> None:
    with serve(lambda _: Reply(content="{}", delay=1.0)) as server:
        async with client_for(server) as harness:
            task = asyncio.create_task(harness.ask())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert harness.ledger.outcomes() == {"cancelled": 1}


async def test_the_breaker_leaves_a_broken_endpoint_alone_and_tries_once_later() -> None:
    replies = [Reply(status=500, raw=b"")] * 3
    with serve(lambda _: replies.pop() if replies else GOOD) as server:
        breaker = BreakerSettings(failures=3, reset_seconds=30)
        async with client_for(server, breaker=breaker, retry=RetrySettings(attempts=1)) as harness:
            now = 1_000.0
            harness.client._monotonic = lambda: now
            for _ in range(3):
                with pytest.raises(ServerFailedError):
                    await harness.ask()
            with pytest.raises(CircuitOpenError, match="next try in 30 s"):
                await harness.ask()
            assert len(server.requests) == 3, "an open circuit sends nothing"
            now += 31
            assert (await harness.ask()).data == {"step": 3}
            assert (await harness.ask()).data == {"step": 3}
    assert harness.ledger.outcomes() == {"server": 3, "circuit_open": 1, "ok": 2}


async def test_a_refusing_or_busy_endpoint_does_not_open_the_breaker() -> None:
    with serve(lambda _: Reply(status=404, raw=b"no such model")) as server:
        async with client_for(server, breaker=BreakerSettings(failures=1)) as harness:
            for _ in range(3):
                with pytest.raises(RejectedError):
                    await harness.ask()


async def test_the_hourly_budget_turns_calls_away_until_the_hour_has_passed() -> None:
    with serve(lambda _: GOOD) as server:
        async with client_for(server, {"hourly_tokens": 1_050, "max_output_tokens": 1_000}) as harness:
            now = 0.0
            harness.client._monotonic = lambda: now
            await harness.ask("word " * 30)
            with pytest.raises(BudgetExhaustedError, match="hourly budget of 1050 tokens"):
                await harness.ask("word " * 30)
            now = 3_601.0
            await harness.ask("word " * 30)
    assert len(server.requests) == 2


async def test_concurrency_is_bounded() -> None:
    running, most = 0, 0

    def slow(_: Request) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        import time

        time.sleep(0.05)
        running -= 1
        return GOOD

    with serve(slow) as server:
        async with client_for(server, concurrency=2) as harness:
            await asyncio.gather(*(harness.ask(str(i)) for i in range(6)))
    assert most == 2


async def test_tokens_and_cost_come_from_the_endpoint() -> None:
    with serve(lambda _: GOOD) as server:
        async with client_for(server) as harness:
            await harness.ask("x" * 400)
    record = harness.ledger.records[0]
    assert (record.input_tokens, record.output_tokens, record.estimated) == (100, 2, False)
    assert record.cost == pytest.approx((100 * 1.0 + 2 * 10.0) / 1e6)
    assert harness.ledger.tokens.input == 100


async def test_without_usage_the_tokens_are_estimated_and_say_so() -> None:
    with serve(lambda _: json_reply({"step": 3}, usage=False)) as server:
        async with client_for(server) as harness:
            await harness.ask("one two three")
    record = harness.ledger.records[0]
    assert record.estimated and record.input_tokens > 0 and record.output_tokens > 0


async def test_the_same_request_is_paid_for_once() -> None:
    with serve(lambda _: GOOD) as server:
        async with client_for(server, cache=CacheSettings()) as harness:
            first, second = await harness.ask(), await harness.ask()
            await harness.ask("another question")
    assert (first.cached, second.cached, second.data) == (False, True, {"step": 3})
    assert len(server.requests) == 2
    assert harness.ledger.outcomes() == {"ok": 2, "cached": 1}


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply(content=None, refusal="I cannot help with that"), "refused"),
        (Reply(content="", finish="content_filter"), "refused"),
        (Reply(content='{"step": 3', finish="length"), "cut off"),
        (Reply(content="I think it was step three."), "no complete JSON object"),
        (Reply(content='{"step": 3'), "no complete JSON object"),
    ],
)
async def test_an_answer_without_json_says_why_and_is_not_cached(reply: Reply, problem: str) -> None:
    with serve(lambda _: reply) as server:
        async with client_for(server, cache=CacheSettings()) as harness:
            completion = await harness.ask()
            await harness.ask()
    assert completion.data is None and problem in (completion.problem or "")
    assert len(server.requests) == 2


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    with serve(lambda _: Reply(raw=b"x" * 5_000)) as server:
        async with client_for(server, max_response_bytes=2_000, retry=RetrySettings(attempts=1)) as harness:
            with pytest.raises(LlmError, match="too long"):
                await harness.ask()


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    with serve(lambda _: GOOD) as elsewhere:
        moved = Reply(status=307, headers={"location": elsewhere.url}, raw=b"")
        with serve(lambda _: moved) as server:
            async with client_for(server) as harness:
                with pytest.raises(RejectedError):
                    await harness.ask()
    assert elsewhere.requests == []


async def test_an_endpoint_that_is_not_there_is_a_connection_error() -> None:
    with serve(lambda _: GOOD) as server:
        url = server.url
    settings = LlmSettings(
        analyst=RoleSettings(base_url=url, model="m"),
        trust_environment=False,
        retry=RetrySettings(attempts=1),
    )
    ledger = Ledger()
    async with ChatClient(settings) as client:
        with pytest.raises(ConnectionFailedError):
            await client.complete(
                Role.ANALYST, [{"role": "user", "content": "?"}], SCHEMA, ledger=ledger, purpose="test"
            )
    assert ledger.records[0].input_tokens == 0, "nothing was sent"


async def test_a_missing_key_names_its_variable() -> None:
    settings = LlmSettings(
        analyst=RoleSettings(base_url="http://localhost/v1", model="m", api_key_env="NO_KEY")
    )
    async with ChatClient(settings, environ={}) as client:
        with pytest.raises(KeyMissingError, match="set the environment variable NO_KEY"):
            await client.complete(
                Role.ANALYST, [{"role": "user", "content": "?"}], SCHEMA, ledger=Ledger(), purpose="test"
            )


async def test_a_role_without_an_endpoint_says_so() -> None:
    settings = LlmSettings(analyst=RoleSettings(base_url="http://localhost/v1", model="m"))
    async with ChatClient(settings) as client:
        with pytest.raises(LlmError, match="no endpoint is configured for the scanner"):
            await client.complete(Role.SCANNER, [], SCHEMA, ledger=Ledger(), purpose="test")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=401, raw=f"Incorrect API key provided: {KEY}".encode()),
        Reply(status=404, raw=f"no model for {KEY}".encode()),
        Reply(status=500, raw=f"stack trace with {KEY}".encode()),
        Reply(status=429, raw=KEY.encode()),
        Reply(content=f'{{"step": 3, "note": "{KEY}"}}'),
        Reply(content=f"no json, but {KEY}"),
        Reply(raw=KEY.encode()),
        Reply(close=True),
    ],
)
async def test_the_key_appears_nowhere_but_in_the_header(
    reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in logs at any level, errors and what caused them, reprs, accounts, or echoed answers."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    with serve(lambda _: reply) as server:
        async with client_for(server) as harness:
            try:
                shown.append(repr(await harness.ask()))
            except LlmError as error:
                cause: BaseException | None = error
                while cause is not None:
                    shown.extend((str(cause), repr(cause)))
                    cause = cause.__cause__
            shown.extend((repr(harness.client.settings), repr(harness.ledger), repr(vars(harness.client))))
    assert server.requests[0].headers["authorization"].endswith(KEY), (
        "the test would prove nothing without it"
    )
    assert KEY not in "\n".join([*shown, caplog.text, *(record.getMessage() for record in caplog.records)])
