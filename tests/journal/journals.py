"""Generated journals: events of all kinds at a few paths, in any order that the store accepts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nerve.core.json_codec import encode_json
from nerve.journal import events
from nerve.journal.events import KnownEvent
from nerve.store.port import EventRow

PATHS = ("/a", "/a/b", "/a/b/c", "/a~2", "/d", "/d/~timeout", "/d/ask", "/e[fallback]", "/e", "/with_changes")
usages = st.none() | st.fixed_dictionaries(
    {"turns": st.integers(0, 3)}, optional={"tokens": st.integers(0, 50), "cost": st.sampled_from([0.5, 1.0])}
)
step_limits = st.fixed_dictionaries({"tokens": st.integers(0, 99)})
limits = st.dictionaries(st.sampled_from(["steps", "tokens", "wall_time"]), st.integers(0, 99), max_size=2)
raised_limits = st.builds(
    lambda run, steps: {**run, **steps},
    limits,
    st.dictionaries(st.sampled_from(PATHS), step_limits, max_size=2),
)


def results(success: bool, usage: Any, more: str) -> str:
    attributes = {} if usage is None else {"usage": usage, "run_id": "r"}
    failure = {} if success else {"error": more, "error_type": "ValueError"}
    return encode_json({"success": success, "output": more, **failure, "attributes": attributes})


@st.composite
def call_ends(draw: st.DrawFn) -> KnownEvent:
    success = draw(st.booleans())
    result = results(
        success, draw(usages), draw(st.sampled_from(["x", '"usage"', '"success":false', "child"]))
    )
    if success:
        kind = draw(st.sampled_from([events.NodeCompleted, events.StepCompleted]))
        decided = draw(st.sampled_from([None, None, "skip"])) if kind is events.NodeCompleted else None
        return kind("n", True, result, None if decided else 1.5, decided=decided)
    kind = draw(
        st.sampled_from([events.NodeError, events.NodeTimeout, events.StepFailed, events.NodeCompleted])
    )
    why = draw(st.sampled_from(["ValueError", "Rejected", "ChildRejected", "TimeoutError"]))
    trace = draw(st.sampled_from([{}, {"location": "f.py:1 in g", "traceback": 'File "f.py"\n'}]))
    return kind("n", False, result, 1.0, error="e", error_type=why, timeout=2.0, **trace)


call_starts = st.builds(
    lambda kind, role, text: kind("n", "h", encode_json(text), **role),
    st.sampled_from([events.NodeStarted, events.StepStarted]),
    st.sampled_from([{}, {"is_control": True}, {"child": "c1"}, {"is_once": True}, {"step_id": "child"}]),
    st.sampled_from(["child", {"child": "x", "once": True}, '"guard":true', {"control": True}]),
)
wait_starts = st.sampled_from(
    [
        events.GateWaiting("g1", "Ship?", form={"properties": {"guard": True}}, hash="h"),
        events.GateWaiting("g2", "Ship?", ["yes"], hash="h"),
        events.TimerStarted(1.0, 5.0, hash="h"),
        events.TimerStarted(1.0, 5.0, guard=True, hash="h"),
        events.SignalWaiting(label="go", key="k", hash="h"),
    ]
)
wait_ends = st.sampled_from(
    [
        events.GateAnswered("g1", answer={"usage": 1, "success": False}, response=1, by="me"),
        events.GateTimeout("g1", timeout=1.0),
        events.GateTimeout("g1", timeout=0),
        events.TimerFired(),
        events.SignalReceived("go", "k", 1),
        events.SignalTimeout(1.0),
    ]
)
abandoned = st.builds(
    lambda kind, stopped, usage: kind(
        stopped=stopped, result=None if usage is None else {"attributes": {"usage": usage}}
    ),
    st.sampled_from([events.NodeCancelled, events.GateCancelled, events.TimerCancelled]),
    st.booleans(),
    usages,
)
step_events = st.one_of(
    st.builds(events.NodeRetrying, st.just("n"), st.integers(1, 3), st.booleans(), st.booleans()),
    st.builds(events.AgentThreadRecorded, st.just("t"), st.just("p"), usage=usages),
    st.builds(events.Steered, st.sampled_from(["faster", "stop"])),
    st.sampled_from([events.TimerMoved(left=1.0), events.TimerMoved(deadline=9.0)]),
    st.builds(events.ChildStopped, st.sampled_from(["c1", "c2"]), usages.map(lambda usage: usage or {})),
    st.sampled_from(
        [
            events.LoopIteration("l", 1, 3),
            events.LoopIteration(extra={"iteration": "x"}),
            events.StateEntered(state="s"),
            events.ClockRead("now"),
            events.PathReset("changed"),
            events.LogWritten("hello"),
        ]
    ),
)
run_events = st.one_of(
    st.sampled_from([events.RunPaused("r"), events.RunOnHold("budget", "m"), events.RunChanged("d2")]),
    st.builds(events.RunResumed, st.just("r"), st.none() | raised_limits.filter(bool), st.booleans()),
)


@st.composite
def journals(draw: st.DrawFn) -> list[EventRow]:
    """Draw the journal of a run, perhaps a fork, perhaps ended."""
    copied = draw(st.integers(0, 8))
    fork = {"run": "s", "copied": copied, "origins": ["s"], "unclear": ["/a"]} if copied else None
    raised = draw(st.none() | st.dictionaries(st.sampled_from(PATHS), step_limits, min_size=1, max_size=2))
    start = events.RunStarted(
        "r", "w", [], 1, {}, "default", "d1", "seed", draw(limits), forked_from=fork, raised=raised
    )
    rows = [EventRow(1, 10.0, start.type, "", None, start.encode())]
    at = 10.0
    kinds = (call_starts, call_ends(), wait_starts, wait_ends, abandoned, step_events, run_events)
    for number in range(2, draw(st.integers(2, 40))):
        kind = draw(st.sampled_from(range(len(kinds))))
        event = draw(kinds[kind])
        path = "" if kinds[kind] is run_events else draw(st.sampled_from(PATHS))
        does_settle = kind in (1, 3) or (kind == 4 and draw(st.booleans()))
        at += draw(st.sampled_from([0.0, 1.0, 2.5, -1.0]))
        rows.append(EventRow(number, at, event.type, path, path if does_settle else None, event.encode()))
    if draw(st.booleans()):
        end = draw(st.sampled_from(RUN_ENDS))
        rows.append(EventRow(len(rows) + 1, at, end.type, "", "/", end.encode()))
    return rows


RUN_ENDS: list[KnownEvent] = [
    events.RunCompleted("r", "1", 1.0),
    events.RunFailed("r", "e", "TimeoutError", 1.0),
    events.RunFailed("r", "e", "ValueError", 1.0),
    events.RunCancelled("r", "stopped", ["/a"]),
]
