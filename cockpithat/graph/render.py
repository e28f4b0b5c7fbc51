"""A trace's graph as JSON, Graphviz dot, or one HTML page that needs nothing else.

Text of a trace is untrusted: it is escaped for each format, and the page's policy
(``Content-Security-Policy``) lets only the page's own script run and nothing load from anywhere.
"""

from __future__ import annotations

import html
import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from cockpithat.contract.reports import Report
from cockpithat.contract.trace import Edge, Signal, Step, Trace, TraceGraph
from cockpithat.graph.builder import graph_of
from cockpithat.graph.shape import graph_shape, positional_fallback
from cockpithat.resources import read_resource

_ROW: Final = 34
_SNIPPET: Final = 160
_PAGE_TEXT: Final = 20_000
_DOT_TEXT: Final = 48
_DOT_COLOURS: Final = {
    Signal.REFERENCE: "#2f68c8",
    Signal.PLAN: "#b86200",
    Signal.TOOL: "#1f7f4c",
    Signal.CONTROL: "#7a45b3",
}
_DOT_STYLES: Final = {
    Signal.REFERENCE: "solid",
    Signal.PLAN: "dashed",
    Signal.TOOL: "dotted",
    Signal.CONTROL: "bold",
}
_MEANING: Final = {
    Signal.REFERENCE: "names something the earlier step introduced",
    Signal.PLAN: "carries out or refines a plan or commitment",
    Signal.TOOL: "uses what a tool returned",
    Signal.CONTROL: "was called, answered or handed over to",
}
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_SLOT = re.compile(r"\{\{([a-z_]+)\}\}")


def to_json(trace: Trace, report: Report | None = None) -> str:
    """Steps in short, edges with evidence, the graph's shape, and the verdict's step; indented JSON."""
    graph = graph_of(trace)
    n = len(trace.steps)
    shape = graph_shape(graph, n)
    record = {
        "trace_id": trace.trace_id,
        "vehicle_id": trace.vehicle_id,
        "session_id": trace.session_id,
        "steps": [
            {
                "index": step.index,
                "agent": step.agent,
                "mode": step.mode,
                "text": _summary(step),
                "changes": [change.model_dump(mode="json") for change in _changes(step)],
            }
            for step in trace.steps
        ],
        "edges": [edge.model_dump(mode="json") for edge in graph.edges],
        "lookback": graph.lookback,
        "lost_to_lookback": graph.lost_to_lookback,
        "lost_to_cap": graph.lost_to_cap,
        "edges_per_step": round(shape.edges_per_step, 3),
        "adjacent_share": round(shape.adjacent_share, 3),
        "isolated_share": round(shape.isolated_share, 3),
        "positional_fallback": positional_fallback(graph, n),
        "verdict": _verdict_step(report, n),
    }
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def to_dot(trace: Trace, report: Report | None = None) -> str:
    """Graphviz dot, a cluster for each agent; edges carry colour, style and evidence of their signal."""
    graph = graph_of(trace)
    verdict = _verdict_step(report, len(trace.steps))
    lines = [
        "digraph trace {",
        f"  label={_dot(trace.session_id)}; labelloc=t; rankdir=TB; fontname=Helvetica;",
        "  node [shape=box, style=rounded, fontname=Helvetica, fontsize=10];",
        "  edge [fontname=Helvetica, fontsize=8];",
    ]
    for at, agent in enumerate(_agents(trace)):
        lines.append(f"  subgraph cluster_{at} {{ label={_dot(agent)}; color=grey;")
        for index, step in enumerate(trace.steps):
            if step.agent == agent:
                label = _dot(f"{index} {step.mode}\n{_cut(_summary(step), _DOT_TEXT)}")
                marked = ', color="#b3261e", penwidth=3' if index == verdict else ""
                lines.append(
                    f"    s{index} [label={label}, tooltip={_dot(_cut(_summary(step), 400))}{marked}];"
                )
        lines.append("  }")
    for edge in graph.edges:
        signal = edge.evidence[0].signal if edge.evidence else Signal.REFERENCE
        lines.append(
            f"  s{edge.source} -> s{edge.target} "
            f'[color="{_DOT_COLOURS[signal]}", style={_DOT_STYLES[signal]}, tooltip={_dot(_reasons(edge))}];'
        )
    lines.append("}")
    return "\n".join(lines) + "\n"


