"""Makes a trace fit into a record (design, decision 16): long texts are cut, and the trace says so."""

from __future__ import annotations

import json
from typing import Any

from cockpithat.contract.trace import Step, Trace

_LIMITS = (65_536, 16_384, 4_096, 1_024, 256, 64, 0)
_MARK = " [cut; see the step's source]"


def fit(trace: Trace, max_bytes: int) -> tuple[Trace, bytes]:
    """``trace`` and its JSON in at most ``max_bytes``, cut as little as a few fixed limits allow.

    Each step keeps its source offset and digest, which lead to the whole text. When even bare steps do not
    fit, steps in the middle go: the task's start and the failure's end say most.
    """
    data = _encode(trace)
    if len(data) <= max_bytes:
        return trace, data
    for limit in _LIMITS:
        cut = trace.model_copy(
            update={
                "truncated": True,
                "task": _text(trace.task, limit),
                "final_answer": _text(trace.final_answer, limit),
                "steps": tuple(_step(step, limit) for step in trace.steps),
            }
        )
        data = _encode(cut)
        if len(data) <= max_bytes:
            return cut, data
    cut = cut.model_copy(update={"graph": None})
    keep = len(cut.steps)
    while len(data := _encode(cut)) > max_bytes and keep > 1:
        keep //= 2
        steps = (*cut.steps[: keep - keep // 2], *cut.steps[len(cut.steps) - keep // 2 :])
        cut = cut.model_copy(update={"steps": steps})
    return cut, data


def _encode(trace: Trace) -> bytes:
    return trace.model_dump_json().encode("utf-8", "surrogatepass")


def _text(text: str, limit: int) -> str:
    return text if len(text) <= limit + len(_MARK) else text[:limit] + _MARK


def _value(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return _text(value, limit)
    if isinstance(value, (dict, list)):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return value if len(text) <= limit + len(_MARK) else text[:limit] + _MARK
    return value


def _fields(values: dict[str, Any], limit: int) -> dict[str, Any]:
    cut = {str(name): _value(value, limit) for name, value in values.items()}
    return cut if len(cut) <= max(limit, 16) else dict(list(cut.items())[: max(limit, 16)])


def _step(step: Step, limit: int) -> Step:
    return step.model_copy(
        update={
            "text": _text(step.text, limit),
            "reasoning": _text(step.reasoning, limit),
            "tool_calls": tuple(
                call.model_copy(
                    update={
                        "arguments": _text(call.arguments, limit)
                        if isinstance(call.arguments, str)
                        else _fields(call.arguments, limit)
                    }
                )
                for call in step.tool_calls
            ),
            "tool_outputs": tuple(
                output.model_copy(update={"content": _value(output.content, limit)})
                for output in step.tool_outputs
            ),
            "environment": _fields(step.environment, limit),
            "memory": tuple(
                item.model_copy(update={"value": _value(item.value, limit)}) for item in step.memory
            ),
            "plan": tuple(item.model_copy(update={"text": _text(item.text, limit)}) for item in step.plan),
        }
    )
