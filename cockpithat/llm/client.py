"""The client: one call to a chat endpoint, with retries, deadline, breaker, budget, cache and accounts."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson

from cockpithat._version import __version__
from cockpithat.llm.accounting import CACHED, OK, CallRecord, Ledger, cost_of
from cockpithat.llm.cache import ResponseCache, request_key
from cockpithat.llm.errors import (
    BadAnswerError,
    ConnectionFailedError,
    DeadlineExceededError,
    KeyMissingError,
    LlmError,
    RateLimitedError,
    RejectedError,
    ServerFailedError,
    TimedOutError,
)
from cockpithat.llm.jsonrepair import NoJsonError, extract_json
from cockpithat.llm.limits import CircuitBreaker, HourlyBudget
from cockpithat.llm.retry import parse_retry_after, wait_seconds
from cockpithat.llm.secrets import ApiKey, find_key
from cockpithat.llm.settings import LlmSettings, Message, OutputMode, Role, RoleSettings
from cockpithat.llm.tokens import approximate_tokens, message_tokens

log = logging.getLogger(__name__)

_RETRYABLE_STATUS = frozenset({408, 409, 425, 500, 502, 503, 504, 529})
_SCHEMA_REFUSED_STATUS = frozenset({400, 415, 422, 500, 501})
_STEP_DOWN = {OutputMode.JSON_SCHEMA: OutputMode.JSON_OBJECT, OutputMode.JSON_OBJECT: OutputMode.TEXT}


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer. ``data`` is its JSON object or ``None``, and then ``problem`` says why there is none."""

    text: str
    data: dict[str, Any] | None
    problem: str | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON Schema an answer must follow, under a name the endpoint may show."""

    name: str
    body: dict[str, Any]

    @property
    def required(self) -> Collection[str]:
        """Fields that tell the answer's object from any other in the text."""
        return tuple(self.body.get("required", ()))


@dataclass(slots=True)
class _Reply:
    """What an endpoint said, before it is read as an answer."""

    text: str
    refusal: bool
    truncated: bool
    input_tokens: int
    output_tokens: int
    estimated: bool


class _Endpoint:
    """What is shared by all calls to one base URL."""

    def __init__(self, settings: LlmSettings) -> None:
        self.slots = asyncio.Semaphore(settings.concurrency)
        self.breaker = CircuitBreaker(settings.breaker)
        self.mode: dict[str, OutputMode] = {}  # by model: what it was found to support