def to_html(trace: Trace, report: Report | None = None) -> str:
    """One self-contained page: lanes per agent, edges by signal, details by click or key, the verdict.

    Loads nothing from anywhere. Texts longer than 20,000 characters are cut, and say so.
    """
    graph = graph_of(trace)
    agents = _agents(trace)
    width = _lane_width(len(agents))
    lanes_width = max(1, len(agents)) * width
    height = max(1, len(trace.steps)) * _ROW
    verdict = _verdict_step(report, len(trace.steps))
    notes = _notes(report, len(trace.steps))
    script = read_resource("data/graph/page.js")
    slots = {
        "title": _text(f"Trace {trace.session_id}"),
        "heading": _text(f"Session {trace.session_id} · vehicle {trace.vehicle_id}"),
        "facts": _facts(trace, graph),
        "task": f'<p class="task"><b>Task:</b> {_text(_cut(trace.task, 2_000))}</p>' if trace.task else "",
        "verdict": _banner(report, len(trace.steps)),
        "legend": "".join(_legend(signal) for signal in Signal),
        "lanes": "".join(
            f'<span style="left:{at * width}px;width:{width}px" title="{_text(agent)}">{_text(agent)}</span>'
            for at, agent in enumerate(agents)
        ),
        "lane_width": str(lanes_width),
        "height": str(height),
        "svg": _svg(trace, graph, agents, width, verdict),
        "rows": "".join(_row(step, index, verdict) for index, step in enumerate(trace.steps)),
        "data": _data(trace, graph, verdict, notes),
        "style": read_resource("data/graph/page.css"),
        "script": script,
        "script_hash": "sha256-" + b64encode(sha256(script.encode()).digest()).decode(),
    }
    return _SLOT.sub(lambda match: slots[match[1]], read_resource("data/graph/page.html"))


# -- what is said of a step ----------------------------------------------------------------------------


def _clean(text: str) -> str:
    """Without characters that no HTML document may hold."""
    return _CONTROL_CHARACTERS.sub("\ufffd", text)


def _text(text: str) -> str:
    return html.escape(_clean(text), quote=True)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _long(text: str) -> str:
    text = _clean(text)
    if len(text) <= _PAGE_TEXT:
        return text
    return f"{text[:_PAGE_TEXT]}\n… {len(text) - _PAGE_TEXT:,} more characters are not shown"


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return _long(value)
    return _long(json.dumps(value, ensure_ascii=False, default=str, indent=1))


def _summary(step: Step) -> str:
    """One line of what the step did: its words, else its calls, else its results."""
    if step.text.strip():
        said = step.text[: 4 * _SNIPPET]
    elif step.tool_calls:
        said = "calls " + ", ".join(f"{call.name}({_flat(call.arguments)})" for call in step.tool_calls[:4])
    elif step.tool_outputs:
        said = "returns " + ", ".join(
            f"{output.name or 'tool'}: {_flat(output.content)}" for output in step.tool_outputs[:4]
        )
    else:
        said = step.reasoning[: 4 * _SNIPPET]
    return _cut(" ".join(_clean(said).split()), _SNIPPET)


def _flat(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _cut(text, 80)


def _changes(step: Step) -> Sequence[Any]:
    return step.state.changes if step.state is not None else ()


def _agents(trace: Trace) -> list[str]:
    return list(dict.fromkeys(step.agent for step in trace.steps))


def _verdict_step(report: Report | None, n: int) -> int | None:
    return report.step if report is not None and report.step is not None and 0 <= report.step < n else None


def _reasons(edge: Edge) -> str:
    return f"{edge.source} → {edge.target}\n" + "\n".join(
        f"{one.signal}: {one.what}" for one in edge.evidence
    )


def _dot(text: str) -> str:
    escaped = _clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\r", "").replace("\n", "\\n")
    return f'"{escaped}"'


# -- the page's parts ----------------------------------------------------------------------------------


def _lane_width(lanes: int) -> int:
    return 112 if lanes <= 4 else 84 if lanes <= 7 else 60 if lanes <= 12 else 36


def _facts(trace: Trace, graph: TraceGraph) -> str:
    n = len(trace.steps)
    shape = graph_shape(graph, n)
    facts: dict[str, str] = {
        "outcome": str(trace.outcome),
        "closed by": str(trace.close_reason).replace("_", " "),
        "steps": str(n),
        "edges": f"{len(graph.edges)} ({shape.edges_per_step:.1f} a step)",
        "vehicle state": str(trace.vehicle_state),
    }
    if graph.lost_to_lookback or graph.lost_to_cap:
        facts["edges left out"] = f"{graph.lost_to_lookback} too long, {graph.lost_to_cap} over the cap"
    if positional_fallback(graph, n):
        facts["shape"] = "near-linear: contexts go by position"
    if trace.started_ts and not trace.timestamps_synthetic:
        facts["started"] = _when(trace.started_ts)
    if trace.truncated:
        facts["truncated"] = "yes"
    return "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts.items()
    )


