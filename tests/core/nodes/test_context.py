"""ExecutionContext without a run: input, paths, events, children."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.nodes.support import execute_node, execute_with_events, run_node, until
from nerve import ExecutionContext, Session, WorkflowEvent
from nerve.core.nodes import ControlNode, Graph, MockNode, Node, Result
from nerve.core.nodes.context import escape_path_part, next_child_path
from nerve.core.nodes.control import LoopNode
from nerve.core.runtime import SignalWait, TimerWait


@pytest.mark.requirement("S1-29")
@pytest.mark.requirement("D1-12")
def test_it_has_the_fields_of_the_seed(session: Session) -> None:
    sink: list[WorkflowEvent] = []
    context = ExecutionContext(
        session=session, input=1, event_sink=sink.append, workflow_id="w", run_id="r", auto_approve=True
    )
    context.emit("progress", {"at": 1})
    [event] = sink
    assert (event.workflow_id, event.run_id, event.event_type, event.data) == (
        "w",
        "r",
        "progress",
        {"at": 1},
    )


@pytest.mark.requirement("S1-29")
def test_with_input_is_the_same_context_with_another_input(session: Session) -> None:
    context = ExecutionContext(session, "one", run_id="r")
    other = context.with_input("two")
    assert (context.input, other.input, other.run_id) == ("one", "two", "r")
    assert (context.next_path("n"), other.next_path("n")) == ("/n", "/n[2]")


@pytest.mark.requirement("S1-29")
def test_without_a_sink_emitting_is_silent(session: Session) -> None:
    ExecutionContext(session).emit("progress")


@pytest.mark.parametrize("name", ["workflow_completed", "node_started", "gate_answered"])
def test_a_reserved_event_name_gets_the_user_prefix(name: str) -> None:
    events: list[WorkflowEvent] = []
    ExecutionContext(event_sink=events.append).emit(name)
    assert [event.event_type for event in events] == [f"user:{name}"]


class Collecting:
    """A sink with an emit method."""

    def __init__(self) -> None:
        self.events: list[WorkflowEvent] = []

    def emit(self, event: WorkflowEvent) -> None:
        self.events.append(event)


class Slow(Collecting):
    """A sink that takes longer for the first event than for the others."""

    async def emit(self, event: WorkflowEvent) -> None:  # type: ignore[override]
        for _ in range(0 if self.events else 5):
            await asyncio.sleep(0)
        self.events.append(event)


@pytest.mark.requirement("C-10")
@pytest.mark.requirement("S1-32")
@pytest.mark.parametrize("sink", [Collecting(), Slow()])
async def test_a_sink_is_an_object_with_emit_sync_or_async(session: Session, sink: Collecting) -> None:
    await execute_node(LoopNode("l", session, MockNode(), times=3), event_sink=sink)
    await until(lambda: len(sink.events) == 9)
    assert [event.data["iteration"] for event in sink.events if event.event_type == "loop_iteration"] == [
        0,
        1,
        2,
    ]


async def test_flush_sinks_waits_for_a_slow_sink_without_a_run(session: Session) -> None:
    heard, let_through = list[str](), asyncio.Event()

    async def slow(event: WorkflowEvent) -> None:
        await let_through.wait()
        heard.append(event.event_type)

    context = ExecutionContext(session, event_sink=slow)
    await context.flush_sinks()
    await LoopNode("l", session, MockNode(), times=1).execute(context)
    assert heard == []
    let_through.set()
    await context.flush_sinks()
    assert heard == ["loop_iteration", "node_started", "node_completed"]


@pytest.mark.requirement("C-10")
async def test_a_sink_is_a_plain_callable(session: Session) -> None:
    _, events = await execute_with_events(LoopNode("l", session, MockNode(), times=1))
    assert any(e.event_type == "loop_iteration" for e in events)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failing_sink_is_logged_and_ignored(
    session: Session, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def failing(_: WorkflowEvent) -> None:
        raise OSError("sink is full")

    async def failing_later(event: WorkflowEvent) -> None:
        failing(event)

    sink = failing_later if is_async else failing
    with caplog.at_level(logging.ERROR, "nerve"):
        assert (await execute_node(LoopNode("l", session, MockNode(), times=1), 1, event_sink=sink))[
            "success"
        ]
        await until(lambda: len(caplog.records) == 3)
    assert "event sink failed" in caplog.text


async def test_a_context_without_a_run_has_a_clock_random_numbers_and_ids() -> None:
    context = ExecutionContext()
    assert abs((datetime.now(UTC) - context.now()).total_seconds()) < 5
    assert 0 <= context.random() < 1
    assert context.new_id() != context.new_id()


async def test_without_a_run_a_timer_works_and_a_signal_is_rejected() -> None:
    context = ExecutionContext()
    assert await context.wait(TimerWait("/t", 0)) is None
    with pytest.raises(RuntimeError, match="Waiting for a signal or a message requires a run"):
        await context.wait(SignalWait("/s", "label"))


class Twice(ControlNode):
    """A custom control node that makes two calls and awaits them in reverse order."""

    def __init__(self, session: Session, body: MockNode) -> None:
        super().__init__("twice", session)
        self.body = body

    async def execute(self, context: ExecutionContext) -> Result:
        first, second = context.call(self.body, 1), context.call(self.body, 2)
        later = await second
        return Result.ok([(await first)["output"], later["output"]])


async def test_the_path_of_a_call_is_assigned_when_it_is_made_not_when_it_is_awaited(
    session: Session,
) -> None:
    _, events = await execute_with_events(Twice(session, MockNode("n", session)))
    assert [event.path for event in events if event.event_type == "node_started"] == ["/n[2]", "/n"]


async def test_a_custom_control_node_works_in_a_graph(session: Session) -> None:
    graph = Graph("g", session).add_step(Twice(session, MockNode("n", session)))
    assert (await execute_node(graph))["output"] == [1, 2]


class Nesting(Node):
    """A leaf that executes another node itself."""

    async def execute(self, context: ExecutionContext) -> Result:
        return await context.call(MockNode("inner", responses=[lambda given: given + 1]), context.input)


async def test_nodes_that_a_leaf_executes_are_not_recorded(session: Session) -> None:
    run = await run_node(session, Graph("g", session).add_step(Nesting("leaf", session)), 1)
    assert await run.wait() == 2
    assert [event.event_type for event in run.events] == [
        "workflow_started",
        "step_started",
        "step_completed",
        "workflow_completed",
    ]


class Plain:
    """Not a Node, but it can be executed."""

    id = "plain"

    async def execute(self, context: ExecutionContext) -> dict[str, Any]:
        return {"success": True, "output": context.input}


async def test_any_object_with_execute_is_accepted_as_a_node(session: Session) -> None:
    plain: Any = Plain()
    broken = MockNode("broken", session, [OSError("gone")], on_error=plain)
    assert (await execute_node(Graph("g", session).chain(plain, broken), "in"))["output"] == "in"


@given(st.text(), st.text())
def test_two_names_never_share_a_path(one: str, other: str) -> None:
    assert (escape_path_part(one) == escape_path_part(other)) == (one == other)


@given(st.text(alphabet="/[]%25FB2 a", max_size=6), st.text(alphabet="/[]%25FB2 a", max_size=6))
def test_two_hostile_names_never_share_a_path(one: str, other: str) -> None:
    assert (escape_path_part(one) == escape_path_part(other)) == (one == other)
    assert "/" not in escape_path_part(one)
    assert "[" not in escape_path_part(one)


@given(st.lists(st.sampled_from(["a", "a[2]", "a%5B2]", "a/a", "b"]), max_size=12))
def test_every_path_is_assigned_once(names: list[str]) -> None:
    counts: dict[str, int] = {}
    paths = [next_child_path("", counts, name) for name in names]
    assert len(set(paths)) == len(paths)