class ChatClient:
    """Calls chat endpoints for all roles. Use as an async context manager, or call :meth:`close`.

    ``observe`` is told of every try, for metrics. ``transport``, ``monotonic``, ``sleep``, ``rng`` and
    ``environ`` are for tests and embedding; the defaults are the real ones.
    """

    def __init__(
        self,
        settings: LlmSettings,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
        environ: Mapping[str, str] | None = None,
        observe: Callable[[CallRecord], None] | None = None,
    ) -> None:
        self.settings = settings
        self._observe = observe
        names: Mapping[str, str] = os.environ if environ is None else environ
        # Behind a function: a dump of this object's fields must not show the environment.
        self._variable: Callable[[str], str | None] = lambda name: names.get(name)
        self._monotonic, self._sleep, self._rng = monotonic, sleep, rng or random.Random()
        self._cache = ResponseCache(settings.cache)
        self._endpoints: dict[str, _Endpoint] = {}
        self._budgets = {
            role: HourlyBudget(configured.hourly_tokens)
            for role in Role
            if (configured := settings.role(role)) is not None
        }
        self._http = httpx.AsyncClient(
            transport=transport,
            trust_env=settings.trust_environment,
            follow_redirects=False,  # a redirect would take the key to another host
            timeout=httpx.Timeout(settings.call_seconds, connect=settings.connect_seconds),
            headers={"User-Agent": f"cockpithat/{__version__}"},
            limits=httpx.Limits(max_connections=max(16, settings.concurrency * 4)),
        )

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def circuit_open(self, role: Role) -> bool:
        """Whether the role's endpoint is left alone since it failed."""
        settings = self.settings.role(role)
        endpoint = self._endpoints.get(settings.base_url) if settings is not None else None
        return endpoint is not None and endpoint.breaker.is_open

    def deadline_in(self, seconds: float) -> float:
        """The moment ``seconds`` from now, for :meth:`complete`."""
        return self._monotonic() + seconds

    async def complete(
        self,
        role: Role,
        messages: Sequence[Message],
        schema: Schema,
        *,
        ledger: Ledger,
        purpose: str,
        deadline: float | None = None,
    ) -> Completion:
        """One answer to ``messages`` as JSON after ``schema``.

        ``deadline`` is a moment of the monotonic clock; the call's own deadline applies besides. Every try
        is booked in ``ledger``. Raises an :class:`LlmError` when there is no answer; an answer that is no
        JSON is returned with a ``problem``, for the caller may ask again.
        """
        settings = self.settings.role(role)
        if settings is None:
            raise LlmError(f"no endpoint is configured for the {role} role")
        endpoint = self._endpoints.setdefault(settings.base_url, _Endpoint(self.settings))
        limit = self._monotonic() + self.settings.call_seconds
        limit = limit if deadline is None else min(limit, deadline)
        mode = settings.output
        if mode == OutputMode.AUTO:
            mode = endpoint.mode.get(settings.model, OutputMode.JSON_SCHEMA)
        call = _Call(role, settings, endpoint, list(messages), schema, ledger, purpose, limit, mode)
        # The key of the cache does not depend on what the endpoint was found to support meanwhile.
        key = request_key(settings.base_url, self._body(call, settings.output))
        answer = await asyncio.to_thread(self._cache.get, key)
        if answer is not None:
            self._book(ledger, CallRecord(role, settings.model, purpose, 0, CACHED))
            return self._read_answer(answer, schema, cached=True)
        reply = await self._with_retries(call)
        if reply.refusal:
            return Completion(reply.text, None, "the model refused")
        if reply.truncated:
            return Completion(reply.text, None, "the answer was cut off; be shorter")
        completion = self._read_answer(reply.text, schema, cached=False)
        if completion.data is not None:
            await asyncio.to_thread(self._cache.put, key, reply.text)
        return completion

    @staticmethod
    def _read_answer(text: str, schema: Schema, *, cached: bool) -> Completion:
        try:
            return Completion(text, extract_json(text, schema.required), cached=cached)
        except NoJsonError as error:
            return Completion(text, None, str(error), cached=cached)

    async def _with_retries(self, call: _Call) -> _Reply:
        attempt = 0
        while True:
            try:
                return await self._try(call, attempt)
            except RejectedError as error:
                if error.status not in _SCHEMA_REFUSED_STATUS or not self._step_down(call):
                    raise
                log.info(
                    "%s does not take this response format; asking for plainer output", call.settings.model
                )
            except LlmError as error:
                attempt += 1
                if not error.retryable or attempt >= self.settings.retry.attempts:
                    raise
                wait = wait_seconds(attempt - 1, error.retry_after, self.settings.retry, self._rng)
                if self._monotonic() + wait >= call.limit:
                    # Waiting out the deadline helps nobody; the cause is worth more than "deadline".
                    raise
                await self._sleep(wait)

    def _step_down(self, call: _Call) -> bool:
        """Ask this call for less structured output; false where that is fixed or at its end.

        What the endpoint takes is learned when the plainer request succeeds: a request may be refused for
        other reasons.
        """
        if call.settings.output != OutputMode.AUTO or call.mode not in _STEP_DOWN:
            return False
        call.mode = _STEP_DOWN[call.mode]
        return True

    async def _try(self, call: _Call, attempt: int) -> _Reply:
        """One request: within its time, its slot, the breaker and the budget; booked whatever happens."""
        key = find_key(call.settings, self._variable)
        budget = self._budgets[call.role]
        estimate = message_tokens([message["content"] for message in call.messages])
        reserved = estimate + call.settings.max_output_tokens
        started = self._monotonic()
        reply: _Reply | None = None
        outcome, sent = "cancelled", False
        reserved_now = False
        try:
            async with asyncio.timeout(max(call.limit - started, 0.0)):
                async with call.endpoint.slots:
                    call.endpoint.breaker.enter(self._monotonic())
                    told = False
                    try:
                        budget.reserve(reserved, self._monotonic())
                        reserved_now = sent = True
                        reply = await self._send(call, key)
                        told = True
                        call.endpoint.mode[call.settings.model] = call.mode
                        call.endpoint.breaker.succeeded()
                    except (ConnectionFailedError, TimedOutError, ServerFailedError, BadAnswerError) as error:
                        told = True
                        sent = error.kind != ConnectionFailedError.kind or not isinstance(
                            error.__cause__, httpx.ConnectError | httpx.ConnectTimeout
                        )
                        call.endpoint.breaker.failed(self._monotonic())
                        raise
                    except (RateLimitedError, RejectedError, KeyMissingError):
                        told = True
                        call.endpoint.breaker.succeeded()  # it is there and says why it will not
                        raise
                    except asyncio.CancelledError:
                        # Cancelled by the deadline or from outside; only a request that hung tells something.
                        if sent and self._monotonic() >= call.limit:
                            told = True
                            call.endpoint.breaker.failed(self._monotonic())
                        raise
                    finally:
                        if not told:
                            call.endpoint.breaker.abandoned()
            outcome = OK
            return reply
        except TimeoutError:
            outcome = DeadlineExceededError.kind
            raise DeadlineExceededError("no time is left for this call") from None
        except LlmError as error:
            outcome = error.kind
            raise
        finally:
            now = self._monotonic()
            lost = sent and reply is None and outcome in _MAY_BE_BILLED
            input_tokens = reply.input_tokens if reply else estimate if lost else 0
            output_tokens = reply.output_tokens if reply else 0
            if reserved_now:
                budget.settle(reserved, input_tokens + output_tokens, now)
            self._book(
                call.ledger,
                CallRecord(
                    call.role,
                    call.settings.model,
                    call.purpose,
                    attempt,
                    outcome,
                    input_tokens,
                    output_tokens,
                    reply.estimated if reply else lost,
                    cost_of(call.settings, input_tokens, output_tokens),
                    now - started,
                ),
            )

    def _book(self, ledger: Ledger, record: CallRecord) -> None:
        ledger.add(record)
        if self._observe is not None:
            self._observe(record)

    @staticmethod
    def _body(call: _Call, mode: OutputMode) -> dict[str, Any]:
        settings, schema = call.settings, call.schema
        body: dict[str, Any] = {
            **settings.extra_body,
            "model": settings.model,
            "messages": call.messages,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stream": False,
            settings.max_tokens_field: settings.max_output_tokens,
        }
        if mode in (OutputMode.JSON_SCHEMA, OutputMode.AUTO):
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": schema.name, "strict": True, "schema": schema.body},
            }
        elif mode == OutputMode.JSON_OBJECT:
            body["response_format"] = {"type": "json_object"}
        return body

    async def _send(self, call: _Call, key: ApiKey | None) -> _Reply:
        """Post one request and read the reply, turning all that can go wrong into an :class:`LlmError`."""
        headers = {"Content-Type": "application/json", **(key.header(call.settings) if key else {})}
        url = call.settings.base_url + "/chat/completions"
        body = orjson.dumps(self._body(call, call.mode))
        try:
            async with self._http.stream("POST", url, content=body, headers=headers) as response:
                chunks, size = [], 0
                async for chunk in response.aiter_bytes():
                    size += len(chunk)
                    if size > self.settings.max_response_bytes:
                        raise BadAnswerError("the endpoint's answer is too long")
                    chunks.append(chunk)
                status, response_headers = response.status_code, response.headers
        except httpx.TimeoutException as error:
            raise TimedOutError("the endpoint did not answer in time") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            # The text of transport errors may hold addresses or header content: the class name is enough.
            raise ConnectionFailedError(f"the connection failed ({type(error).__name__})") from error
        content = b"".join(chunks)
        if status != httpx.codes.OK:
            raise self._http_error(status, response_headers, content, call.settings, key)
        return self._parse(content, call, key)

    def _http_error(
        self, status: int, headers: httpx.Headers, content: bytes, settings: RoleSettings, key: ApiKey | None
    ) -> LlmError:
        asked = parse_retry_after(headers.get("retry-after"), now=datetime.now(UTC))
        if status == httpx.codes.TOO_MANY_REQUESTS:
            return RateLimitedError("the endpoint is over its rate limit (HTTP 429)", retry_after=asked)
        # llama.cpp's Python server answers 500 to a response format that it does not know.
        knows_no_format = status == httpx.codes.INTERNAL_SERVER_ERROR and b"response_format" in content
        if (status in _RETRYABLE_STATUS or status >= 500) and not knows_no_format:
            return ServerFailedError(f"the endpoint failed (HTTP {status})", retry_after=asked)
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            where = f"check {settings.api_key_env}" if settings.api_key_env else "set api_key_env"
            return KeyMissingError(f"the endpoint refused the key (HTTP {status}): {where}")
        said = "".join(c for c in content[:4_096].decode("utf-8", "replace") if c.isprintable())
        said = key.redact(said) if key else said  # before it is cut: half a key is still a secret
        return RejectedError(
            f"the endpoint rejected the request (HTTP {status}): {said[:200]}",
            status=status,
        )

    @staticmethod
    def _parse(content: bytes, call: _Call, key: ApiKey | None) -> _Reply:
        try:
            reply = orjson.loads(content)
            choice = reply["choices"][0]
            message = choice["message"]
            text = message.get("content")
            refusal = message.get("refusal")
            finish = choice.get("finish_reason")
            usage = reply.get("usage") or {}
        except (orjson.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError):
            raise BadAnswerError("the endpoint's answer is not a chat completion") from None
        if isinstance(text, list):  # some endpoints answer in parts
            text = "".join(p["text"] for p in text if isinstance(p, dict) and isinstance(p.get("text"), str))
        refused = bool(refusal) or finish == "content_filter"
        if text is None and not refused and finish != "length":
            raise BadAnswerError("the endpoint's answer has no content")
        text = text if isinstance(text, str) else ""
        counted = _counted(usage)
        return _Reply(
            key.redact(text) if key else text,
            refused,
            finish == "length",
            counted[0] if counted else message_tokens([m["content"] for m in call.messages]),
            counted[1] if counted else approximate_tokens(text),
            counted is None,
        )


def _counted(usage: Any) -> tuple[int, int] | None:
    """Input and output tokens as the endpoint counted them, ``None`` unless both are plain counts."""
    if not isinstance(usage, dict):
        return None
    asked, answered = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(asked) is int and type(answered) is int and asked >= 0 and answered >= 0:
        return asked, answered
    return None


# Sent, and whether the endpoint worked on it is not known.
_MAY_BE_BILLED = frozenset(
    {
        ConnectionFailedError.kind,
        TimedOutError.kind,
        DeadlineExceededError.kind,
        BadAnswerError.kind,
        "cancelled",
    }
)


@dataclass(slots=True)
class _Call:
    """One call on its way through the client."""

    role: Role
    settings: RoleSettings
    endpoint: _Endpoint
    messages: list[Message]
    schema: Schema
    ledger: Ledger
    purpose: str
    limit: float
    mode: OutputMode