def _when(ts: int) -> str:
    moment = datetime.fromtimestamp(ts / 1000, tz=UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ts % 1000:03d} UTC"


def _words(value: Any) -> str:
    return str(value).replace("_", " ")


def _banner(report: Report | None, n: int) -> str:
    if report is None:
        return ""
    step = _verdict_step(report, n)
    place = f'<a href="#step-{step}">step {step}</a>' if step is not None else "no step"
    parts = [
        place,
        _text(report.agent or "no agent"),
        _text(_words(report.category) if report.category else "no category"),
        _text(f"ASIL {report.asil}" if report.asil.rank > 1 else str(report.asil)),
        _text(f"confidence {report.confidence:.2f}"),
    ]
    flags = [
        name
        for name, on in (("contested", report.contested), ("review required", report.review.required))
        if on
    ]
    parts += [_text(flag) for flag in flags]
    lines = [f"<p><b>Verdict ({_text(report.method)}, {_text(report.analysts)}):</b> {' · '.join(parts)}</p>"]
    if report.summary:
        lines.append(f"<p>{_text(_cut(report.summary, 1_000))}</p>")
    if report.severity.hazardous_event:
        lines.append(f"<p>Hazardous event: {_text(report.severity.hazardous_event)}</p>")
    lines.append(f'<p class="notice">{_text(report.severity.notice)}</p>')
    return f'<section class="verdict" aria-label="Verdict">{"".join(lines)}</section>'


def _notes(report: Report | None, n: int) -> Mapping[int, list[str]]:
    """What the report says of single steps."""
    notes: dict[int, list[str]] = {}
    if report is None:
        return notes
    for cause in report.root_causes:
        if cause.step is not None and 0 <= cause.step < n:
            what = _words(cause.category) if cause.category else "no category"
            told = " (an omission)" if cause.omission else ""
            notes.setdefault(cause.step, []).append(f"Root cause: {cause.agent or 'no agent'}, {what}{told}")
    for evidence in report.evidence:
        if evidence.step is not None and 0 <= evidence.step < n:
            notes.setdefault(evidence.step, []).append(f"{_words(evidence.kind)}: {_cut(evidence.text, 400)}")
    return notes


def _legend(signal: Signal) -> str:
    return (
        f'<label title="{_text(_MEANING[signal])}"><input type="checkbox" value="{signal}" checked>'
        f'<svg aria-hidden="true"><path class="edge {signal}" style="opacity:1" d="M0 5H34"/></svg>'
        f"{signal}</label>"
    )


def _svg(trace: Trace, graph: TraceGraph, agents: Sequence[str], width: int, verdict: int | None) -> str:
    n = len(trace.steps)
    lane = {agent: at for at, agent in enumerate(agents)}
    x = [lane[step.agent] * width + width / 2 for step in trace.steps]
    total, height = max(1, len(agents)) * width, max(1, n) * _ROW
    parts = [
        f'<svg width="{total}" height="{height}" role="img" aria-label="{len(graph.edges)} dependencies">'
    ]
    parts.append("<defs>" + "".join(_arrow(signal) for signal in Signal) + "</defs>")
    parts += [
        f'<rect class="lane-band" x="{at * width}" y="0" width="{width}" height="{height}"/>'
        for at in range(0, len(agents), 2)
    ]
    for edge in graph.edges:
        signal = edge.evidence[0].signal if edge.evidence else Signal.REFERENCE
        path = _path(x[edge.source], edge.source, x[edge.target], edge.target, width)
        parts.append(
            f'<path class="edge {signal}" d="{path}" marker-end="url(#to-{signal})">'
            f"<title>{_text(_reasons(edge))}</title></path>"
        )
    for index, step in enumerate(trace.steps):
        marked = " verdict-node" if index == verdict else ""
        parts.append(
            f'<g class="node{marked}" transform="translate({x[index]:g} {index * _ROW + _ROW / 2:g})">'
            f"<title>{_text(f'{index} {step.agent} ({step.mode})')}</title>"
            f'<circle r="10"/><text>{index}</text></g>'
        )
    parts.append("</svg>")
    return "".join(parts)


