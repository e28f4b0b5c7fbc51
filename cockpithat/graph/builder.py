"""The dependency graph, built one step at a time (paper, section 3.1 and algorithm 1).

The paper compares each step with the L before it. Here each signal keeps an index instead (entity to
its first step, plan item to its proposal, call id to its call, agent to its open dispatch), so a step
costs a look-up for each thing it mentions. Every rule uses only the steps before, which is why any
cut of a trace into batches gives the same graph.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from cockpithat.contract.events import IntendedChange, MemoryRef, PlanItem, ToolCall, ToolOutput
from cockpithat.contract.trace import Signal, Trace, TraceGraph
from cockpithat.graph.content import read_value, strong
from cockpithat.graph.control import Call, Dispatches, agent_key, is_terminal, is_user
from cockpithat.graph.entities import STRONG, Mention, clip, extract
from cockpithat.graph.plans import PlanText, proposals
from cockpithat.graph.settings import GraphSettings
from cockpithat.graph.tools import ToolLedger

_EVIDENCE_CHARS: Final = 64
_COUNT_BITS: Final = 16
_MAX_COUNT: Final = (1 << _COUNT_BITS) - 1
_FAN_IN: Final = 32

_SYSTEM: Final = "system"
_OUTPUT_MODES: Final = frozenset({"tool_output", "tool", "observation"})
_PLAN_MODES: Final = frozenset({"plan", "planning", "ledger"})
_THOUGHT_MODES: Final = frozenset({"thought", "reasoning", "plan", "planning", "ledger"})
_CODE_BLOCK = re.compile(r"```(?:python|py|sh|bash|shell|javascript|js|sql|r)\b", re.IGNORECASE)
_RAN_CODE = re.compile(r"\s{0,8}exit ?code\b", re.IGNORECASE)
_RAN_NOTHING = re.compile(
    r"\s{0,8}There is no code\b", re.IGNORECASE
)  # AutoGen's terminal, when asked in vain
_BROWSED = re.compile(
    r"\bviewport (?:shows|position)", re.IGNORECASE
)  # AutoGen's and Magentic-One's browsers
_HEAD_CHARS: Final = 2_000


class StepLike(Protocol):
    """The fields of a step that the graph reads; :class:`cockpithat.contract.trace.Step` has them."""

    @property
    def event_id(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str: ...
    @property
    def tool_calls(self) -> tuple[ToolCall, ...]: ...
    @property
    def tool_outputs(self) -> tuple[ToolOutput, ...]: ...
    @property
    def memory(self) -> tuple[MemoryRef, ...]: ...
    @property
    def in_reply_to(self) -> str | None: ...
    @property
    def plan(self) -> tuple[PlanItem, ...]: ...
    @property
    def plan_item(self) -> str | None: ...
    @property
    def target(self) -> str | None: ...
    @property
    def intended(self) -> tuple[IntendedChange, ...]: ...


_Reasons = dict[tuple[Signal, str], None]


class IncrementalGraph:
    """A graph that grows by one step per :meth:`add`; the step's index is the order of adding.

    ``task`` and ``roster`` are common ground: what the task names and what agents are called links no
    two steps, and neither does what a system prompt names. ``operations`` counts tokens, look-ups and
    comparisons since the start.
    """

    def __init__(
        self, settings: GraphSettings | None = None, *, task: str = "", roster: Iterable[str] = ()
    ) -> None:
        self.settings = settings or GraphSettings()
        self.steps = 0
        self.operations = 0
        self.lost_to_lookback = 0
        self.lost_to_cap = 0
        self._edges: list[tuple[int, int, tuple[tuple[Signal, str], ...]]] = []
        self._common: set[str] = set()
        self._entities: dict[str, int] = {}  # (first step << 1 | from a tool) << 16 | mentions since
        self._entity_order: deque[str] = deque()  # a dict finds its own oldest key only by walking
        self._referred: list[int] = []  # by step: how many later ones refer to it
        self._events: dict[str, int] = {}
        self._plan_ids: OrderedDict[str, int] = OrderedDict()
        self._plan_text = PlanText(self.settings.max_plan_items, task[: self.settings.max_text_chars])
        self._tools = ToolLedger()
        self._dispatches = Dispatches()
        self._last_agent = ""
        self._last_mode = ""
        self._last_code: tuple[int, str] | None = None
        self._last_ran_code = False
        for name in roster:
            self._common.add(agent_key(name))
        if task:
            named: dict[str, Mention] = {}
            extract(clip(task, self.settings.max_text_chars), named, 4 * self.settings.max_entities_per_step)
            self._common.update(named)

    def add(self, step: StepLike) -> None:
        """Take the next step in session order and draw its edges from earlier ones."""
        index = self.steps
        self.operations += 1
        self._common.add(agent_key(step.agent))
        head = step.text[:_HEAD_CHARS]
        ran_code = _RAN_CODE.match(head) is not None or (
            bool(head) and is_terminal(step.agent) and not _RAN_NOTHING.match(head)
        )
        is_output = ran_code or step.mode in _OUTPUT_MODES or _is_browsed(head)

        edges: dict[int, _Reasons] = {}
        self._control(index, step, ran_code, edges)
        self._tool(index, step, edges)
        self._plan(index, step, is_output, edges)
        structural = set(edges)
        weights = self._reference(index, step, is_output, edges)
        if not edges and index and self._last_agent == step.agent:
            self._draw(edges, index, Signal.CONTROL, Call(index - 1, f"{step.agent} continues its turn"))
        self._keep(index, edges, structural, weights)

        self.steps += 1
        self._referred.append(0)
        if step.event_id:
            self._events[step.event_id] = index
        self._last_agent, self._last_mode, self._last_ran_code = step.agent, step.mode, ran_code
        if (
            not is_output
            and "```" in step.text
            and _CODE_BLOCK.search(step.text[: self.settings.max_text_chars])
        ):
            self._last_code = (index, step.agent)

    def to_wire(self) -> TraceGraph:
        """The graph so far, edges in order of target, then source."""
        # One call for all edges: a constructor each would cost four times as much.
        return TraceGraph.model_validate(
            {
                "edges": [
                    {
                        "source": source,
                        "target": target,
                        "evidence": [{"signal": signal, "what": what} for signal, what in evidence],
                    }
                    for source, target, evidence in self._edges
                ],
                "lookback": self.settings.lookback,
                "lost_to_lookback": self.lost_to_lookback,
                "lost_to_cap": self.lost_to_cap,
            }
        )

    # -- signals -------------------------------------------------------------------------------------

    def _control(self, index: int, step: StepLike, ran_code: bool, edges: dict[int, _Reasons]) -> None:
        """Signal iv: replies, dispatches and returns, code that is run, turns with the user."""
        if step.in_reply_to is not None:
            replied = self._events.get(step.in_reply_to)
            if replied is not None:
                self._draw(edges, index, Signal.CONTROL, Call(replied, "in reply to"))
        for call in self._dispatches.calls(index, step.agent, step.target):
            self._draw(edges, index, Signal.CONTROL, call)
        if ran_code and self._last_code is not None:
            self._draw(
                edges, index, Signal.CONTROL, Call(self._last_code[0], f"code of {self._last_code[1]} is run")
            )
            self._last_code = None
        if index and self._last_agent != step.agent and is_user(self._last_agent) != is_user(step.agent):
            what = f"{step.agent} answers {self._last_agent}"
            self._draw(edges, index, Signal.CONTROL, Call(index - 1, what))

    def _tool(self, index: int, step: StepLike, edges: dict[int, _Reasons]) -> None:
        """Signal iii by structure: the caller's next step reads the result; signal iv: call to output."""
        before = self._tools.work
        for call in self._tools.results_for(step.agent):
            self._draw(edges, index, Signal.TOOL, call)
        if self._last_ran_code and not is_terminal(step.agent):
            self._draw(edges, index, Signal.TOOL, Call(index - 1, "result of the code that was run"))
        if step.tool_calls:
            self._tools.calls(index, step.agent, step.tool_calls)
        if step.tool_outputs:
            for call in self._tools.outputs(index, step.agent, step.tool_outputs):
                self._draw(edges, index, Signal.CONTROL, call)
        self.operations += self._tools.work - before

    def _plan(self, index: int, step: StepLike, is_output: bool, edges: dict[int, _Reasons]) -> None:
        """Signal ii: items by id, items and commitments by their words, a thought by the next act."""
        if step.plan_item is not None:
            self._by_plan_id(index, step.plan_item, "carries out", edges)
        for item in step.plan[:_FAN_IN]:
            self._by_plan_id(index, item.id, "refines", edges)
        if index and self._last_agent == step.agent and self._last_mode in _THOUGHT_MODES:
            self._draw(edges, index, Signal.PLAN, Call(index - 1, f"acts on the {self._last_mode} before"))
        if is_output or step.mode == _SYSTEM:
            return
        said = f"{step.text}\n{step.reasoning}" if step.reasoning else step.text
        done = said
        for call in step.tool_calls[:_FAN_IN]:
            done = f"{call.name.replace('_', ' ')} {_arguments(call)[:400]}\n{done}"
        carried, work = self._plan_text.carried_out(done)
        for proposal in carried:
            self._draw(edges, index, Signal.PLAN, Call(proposal.step, proposal.shown))
        items = [item.text for item in step.plan[:_FAN_IN] if item.text]
        items += proposals(said, is_plan=step.mode in _PLAN_MODES)
        work += self._plan_text.propose(index, step.agent, items, carried)
        for item in step.plan[:_FAN_IN]:
            self._remember_plan(item.id, index)
        self.operations += work

    def _by_plan_id(self, index: int, item: str, verb: str, edges: dict[int, _Reasons]) -> None:
        self.operations += 1
        proposed = self._plan_ids.get(item)
        if proposed is not None:
            self._draw(edges, index, Signal.PLAN, Call(proposed, f"{verb} {item}"))

    def _remember_plan(self, item: str, index: int) -> None:
        self._plan_ids[item] = index
        self._plan_ids.move_to_end(item)
        if len(self._plan_ids) > self.settings.max_index_entries:
            self._plan_ids.popitem(last=False)

    def _reference(
        self, index: int, step: StepLike, is_output: bool, edges: dict[int, _Reasons]
    ) -> dict[int, int]:
        """Signals i and iii by content: entities and tool values that an earlier step introduced."""
        said, returned = self._mentions(step, is_output)
        if step.mode == _SYSTEM or agent_key(step.agent) == _SYSTEM:
            self._common.update(said)
            return {}
        sources: dict[int, list[tuple[int, Signal, str]]] = {}
        for mentions, from_tool in ((said, 0), (returned, 1)):
            for key, mention in mentions.items():
                self.operations += 1
                if key in self._common or (from_tool and key in said):
                    continue
                known = self._entities.get(key)
                if known is None:
                    if mention.introduces:
                        self._introduce(key, index, from_tool)
                    continue
                count = known & _MAX_COUNT
                first = known >> (_COUNT_BITS + 1)
                if first == index:
                    continue
                if count < _MAX_COUNT:
                    self._entities[key] = known + 1
                if self._is_common_ground(count, index - first) or (
                    count >= self.settings.common_limit and mention.weight < STRONG
                ):
                    continue
                signal = Signal.TOOL if known >> _COUNT_BITS & 1 else Signal.REFERENCE
                sources.setdefault(first, []).append((mention.weight, signal, mention.shown))
        weights: dict[int, int] = {}
        for source, found in sources.items():
            self.operations += 1
            weight = sum(w for w, _, _ in found)
            if weight < self.settings.min_reference_weight:
                continue
            if index - source > self.settings.lookback:
                self.lost_to_lookback += 1
                continue
            if (
                source not in edges
                and max(w for w, _, _ in found) < STRONG
                and self._is_common_ground(self._referred[source], index - source - 1)
            ):
                continue
            found.sort(key=lambda one: -one[0])
            reasons = edges.setdefault(source, {})
            for _, signal, shown in found[: self.settings.max_evidence_per_edge]:
                reasons[signal, _short(shown)] = None
            weights[source] = weight
        return weights

    def _mentions(self, step: StepLike, is_output: bool) -> tuple[dict[str, Mention], dict[str, Mention]]:
        """What the step says of its own, and what came from a tool; key to mention."""
        limit, chars = self.settings.max_entities_per_step, self.settings.max_text_chars
        said: dict[str, Mention] = {}
        returned: dict[str, Mention] = {}
        work = 0
        for change in step.intended[:limit]:
            strong(said, change.path.casefold(), change.path)
        for item in step.memory[:limit]:
            strong(said, f"memory:{item.key.casefold()}", item.key)
            if item.access == "read":
                work += read_value(item.value, said, limit, chars)
        if step.text:
            work += extract(clip(step.text, chars), returned if is_output else said, limit)
        if step.reasoning:
            work += extract(clip(step.reasoning, chars), said, limit)
        for call in step.tool_calls[:_FAN_IN]:
            work += read_value(call.arguments, said, limit, chars)
        for output in step.tool_outputs[:_FAN_IN]:
            if output.call_id and len(output.call_id) >= 6:
                strong(returned, output.call_id.casefold(), output.call_id)
            work += read_value(output.content, returned, limit, chars)
        self.operations += work
        return said, returned

    def _introduce(self, key: str, index: int, from_tool: int) -> None:
        if len(self._entities) >= self.settings.max_index_entries:
            del self._entities[self._entity_order.popleft()]
        self._entity_order.append(key)
        self._entities[key] = (index << 1 | from_tool) << _COUNT_BITS

    def _is_common_ground(self, count: int, since: int) -> bool:
        """Too often mentioned to say what depends on what: see ``common_after`` and ``common_share``."""
        return count >= self.settings.common_after and count > self.settings.common_share * since

    # -- edges ---------------------------------------------------------------------------------------

    def _draw(self, edges: dict[int, _Reasons], index: int, signal: Signal, call: Call) -> None:
        self.operations += 1
        if call.step >= index:
            return
        if index - call.step > self.settings.lookback:
            self.lost_to_lookback += 1
            return
        reasons = edges.setdefault(call.step, {})
        if len(reasons) < self.settings.max_evidence_per_edge:
            reasons[signal, _short(call.what)] = None

    def _keep(
        self, index: int, edges: dict[int, _Reasons], structural: set[int], weights: dict[int, int]
    ) -> None:
        """Store the step's edges. Over the cap structure stays, then heavier and nearer references."""
        chosen = sorted(edges)
        if len(chosen) > self.settings.max_edges_per_step:
            chosen.sort(key=lambda source: (source not in structural, -weights.get(source, 0), -source))
            self.lost_to_cap += len(chosen) - self.settings.max_edges_per_step
            chosen = sorted(chosen[: self.settings.max_edges_per_step])
        for source in chosen:
            if source in weights:
                self._referred[source] += 1
            evidence = tuple(edges[source])[: self.settings.max_evidence_per_edge]
            self._edges.append((source, index, evidence))
        self.operations += len(edges)


