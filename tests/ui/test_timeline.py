"""The timeline of a run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.core.events import WorkflowEvent
from nerve.ui.step_periods import Period
from nerve.ui.time_axis import TimeAxis
from nerve.ui.timeline import Timeline, TimelineLayout, TimelineRow, TimeSpan

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = BEGAN + timedelta(days=10)
DAY = 86400.0


class History:
    """The events of one run, each at a time in seconds after the start."""

    def __init__(self, run_id: str = "run-1", at: float = 0, **start: Any) -> None:
        self.run_id, self.events = run_id, list[WorkflowEvent]()
        self.add(at, "workflow_started", "", workflow_id="ship", steps=start.pop("steps", []), **start)

    def __repr__(self) -> str:
        lines = [(event.timestamp - BEGAN, event.event_type, event.path, event.data) for event in self.events]
        return "\n".join(map(str, lines))

    def add(self, at: float, type: str, path: str, **data: Any) -> None:
        seq, timestamp = len(self.events) + 1, BEGAN + timedelta(seconds=at)
        self.events.append(WorkflowEvent(self.run_id, "ship", type, data, timestamp, seq=seq, path=path))

    def start(self, at: float, path: str, **data: Any) -> None:
        self.add(at, "node_started", path, node_id=path.rpartition("/")[2], **data)

    def end(self, at: float, path: str, success: bool = True, **data: Any) -> None:
        result = {"success": success, "output": "done" if success else None, "attributes": {}}
        kind = "node_completed" if success else "node_error"
        self.add(at, kind, path, node_id=path, success=success, duration_ms=1, result=result, **data)


def timeline_of(history: History, **children: History) -> Timeline:
    timeline = Timeline()
    for event in history.events:
        timeline.apply_event("", event)
    for name, child in children.items():
        for event in child.events:
            timeline.apply_event(f"/{name}", event)
    return timeline


def rows_of(history: History, **children: History) -> dict[str, TimelineRow]:
    return {row.id: row for row in timeline_of(history, **children).layout(LATER).rows}


def bars_of(row: TimelineRow) -> list[tuple[str, str, float, float | None]]:
    """Return the kind, the state and the times of the bars of a row, in seconds after the start."""
    zero = BEGAN.timestamp()
    return [
        (bar.kind, bar.state, round(bar.started - zero, 3), None if bar.ended is None else bar.ended - zero)
        for bar in row.bars
    ]


def test_each_step_has_a_row_below_the_run() -> None:
    history = History(steps=["plan", "build"])
    history.start(1, "/plan")
    history.end(3, "/plan")
    history.add(4, "workflow_completed", "", result=None)
    layout = timeline_of(history).layout(LATER)
    assert [(row.id, row.parent_id, row.depth, row.state) for row in layout.rows] == [
        ("/", None, 0, "completed"),
        ("/plan", "/", 1, "completed"),
        ("/build", "/", 1, "completed"),
    ]
    plan = layout.rows[1]
    assert (plan.x, plan.width) == (0.25, 0.5)
    assert layout.rows[2].bars == ()


def test_the_attempts_of_a_step_are_bars_with_the_delay_between_them() -> None:
    history = History()
    history.start(0, "/fetch")
    history.add(2, "node_retrying", "/fetch", node_id="fetch", attempt=1, delay=3.0, error="offline")
    history.end(9, "/fetch")
    row = rows_of(history)["/fetch"]
    assert bars_of(row) == [
        ("run", "failed", 0, 2),
        ("retry", "waiting", 2, 5),
        ("run", "completed", 5, 9),
    ]
    assert [bar.attempt for bar in row.bars] == [1, 2, 2]
    assert row.bars[0].label == "offline"


def three_steps() -> Timeline:
    """Return the timeline of a run with a step in each ten seconds, the second of which is a child run."""
    history, child = History(), History("run-2", at=11)
    for number, path in enumerate(("/plan", "/build", "/test")):
        history.start(10 * number, path, **({"child": "run-2"} if path == "/build" else {}))
        history.end(10 * number + 9, path)
    history.add(30, "workflow_completed", "", result=None)
    child.start(12, "/compile")
    child.end(18, "/compile")
    child.add(19, "workflow_completed", "", result=None)
    return timeline_of(history, build=child)


def test_a_collapsed_child_run_shows_none_of_its_steps() -> None:
    rows = {row.id: row for row in three_steps().layout(LATER).rows}
    assert list(rows) == ["/", "/plan", "/build", "/build/compile", "/test"]
    assert (rows["/build"].has_children, rows["/build"].is_collapsed) == (True, False)
    rows = {row.id: row for row in three_steps().layout(LATER, collapsed=["/build"]).rows}
    assert list(rows) == ["/", "/plan", "/build", "/test"]
    assert rows["/build"].is_collapsed


def test_a_part_of_the_time_has_its_own_rows_and_axis() -> None:
    layout = three_steps().layout(LATER, span=TimeSpan(10, 20))
    rows = {row.id: row for row in layout.rows}
    assert list(rows) == ["/", "/build", "/build/compile", "/test"]
    (bar,) = rows["/build/compile"].bars
    assert (round(bar.x, 3), round(bar.width, 3)) == (0.2, 0.6)
    assert next(tick.label for tick in layout.axis.ticks) == "10 s"  # since the start of the run
    after = three_steps().layout(LATER, span=TimeSpan(25))
    assert [row.id for row in after.rows] == ["/", "/test"]
    assert three_steps().layout(LATER, span=TimeSpan(500, 900)).rows[0].id == "/"


def test_a_step_that_is_cancelled_before_its_next_attempt_has_no_bar_for_it() -> None:
    history = History()
    history.start(0, "/fetch")
    history.add(2, "node_retrying", "/fetch", node_id="fetch", attempt=1, delay=30.0)
    history.add(4, "node_cancelled", "/fetch", node_id="fetch")
    assert bars_of(rows_of(history)["/fetch"]) == [("run", "failed", 0, 2), ("retry", "waiting", 2, 4)]


def test_an_attempt_that_a_crash_ended_is_followed_by_the_time_without_a_process() -> None:
    history = History()
    history.start(0, "/fetch")
    history.add(2, "output_chunk", "/fetch", stream="stdout", text="…")
    history.add(100, "node_retrying", "/fetch", node_id="fetch", attempt=1, recovered=True)
    history.end(103, "/fetch")
    assert bars_of(rows_of(history)["/fetch"]) == [
        ("run", "interrupted", 0, 2),
        ("down", "waiting", 2, 100),
        ("run", "completed", 100, 103),
    ]


def test_a_recovery_before_the_next_attempt_ends_the_delay() -> None:
    history = History()
    history.start(0, "/fetch")
    history.add(2, "node_retrying", "/fetch", node_id="fetch", attempt=1, delay=30.0)
    history.add(5, "node_retrying", "/fetch", node_id="fetch", attempt=2, recovered=True)
    history.end(6, "/fetch")
    assert bars_of(rows_of(history)["/fetch"]) == [
        ("run", "failed", 0, 2),
        ("retry", "waiting", 2, 5),
        ("run", "completed", 5, 6),
    ]


def test_a_wait_inside_an_agent_divides_its_attempt() -> None:
    history = History()
    history.start(0, "/agent")
    history.add(2, "gate_waiting", "/agent/permission", gate_id="g", prompt="May I?", choices=None)
    history.add(7, "gate_answered", "/agent/permission", gate_id="g", answer="yes")
    history.end(9, "/agent")
    row = rows_of(history)["/agent"]
    assert bars_of(row) == [
        ("run", "completed", 0, 2),
        ("gate", "completed", 2, 7),
        ("run", "completed", 7, 9),
    ]
    assert row.bars[1].label == "May I?"
    assert row.bars[1].is_wait


def test_a_wait_of_the_workflow_function_has_a_row_of_its_own() -> None:
    history = History()
    history.start(0, "/first")
    history.end(1, "/first")
    history.add(1, "timer_started", "/sleep", seconds=5, deadline=None)
    history.add(6, "timer_fired", "/sleep")
    history.start(6, "/second")
    history.end(7, "/second")
    history.add(7, "message_waiting", "/receive", channel="orders", deadline=None)
    rows = rows_of(history)
    assert list(rows) == ["/", "/first", "/sleep", "/second", "/receive"]
    assert bars_of(rows["/sleep"]) == [("timer", "completed", 1, 6)]
    assert bars_of(rows["/receive"]) == [("message", "waiting", 7, None)]
    assert rows["/receive"].kind == "wait"


def test_a_question_about_a_conflict_has_a_row_of_its_own() -> None:
    history = History()
    history.start(0, "/both/a")
    history.end(4, "/both/a")
    conflict = "/both/a~merge~conflict"
    history.add(5, "gate_waiting", conflict, prompt="It conflicts", node_id="merge", choices=["retry"])
    history.add(9, "gate_answered", conflict, answer="retry")
    rows = rows_of(history)
    assert bars_of(rows[conflict]) == [("gate", "completed", 5, 9)]
    assert [bar[2:] for bar in bars_of(rows["/both/a"])] == [(0, 4)]


def test_a_step_that_waits_in_a_queue_shows_it_before_it_starts() -> None:
    history = History()
    history.add(0, "queue_waiting", "/build~queue", queue="ci", key=None)
    assert bars_of(rows_of(history)["/build"]) == [("queue", "waiting", 0, None)]
    history.add(4, "queue_entered", "/build~queue", queue="ci", key=None)
    history.start(4, "/build")
    history.end(5, "/build")
    assert bars_of(rows_of(history)["/build"]) == [("queue", "completed", 0, 4), ("run", "completed", 4, 5)]


def test_a_timer_that_only_bounds_other_steps_is_not_shown() -> None:
    history = History()
    history.add(0, "timer_started", "/~timeout", seconds=5, deadline=None, guard=True)
    assert list(rows_of(history)) == ["/"]


def test_the_steps_of_a_child_run_are_below_the_call() -> None:
    history = History()
    history.start(0, "/deploy", child="run-2")
    child = History("run-2", 1)
    child.start(1, "/copy")
    child.end(4, "/copy")
    rows = rows_of(history, deploy=child)
    assert (rows["/deploy"].kind, rows["/deploy/copy"].parent_id) == ("child", "/deploy")
    assert (rows["/deploy/copy"].run_id, rows["/deploy/copy"].path) == ("run-2", "/copy")
    assert bars_of(rows["/deploy"]) == [("child", "running", 0, None)]


def test_tool_calls_are_rows_below_their_agent() -> None:
    history = History()
    history.start(0, "/agent")
    history.add(1, "tool_call", "/agent", name="Bash", input={"command": "ls"}, id="t1")
    history.add(3, "tool_call", "/agent", id="t1", status="failed", text="no")
    history.add(4, "tool_call", "/agent", name="Read", input={})
    history.add(6, "output_chunk", "/agent", stream="assistant", text="read")
    rows = rows_of(history)
    assert bars_of(rows["/agent#t1"]) == [("tool", "failed", 1, 3)]
    assert bars_of(rows["/agent#call 2"]) == [("tool", "completed", 4, 6)]
    assert (rows["/agent#t1"].name, rows["/agent#t1"].path) == ("Bash", "/agent")


def test_a_running_step_ends_at_the_right_edge() -> None:
    history = History()
    history.start(1, "/plan")
    layout = timeline_of(history).layout(BEGAN + timedelta(seconds=2))
    row = layout.rows[1]
    assert layout.is_running
    assert row.ended is None
    assert row.x + row.width == 1.0


def test_pauses_and_holds_are_bars_of_the_run() -> None:
    history = History()
    history.add(1, "workflow_paused", "")
    history.add(3, "workflow_resumed", "")
    history.add(4, "workflow_held", "", reason="budget", message="the budget is used")
    assert bars_of(rows_of(history)["/"]) == [
        ("control", "running", 0, 1),
        ("pause", "completed", 1, 3),
        ("control", "running", 3, 4),
        ("hold", "waiting", 4, None),
    ]


def test_the_end_of_the_run_ends_everything() -> None:
    history = History()
    history.start(0, "/plan")
    history.add(1, "signal_waiting", "/wait", label="go", key=None, deadline=None)
    history.add(3, "workflow_cancelled", "", reason="no")
    rows = rows_of(history)
    assert all(row.ended is not None for row in rows.values())
    assert bars_of(rows["/plan"]) == [("run", "cancelled", 0, 3)]


def test_rounds_that_the_workflow_announces_have_rows_with_ids_of_their_own() -> None:
    history = History()
    for at, number in enumerate((1, 2, 1)):
        history.add(at, "outer_round", "", round=number, max=2)
        path = "/dev" if at == 0 else f"/dev[{at + 1}]"
        history.start(at, path)
        history.end(at + 0.5, path)
    rows = rows_of(history)
    assert [row for row in rows if "round" in row] == ["/~round[1]", "/~round[2]", "/~round[3]"]
    assert (rows["/~round[1]"].name, rows["/~round[1]"].kind) == ("round 1/2", "round")
    assert rows["/dev[3]"].parent_id == "/~round[3]"


# -- idle time -----------------------------------------------------------------------------------------


def test_idle_time_is_folded_and_labelled() -> None:
    history = History()
    history.start(0, "/plan")
    history.end(10, "/plan")
    history.add(10, "gate_waiting", "/approve/answer", gate_id="g", prompt="ok?", choices=None, node_id="a")
    history.add(10 + 3 * DAY + 4 * 3600, "gate_answered", "/approve/answer", gate_id="g", answer="yes")
    history.start(10 + 3 * DAY + 4 * 3600, "/build")
    history.end(20 + 3 * DAY + 4 * 3600, "/build")
    layout = timeline_of(history).layout(LATER)
    [fold] = [part for part in layout.axis.folds if "3 d 4 h" in part.label]
    assert fold.label == "idle 3 d 4 h"
    rows = {row.id: row for row in layout.rows}
    assert rows["/plan"].width > 0.3
    assert rows["/build"].width > 0.3
    assert round(rows["/approve"].width, 9) == fold.width


def test_time_without_gaps_is_linear() -> None:
    history = History()
    for number in range(4):
        history.start(number, f"/s{number}")
        history.end(number + 1, f"/s{number}")
    history.add(4, "workflow_completed", "", result=None)
    layout = timeline_of(history).layout(LATER)
    assert layout.axis.folds == []
    assert [row.x for row in layout.rows[1:]] == [0, 0.25, 0.5, 0.75]


def test_the_axis_has_ticks_with_units() -> None:
    axis = TimeAxis.of(100.0, 700.0, [Period("run", 100.0, 700.0)])
    assert [tick.label for tick in axis.ticks] == [
        "0 s", "2 min", "4 min", "6 min", "8 min", "10 min",
    ]  # fmt: skip


# -- many items ----------------------------------------------------------------------------------------


def many_items(count: int, failed: int) -> History:
    history = History(steps=["fan"])
    for number in range(1, count + 1):
        path = "/fan/item" if number == 1 else f"/fan/item[{number}]"
        history.start(number, path)
        history.end(number + 0.5, path, success=number != failed)
    return history


def test_many_iterations_are_collapsed_into_a_group_that_shows_failures_and_the_newest() -> None:
    layout = timeline_of(many_items(500, failed=77)).layout(LATER)
    assert [row.id for row in layout.rows] == [
        "/", "/fan", "/fan/item[*]", "/fan/item[77]", "/fan/item[500]",
    ]  # fmt: skip
    group = layout.rows[2]
    assert (group.kind, group.count, group.is_collapsed) == ("group", 500, True)
    assert group.counts == {"completed": 499, "failed": 1}


def test_an_expanded_group_shows_all_items() -> None:
    layout = timeline_of(many_items(40, failed=0)).layout(LATER, {"/fan/item[*]"})
    assert len(layout.rows) == 3 + 40
    assert not layout.rows[2].is_collapsed


def test_the_cost_of_an_event_does_not_grow_with_the_number_of_items() -> None:
    def measure_seconds(count: int) -> float:
        events = many_items(count, failed=0).events
        timeline, began = Timeline(), time.process_time()
        for event in events:
            timeline.apply_event("", event)
        timeline.layout(LATER)
        return (time.process_time() - began) / count

    measure_seconds(100)
    small, large = min(measure_seconds(500) for _ in range(3)), measure_seconds(10_000)
    assert large < 4 * small


# -- laws ----------------------------------------------------------------------------------------------

PATHS = ("/a", "/b", "/b/c", "/b/c[2]", "/b/c/d", "/child")
STEPS = st.sampled_from(PATHS)
MOMENTS = st.floats(0, 3 * DAY).map(lambda seconds: round(seconds, 1)) | st.floats(0, 5)


@st.composite
def histories(draw: st.DrawFn, run_id: str = "run-1") -> History:
    history, at = History(run_id), 0.0
    for _ in range(draw(st.integers(0, 25))):
        at += draw(MOMENTS)
        path = draw(STEPS)
        match draw(st.integers(0, 12)):
            case 0 | 1 | 2:
                history.start(at, path, **({"child": "run-2"} if path == "/child" else {}))
            case 3 | 4:
                history.end(at, path, draw(st.booleans()))
            case 5:
                delay, recovered = draw(st.floats(0, 100)), draw(st.booleans())
                history.add(at, "node_retrying", path, attempt=1, delay=delay, recovered=recovered)
            case 6:
                history.add(at, "gate_waiting", f"{path}/ask", gate_id="g", prompt="?", choices=None)
            case 7:
                history.add(at, "gate_answered", f"{path}/ask", gate_id="g", answer="yes")
            case 8:
                history.add(at, "timer_started", draw(st.sampled_from(("/sleep", f"{path}/nap"))))
            case 9:
                history.add(at, "timer_fired", "/sleep")
            case 10:
                history.add(at, "tool_call", path, name="Bash", input={}, id=draw(st.sampled_from("xy")))
            case 11:
                history.add(at, "path_reset", path, because="again")
            case 12:
                history.add(at, draw(st.sampled_from(("workflow_paused", "workflow_resumed"))), "")
    if draw(st.booleans()):
        history.add(at + 1, "workflow_completed", "", result=None)
    return history


@given(histories(), histories("run-2"))
@settings(max_examples=300, deadline=None)
def test_a_row_lies_within_its_parent_and_its_bars_do_not_overlap(history: History, child: History) -> None:
    layout = timeline_of(history, child=child).layout(LATER + timedelta(days=100))
    rows = {row.id: row for row in layout.rows}
    assert len(rows) == len(layout.rows)
    for row in layout.rows:
        assert 0 <= row.x <= row.x + row.width <= 1 + 1e-9
        for before, after in zip(row.bars, row.bars[1:], strict=False):
            assert before.ended is not None
            assert before.ended <= after.started
        if row.parent_id is None or row.started is None:
            continue
        parent = rows[row.parent_id]
        assert parent.started is not None
        assert parent.started <= row.started
        assert parent.x <= row.x + 1e-9
        assert row.x + row.width <= parent.x + parent.width + 1e-9


@given(histories(), st.lists(st.floats(-DAY, 100 * DAY), min_size=2, max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_later_time_never_has_a_smaller_position(history: History, seconds: list[float]) -> None:
    axis = timeline_of(history).layout(LATER).axis
    times = sorted(BEGAN.timestamp() + each for each in seconds)
    positions = [axis.position(at) for at in times]
    assert positions == sorted(positions)
    assert abs(sum(part.width for part in axis.parts) - 1) < 1e-9
    assert (axis.position(axis.started), round(axis.position(axis.ended), 9)) == (0, 1)


@given(histories(), histories("run-2"), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_the_order_in_which_events_of_different_runs_arrive_does_not_matter(
    history: History, child: History, random: Any
) -> None:
    at_once = timeline_of(history, child=child)
    live, queues = Timeline(), {"": history.events[:], "/child": child.events[:]}
    last: TimelineLayout | None = None
    while any(queues.values()):
        prefix = "" if not live.tree.branches else random.choice([each for each in queues if queues[each]])
        live.apply_event(prefix, queues[prefix].pop(0))
        last = live.layout(LATER)
    assert last == at_once.layout(LATER)