def _arrow(signal: Signal) -> str:
    return (
        f'<marker id="to-{signal}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto" markerUnits="userSpaceOnUse"><path class="head {signal}" d="M0 0L8 4L0 8Z"/></marker>'
    )


def _path(x1: float, source: int, x2: float, target: int, width: int) -> str:
    """A curve from below the earlier node to above or beside the later one; within a lane it bulges."""
    y1, y2 = source * _ROW + _ROW / 2, target * _ROW + _ROW / 2
    if x1 == x2:
        if target - source == 1:
            return f"M{x1:g} {y1 + 10:g}L{x2:g} {y2 - 11:g}"
        bulge = min(width / 2 - 6, 12 + 5 * math.log2(target - source) * width / 84)
        side = -1 if source % 2 else 1  # both sides are used, so that fewer curves lie on each other
        xs, xb = x1 + side * 9, x1 + side * (9 + bulge)
        return f"M{xs:g} {y1 + 4:g}C{xb:g} {y1 + 16:g} {xb:g} {y2 - 16:g} {x2 + side * 10:g} {y2 - 4:g}"
    side = 1 if x2 > x1 else -1
    reach = min(24 + 10 * (target - source), 160)
    return (
        f"M{x1 + side * 4:g} {y1 + 9:g}"
        f"C{x1 + side * 4:g} {y1 + reach:g} {x2 - side * 5:g} {y2 - reach:g} {x2 - side * 5:g} {y2 - 10:g}"
    )


def _row(step: Step, index: int, verdict: int | None) -> str:
    chips = "".join(
        f'<span class="chip" title="{_text(change.path)}">{_text(_cut(change.path.rsplit(".", 1)[-1], 24))} '
        f"{_text(_cut(_flat(change.before), 12))} → {_text(_cut(_flat(change.after), 12))}</span>"
        for change in _changes(step)[:3]
    )
    if len(_changes(step)) > 3:
        chips += f'<span class="chip">+{len(_changes(step)) - 3}</span>'
    mark = '<span class="mark">verdict</span>' if index == verdict else ""
    mode = "" if step.mode == "message" else f'<span class="mode">{_text(step.mode)}</span>'
    target = f'<span class="mode">→ {_text(step.target)}</span>' if step.target else ""
    return (
        f'<li class="row{" verdict-row" if index == verdict else ""}" id="step-{index}" role="option" '
        f'aria-selected="false" tabindex="{0 if index == (verdict or 0) else -1}" '
        f'style="top:{index * _ROW}px">'
        f'<span class="no">{index}</span><span class="who">{_text(_cut(step.agent, 40))}</span>{mode}{target}'
        f'<span class="say">{_text(_summary(step))}</span>{chips}{mark}</li>'
    )


def _data(trace: Trace, graph: TraceGraph, verdict: int | None, notes: Mapping[int, list[str]]) -> str:
    """The page's data as JSON that no text in it can end or turn into markup."""
    record = {
        "verdict": verdict,
        "edges": [
            edge.model_dump(mode="json", include={"source", "target", "evidence"}) for edge in graph.edges
        ],
        "steps": [_step_data(trace, step, notes.get(index, [])) for index, step in enumerate(trace.steps)],
    }
    text = _clean(json.dumps(record, ensure_ascii=False))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _step_data(trace: Trace, step: Step, notes: list[str]) -> dict[str, Any]:
    state = step.state
    return {
        "agent": step.agent,
        "mode": step.mode,
        "target": step.target,
        "when": "" if trace.timestamps_synthetic or step.ts < 86_400_000 else _when(step.ts),
        "text": _long(step.text),
        "reasoning": _long(step.reasoning),
        "calls": [{"name": call.name, "content": _plain(call.arguments)} for call in step.tool_calls],
        "outputs": [
            {"name": output.name or "tool", "content": _plain(output.content), "error": output.is_error}
            for output in step.tool_outputs
        ],
        "plan": [[item.id, item.text] for item in step.plan],
        "intended": [[change.path, _plain(change.value)] for change in step.intended],
        "changes": [[change.path, _plain(change.before), _plain(change.after)] for change in _changes(step)],
        "quality": [[path, str(quality)] for path, quality in state.quality.items()] if state else [],
        "memory": [[item.access, item.key, _plain(item.value)] for item in step.memory],
        "environment": _plain(step.environment) if step.environment else "",
        "notes": notes,
    }
