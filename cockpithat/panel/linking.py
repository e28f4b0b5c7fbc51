"""The light model and the graph: refining entity links, and the paper's graph-building prompt as an option.

Both run at the end of a session and end in a graph that is checked: steps that exist, edges from earlier to
later (which makes it acyclic), the four types, words that stand in the trace. What fails a check is dropped
and counted; nothing a model says can make a graph invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cockpithat.contract.trace import Edge, EdgeEvidence, Signal, Trace, TraceGraph
from cockpithat.llm import Message, Role, Schema
from cockpithat.llm.tokens import approximate_tokens
from cockpithat.panel.answers import UnusableAnswerError, integer
from cockpithat.panel.asking import Line, ask
from cockpithat.panel.envelope import enclose
from cockpithat.panel.prompts import prompt
from cockpithat.panel.verify import TraceFacts
from cockpithat.slicing.index import Layering, MembershipIndex, write_numbers
from cockpithat.slicing.marks import clean, single_line
from cockpithat.slicing.render import StepText

MAX_LINKS = 20
MAX_EDGES_PER_STEP = 8
MAX_OBSERVATIONS = 8
LINK_TOKENS = 1_600
GRAPH_TOKENS = 6_000
_MAX_WHY = 200  # characters

_PAIR = {"source": {"type": "integer"}, "target": {"type": "integer"}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


LINKS = Schema(
    "links",
    _object(
        {
            "add": _list(_object({**_PAIR, "mention": {"type": "string"}, "entity": {"type": "string"}})),
            "drop": _list(_object(_PAIR)),
        }
    ),
)
_TYPE = {"type": "string", "enum": [signal.value for signal in Signal]}
GRAPH = Schema(
    "graph",
    _object(
        {
            "edges": _list(
                _object({**_PAIR, "primary": _TYPE, "secondary": _list(_TYPE), "why": {"type": "string"}})
            ),
            "observations": _list({"type": "string"}),
        }
    ),
)


@dataclass(frozen=True, slots=True)
class GraphDraft:
    """A checked graph, what the model noted about it as a whole, and how many edges failed a check."""

    graph: TraceGraph
    observations: tuple[str, ...] = ()
    rejected: int = 0


@dataclass(slots=True)
class _Edges:
    """Edges under construction: evidence by pair, in the order it came."""

    by_pair: dict[tuple[int, int], dict[Signal, EdgeEvidence]] = field(default_factory=dict)

    def add(self, source: int, target: int, evidence: EdgeEvidence) -> None:
        self.by_pair.setdefault((source, target), {}).setdefault(evidence.signal, evidence)

    def build(self, lookback: int, lost: int) -> TraceGraph:
        return TraceGraph(
            edges=tuple(
                Edge(source=source, target=target, evidence=tuple(evidence.values()))
                for (source, target), evidence in sorted(self.by_pair.items(), key=lambda item: item[0][::-1])
                if evidence
            ),
            lookback=lookback,
            lost_to_lookback=lost,
        )


def _pair(item: Any, steps: int) -> tuple[int, int] | None:
    """Source and target of an entry that names two steps in order, else ``None``."""
    if not isinstance(item, dict):
        return None
    source, target = integer(item.get("source")), integer(item.get("target"))
    if source is None or target is None or not 0 <= source < target < steps:
        return None
    return source, target


def _items(data: dict[str, Any], name: str) -> Sequence[Any]:
    items = data.get(name, [])
    if not isinstance(items, list):
        raise UnusableAnswerError([f"{name} must be a list"])
    return items


def read_links(data: dict[str, Any], graph: TraceGraph, facts: TraceFacts) -> GraphDraft:
    """The graph with the model's links added and dropped.

    An added link needs words of both steps that stand there. A link is dropped only if nothing but reference
    speaks for it: plan, tool and control edges come from explicit ids and calls.
    """
    steps = len(facts.trace.steps)
    edges = _Edges()
    for edge in graph.edges:
        for evidence in edge.evidence:
            edges.add(edge.source, edge.target, evidence)
    rejected = 0
    for item in _items(data, "drop")[:MAX_LINKS]:
        pair = _pair(item, steps)
        if pair is not None and set(edges.by_pair.get(pair, {})) == {Signal.REFERENCE}:
            del edges.by_pair[pair]
        else:
            rejected += 1
    for item in _items(data, "add")[:MAX_LINKS]:
        pair = _pair(item, steps)
        mention, entity = (
            (item.get("mention"), item.get("entity")) if isinstance(item, dict) else (None, None)
        )
        if (
            pair is not None
            and isinstance(mention, str)
            and isinstance(entity, str)
            and facts.holds(pair[1], mention)
            and facts.holds(pair[0], entity)
        ):
            what = f"{clean(mention).strip()} = {clean(entity).strip()}"[:_MAX_WHY]
            edges.add(*pair, EdgeEvidence(signal=Signal.REFERENCE, what=what))
        else:
            rejected += 1
    return GraphDraft(edges.build(graph.lookback, graph.lost_to_lookback), rejected=rejected)


def read_graph(data: dict[str, Any], facts: TraceFacts) -> GraphDraft:
    """The graph a model built, reduced to what is valid: a DAG over the trace's steps."""
    steps = len(facts.trace.steps)
    edges, rejected = _Edges(), 0
    into: dict[int, int] = {}
    for item in _items(data, "edges"):
        pair = _pair(item, steps)
        primary = item.get("primary") if isinstance(item, dict) else None
        why = item.get("why") if isinstance(item, dict) else None
        if pair is None or primary not in set(Signal) or not isinstance(why, str) or not why.strip():
            rejected += 1
            continue
        into[pair[1]] = into.get(pair[1], 0) + (pair not in edges.by_pair)
        if into[pair[1]] > MAX_EDGES_PER_STEP:
            rejected += 1
            continue
        text = clean(why).strip()[:_MAX_WHY]
        edges.add(*pair, EdgeEvidence(signal=Signal(primary), what=text))
        secondary = item.get("secondary")
        for name in secondary if isinstance(secondary, list) else ():
            if name in set(Signal):
                edges.add(*pair, EdgeEvidence(signal=Signal(name), what=text))
    observations = data.get("observations")
    notes = (
        [clean(o).strip()[:_MAX_WHY] for o in observations if isinstance(o, str)]
        if isinstance(observations, list)
        else []
    )
    return GraphDraft(edges.build(0, 0), tuple(note for note in notes if note)[:MAX_OBSERVATIONS], rejected)


