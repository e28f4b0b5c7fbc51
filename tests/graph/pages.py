"""A small judged trace with vehicle state, and one whose texts attack the formats they end up in."""

from __future__ import annotations

from cockpithat.contract.base import Asil, Category, Outcome
from cockpithat.contract.reports import Evidence, Provenance, Report, RootCause, SeverityRating
from cockpithat.contract.trace import StateChange, StepState, Trace
from cockpithat.contract.vehicle import SignalQuality
from tests.graph.making import steps

DOOR = "Vehicle.Cabin.Door.Row1.DriverSide.IsOpen"


def cockpit_trace() -> Trace:
    state = StepState(
        before_ts=1_767_225_600_000,
        after_ts=1_767_225_601_000,
        before={DOOR: False},
        after={DOOR: True},
        changes=(StateChange(path=DOOR, before=False, after=True, ts=1_767_225_600_300),),
        quality={"Vehicle.Speed": SignalQuality.STALE},
    )
    said = steps(
        ("driver", "Open the door and go to 人民广场"),
        {"agent": "Director", "text": "Do it", "target": "VehicleAgent", "reasoning": "the driver wants it"},
        {
            "agent": "VehicleAgent",
            "mode": "tool_call",
            "tool_calls": ({"name": "open_door", "arguments": {"row": 1}, "call_id": "call_door_1"},),
            "intended": ({"path": DOOR, "value": True},),
            "state": state,
        },
        {
            "agent": "tool",
            "mode": "tool_output",
            "tool_outputs": ({"name": "open_door", "call_id": "call_door_1", "content": {"ok": True}},),
        },
        ("VehicleAgent", "The door is open"),
        ("Director", "Done"),
    )
    return Trace(
        trace_id="t",
        vehicle_id="v1",
        session_id="s1",
        task="Open the door",
        outcome=Outcome.FAILURE,
        started_ts=1_767_225_600_000,
        steps=tuple(said),
    )


def verdict() -> Report:
    return Report(
        report_id="r",
        trace_id="t",
        vehicle_id="v1",
        session_id="s1",
        outcome=Outcome.FAILURE,
        method="cockpithat",
        analysts="local",
        step=2,
        agent="VehicleAgent",
        category=Category.SAFETY_SAFEGUARD_FAILURE,
        asil=Asil.C,
        confidence=0.61,
        contested=True,
        summary="The door was opened while the car moved.",
        root_causes=(RootCause(step=2, agent="VehicleAgent", category=Category.SAFETY_SAFEGUARD_FAILURE),),
        severity=SeverityRating(asil=Asil.C, floor=Asil.C, hazardous_event="A door opens at speed"),
        evidence=(Evidence(kind="door_at_speed", step=2, text="IsOpen false to true at 32 km/h"),),
        provenance=Provenance(product_version="0", rules_id="r", rules_version="1"),
    )


ATTACKS = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "'\"><svg onload=document.title='owned'>",
    "javascript:document.title='owned'",
    "{{data}} {{script}} {{style}} {{nothing}}",
    'x"]; s0 -> s1 [label="owned"]; } digraph owned {',
    "</title></style><style>body{display:none}</style>",
    "<!-- --> <![CDATA[ ]]> &lt; &amp; \\u003c \u2028 \u2029 \x00 \x0b \ufffe \\",
)


def hostile_trace() -> Trace:
    """Every text field of the trace holds the attacks."""
    attack = "\n".join(ATTACKS)
    step = {
        "agent": attack[:200],
        "mode": ATTACKS[2],
        "text": attack,
        "reasoning": attack,
        "target": ATTACKS[1],
        "plan": ({"id": ATTACKS[0], "text": attack},),
        "plan_item": ATTACKS[0],
        "memory": ({"key": ATTACKS[0], "value": attack, "owner": ATTACKS[0]},),
        "environment": {ATTACKS[0]: attack},
        "intended": ({"path": ATTACKS[0], "value": ATTACKS[1]},),
        "tool_calls": ({"name": ATTACKS[0], "arguments": {ATTACKS[1]: attack}, "call_id": ATTACKS[0]},),
        "tool_outputs": ({"name": ATTACKS[0], "content": attack, "call_id": ATTACKS[0]},),
        "state": {
            "before_ts": 0,
            "after_ts": 1,
            "changes": ({"path": ATTACKS[0], "before": ATTACKS[1], "after": ATTACKS[2], "ts": 0},),
        },
    }
    return Trace(
        trace_id=ATTACKS[0],
        vehicle_id=ATTACKS[1],
        session_id=ATTACKS[6],
        task=attack,
        steps=tuple(steps(step, step, step)),
    )
