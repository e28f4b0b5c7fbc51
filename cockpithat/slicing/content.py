"""The parts of a step as text: what was said, called, returned, sensed and remembered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from cockpithat.channels.tags import Channel
from cockpithat.contract.trace import Step

MAX_SIGNALS = 16


def compact(value: Any) -> str:
    """A value on as little text as holds it: strings as they are, everything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (orjson.JSONEncodeError, RecursionError):
        return str(value)


def calls(step: Step) -> list[str]:
    """Each tool call as ``call name(arguments)``."""
    return [
        f"call {call.name}({compact(call.arguments) if call.arguments else ''})" for call in step.tool_calls
    ]


def outputs(step: Step) -> list[str]:
    """Each tool output as ``result name: content``, ``error`` in place of ``result`` where it is one."""
    return [
        f"{'error' if out.is_error else 'result'}{f' {out.name}' if out.name else ''}: {compact(out.content)}"
        for out in step.tool_outputs
        if out.content is not None or out.is_error
    ]


def verbatim(step: Step) -> str:
    """The step whole: text, reasoning chain, tool calls with their arguments, tool outputs."""
    parts = [step.text.strip()]
    if step.reasoning.strip():
        parts.append(f"reasoning: {step.reasoning.strip()}")
    parts.extend(f"plan {item.id}: {item.text}" for item in step.plan if item.text)
    parts.extend(calls(step))
    parts.extend(outputs(step))
    return "\n".join(part for part in parts if part)


def channel_items(step: Step, channel: Channel) -> list[str]:
    """Entries of one side channel: environment ``e``, vehicle state ``sigma`` or memory ``m``.

    Of the vehicle state the changes come first, then what the step set out to change, then the watched
    signals with a value; a signal that is not valid says so.
    """
    if channel == "e":
        return [f"{key}={compact(value)}" for key, value in step.environment.items()]
    if channel == "m":
        return [
            f"{ref.access} {ref.key}={compact(ref.value)}"
            + "".join(
                f" {name} {value}" for name, value in (("owner", ref.owner), ("domain", ref.domain)) if value
            )
            for ref in step.memory
        ]
    items = [f"wants {change.path}={compact(change.value)}" for change in step.intended]
    if (state := step.state) is not None:
        items[:0] = [f"{c.path} {compact(c.before)}→{compact(c.after)}" for c in state.changes]
        moved = {change.path for change in state.changes}
        items.extend(
            f"{path}={compact(value)}" + (f" ({state.quality[path].value})" if path in state.quality else "")
            for path, value in state.before.items()
            if path not in moved
        )
        items.extend(
            f"{path} {quality.value}" for path, quality in state.quality.items() if path not in state.before
        )
    return items[:MAX_SIGNALS]


def channels(step: Step, wanted: Iterable[Channel]) -> str:
    """The wanted channels that the step has, as ``sigma{...} e{...}`` on one line; may be empty."""
    return " ".join(
        f"{channel}{{{'; '.join(items)}}}" for channel in wanted if (items := channel_items(step, channel))
    )


def everything(step: Step) -> str:
    """All that a quote from this step may come from."""
    return verbatim(step) + "\n" + channels(step, ("e", "sigma", "m"))