def _link_lines(trace: Trace, graph: TraceGraph) -> str:
    sources = MembershipIndex(
        len(trace.steps), Layering.DEPENDENCY, frozenset((e.source, e.target) for e in graph.edges)
    ).sources()
    texts = [StepText(step) for step in trace.steps]
    lines = ""
    for words in (20, 14, 9, 5):
        lines = "\n".join(
            f"{step.index}|{single_line(step.agent)}|{text.in_words(words)}|←{write_numbers(sources[step.index])}"
            for step, text in zip(trace.steps, texts, strict=True)
        )
        if approximate_tokens(lines) <= LINK_TOKENS:
            break
    return lines


def _messages(name: str, data: str) -> list[Message]:
    envelope = enclose(data)
    return [
        {"role": "system", "content": prompt(name).fill(nonce=envelope.nonce)},
        {"role": "user", "content": envelope.text},
    ]


async def refine_links(line: Line, trace: Trace, graph: TraceGraph, facts: TraceFacts) -> GraphDraft:
    """Entity linking by the light model (section 4.1). Raises an ``LlmError`` or ``UnusableAnswerError``."""
    return await ask(
        line,
        Role.LINKER,
        _messages("linker", _link_lines(trace, graph)),
        LINKS,
        lambda data: read_links(data, graph, facts),
        "links",
    )


async def graph_by_prompt(line: Line, trace: Trace, facts: TraceFacts) -> GraphDraft:
    """The graph by the paper's prompt 1. Raises an ``LlmError`` or ``UnusableAnswerError``."""
    share = max(GRAPH_TOKENS // max(len(trace.steps), 1), 12)
    lines: list[str] = []
    for step in trace.steps:
        text = StepText(step)
        whole = text.verbatim if text.verbatim.tokens <= share else text.key(share)
        lines.append(f"== {single_line(step.agent)}\n@{step.index}\n{whole.text}")
    return await ask(
        line,
        Role.LINKER,
        _messages("graph", "\n".join(lines)),
        GRAPH,
        lambda data: read_graph(data, facts),
        "graph",
    )