def build_graph(
    steps: Sequence[StepLike],
    settings: GraphSettings | None = None,
    *,
    task: str = "",
    roster: Iterable[str] = (),
) -> TraceGraph:
    """The graph of a whole trace, the same as one made step by step."""
    graph = IncrementalGraph(settings, task=task, roster=roster)
    for step in steps:
        graph.add(step)
    return graph.to_wire()


def graph_of(trace: Trace, settings: GraphSettings | None = None) -> TraceGraph:
    """The trace's graph, built now, with its task and roster as common ground, if it came without one."""
    if trace.graph is not None:
        return trace.graph
    return build_graph(trace.steps, settings, task=trace.task, roster=[agent.name for agent in trace.roster])


def _is_browsed(head: str) -> bool:
    # The plain search is ten times as fast as the pattern, which few texts need.
    return "viewport" in head.casefold() and _BROWSED.search(head) is not None


def _short(text: str) -> str:
    """One line of at most 64 characters."""
    line = " ".join(text[: 4 * _EVIDENCE_CHARS].split())
    return line if len(line) <= _EVIDENCE_CHARS else line[: _EVIDENCE_CHARS - 1] + "…"


def _arguments(call: ToolCall) -> str:
    arguments: Any = call.arguments
    if isinstance(arguments, dict):
        return " ".join(
            f"{name} {value}" for name, value in list(arguments.items())[:_FAN_IN] if _flat(value)
        )
    return str(arguments)


def _flat(value: Any) -> bool:
    return not isinstance(value, dict | list)
