"""A Python function as a leaf: async on the loop, sync in a thread."""

import asyncio
import functools
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, function_node, run_node, until
from nerve import ExecutionContext, FunctionNode, Session, WorkflowEvent
from nerve.core.nodes import Graph, Result, Retry
from nerve.errors import WorkflowFailed


@pytest.mark.requirement("S0-71")
@pytest.mark.requirement("D0-14")
@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ({"output": 5}, {"success": True, "output": 5, "attributes": {}}),
        ({"success": True}, {"success": True, "output": None, "attributes": {}}),
        ({"output": 5, "attributes": {"a": 1}}, {"success": True, "output": 5, "attributes": {"a": 1}}),
        ({"done": True}, {"success": True, "output": {"done": True}, "attributes": {}}),
        ({"output": 5, "note": 1}, {"success": True, "output": {"output": 5, "note": 1}, "attributes": {}}),
        ({"error": "x"}, {"success": True, "output": {"error": "x"}, "attributes": {}}),
        ({}, {"success": True, "output": {}, "attributes": {}}),
        ("HELLO", {"success": True, "output": "HELLO", "attributes": {}}),
        (None, {"success": True, "output": None, "attributes": {}}),
    ],
)
async def test_a_dict_shaped_like_a_result_is_one_and_anything_else_is_the_output(
    session: Session, returned: Any, expected: dict[str, Any]
) -> None:
    assert await execute_node(FunctionNode(id="f", session=session, fn=lambda _: returned)) == expected


@pytest.mark.requirement("S0-71")
async def test_a_failed_result_has_the_error(session: Session) -> None:
    node = FunctionNode("f", session, lambda _: {"success": False, "error": "no", "output": 3})
    assert await execute_node(node) == {
        "success": False,
        "output": 3,
        "error": "no",
        "error_type": "Failed",
        "attributes": {},
    }


def raising(_: ExecutionContext) -> None:
    raise FileNotFoundError("no such file")


async def raising_async(context: ExecutionContext) -> None:
    raising(context)


@pytest.mark.parametrize("fn", [raising, raising_async])
async def test_an_exception_is_a_failed_result_with_its_type(session: Session, fn: Any) -> None:
    result = await execute_node(FunctionNode("f", session, fn))
    assert (result["success"], result["error"]) == (False, "no such file")
    assert result["error_type"] == "FileNotFoundError"


async def test_in_a_run_a_failed_function_is_recorded_as_completed_without_success(session: Session) -> None:
    FunctionNode("f", session, raising)

    @session.workflow
    async def flow(ctx: Any) -> Any:
        return (await ctx.run("f"))["error_type"]

    run = await session.start("flow")
    assert await run.wait() == "FileNotFoundError"
    assert event_data(run.events, "node_completed")[0]["success"] is False


class Odd(BaseException):
    """An exception that `except Exception` does not catch."""


ODD = [
    (SystemExit(1), "SystemExit: 1"),
    (SystemExit(), "SystemExit"),
    (Odd("out of line"), "Odd: out of line"),
    (BaseExceptionGroup("both", [Odd("x")]), "BaseExceptionGroup: both (1 sub-exception)"),
    (asyncio.CancelledError(), "CancelledError"),
]


def raises(error: BaseException, is_async: bool) -> Any:
    def leave(_: ExecutionContext) -> None:
        raise error

    async def leave_async(_: ExecutionContext) -> None:
        raise error

    return leave_async if is_async else leave


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(("error", "told"), ODD)
async def test_exceptions_that_would_break_the_event_loop_are_failed_results(
    session: Session, error: BaseException, told: str, is_async: bool
) -> None:
    result = await execute_node(FunctionNode("f", session, raises(error, is_async)))
    assert (result.success, result.error, result.error_type) == (False, told, type(error).__name__)


async def test_a_function_that_raises_stop_iteration_has_failed(session: Session) -> None:
    result = await execute_node(FunctionNode("f", session, raises(StopIteration("end"), is_async=False)))
    assert result.error == "the function raised StopIteration: end"


@pytest.mark.parametrize("is_async", [True, False])
async def test_system_exit_in_a_step_is_retried_and_does_not_affect_other_steps(
    session: Session, is_async: bool
) -> None:
    FunctionNode("f", session, raises(SystemExit(1), is_async))
    other = function_node(session, "other", lambda given: given)

    @session.workflow
    async def flow(ctx: Any) -> Any:
        left = ctx.run("f", retry=Retry(2, delay=0), on_error=other)
        return [each.output for each in await asyncio.gather(left, ctx.run("other", 2))]

    run = await session.start("flow", 1)
    assert await run.wait() == [None, 2]
    assert event_data(run.events, "node_retrying")[0]["error_type"] == "SystemExit"


INTERRUPTED = """
import asyncio
from nerve import Session

async def main():
    session = Session()

    @session.node
    {kind} f(context):
        raise KeyboardInterrupt

    @session.workflow
    async def flow(ctx):
        await ctx.run("f")

    await (await session.start("flow")).wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_keyboard_interrupt_ends_the_process(kind: str) -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED.format(kind=kind)], capture_output=True)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr.rstrip().endswith(b"KeyboardInterrupt")


class Adder:
    async def __call__(self, context: ExecutionContext) -> int:
        return int(context.input) + 1


async def add(amount: int, context: ExecutionContext) -> int:
    return int(context.input) + amount


@pytest.mark.parametrize("fn", [Adder(), functools.partial(add, 1), lambda context: add(1, context)])
async def test_a_returned_awaitable_is_awaited(session: Session, fn: Any) -> None:
    assert (await execute_node(FunctionNode("f", session, fn), 1))["output"] == 2


async def test_an_async_function_runs_on_the_loop_and_a_sync_one_in_a_daemon_thread(session: Session) -> None:
    async def where(_: ExecutionContext) -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await execute_node(FunctionNode("a", session, where)))["output"] is True
    node = FunctionNode("s", session, lambda _: threading.current_thread().daemon)
    assert (await execute_node(node))["output"] is True


async def test_a_sync_function_does_not_block_the_loop(session: Session) -> None:
    turned = threading.Event()
    waiting = asyncio.create_task(execute_node(FunctionNode("s", session, lambda _: turned.wait(10))))
    await asyncio.sleep(0)
    turned.set()
    assert (await waiting)["output"] is True


async def test_any_number_of_sync_functions_runs_concurrently(session: Session) -> None:
    meeting = threading.Barrier(40, timeout=10)
    node = FunctionNode("s", session, lambda _: meeting.wait() >= 0)
    results = await asyncio.gather(*(execute_node(node) for _ in range(40)))
    assert all(result["output"] is True for result in results)


async def test_an_idle_thread_is_reused(session: Session) -> None:
    node, before = FunctionNode("s", session, lambda _: None), threading.active_count()
    for _ in range(50):
        await execute_node(node)
    assert threading.active_count() - before < 10


class Stuck:
    """A sync function that hangs until it is released."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, context: ExecutionContext) -> str:
        self.entered.set()
        self.go.wait(10)
        context.emit("progress", {"late": True})
        return "late"


async def test_a_hanging_step_times_out_and_the_view_shows_the_running_thread(
    session: Session,
) -> None:
    stuck, release = Stuck(), asyncio.Event()

    async def after(_: ExecutionContext) -> None:
        await release.wait()

    graph = Graph("g", session).add_step(FunctionNode("s", session, stuck), timeout=0.01, on_error="skip")
    graph.add_step(FunctionNode("after", session, after), depends_on=["s"])
    session.register_workflow(graph)
    run = await session.start("g")
    await until(lambda: "/after" in run.view.nodes and run.view.nodes["/after"].state == "running")
    assert run.view.nodes["/s"].state == "failed"
    assert run.view.nodes["/s"].thread_running
    stuck.go.set()
    await until(lambda: not run.view.nodes["/s"].thread_running)
    release.set()
    await run.wait()
    assert event_data(run.events, "step_failed")[0]["error"] == "timed out after 0.01 s"
    assert len([event for event in run.events if event.path == "/s" and "result" in event.data]) == 1


async def test_stopping_a_run_does_not_wait_for_a_hanging_thread(session: Session) -> None:
    stuck = Stuck()
    session.register_workflow(Graph("g", session).add_step(FunctionNode("s", session, stuck)))
    run = await session.start("g")
    await until(stuck.entered.is_set)
    assert await asyncio.wait_for(run.stop(), 5) == ["/s"]
    await asyncio.wait_for(session.close(), 5)
    assert not stuck.go.is_set()
    stuck.go.set()


async def test_emit_from_the_thread_arrives_in_order_and_before_the_result(session: Session) -> None:
    def work(context: ExecutionContext) -> str:
        for number in range(20):
            context.emit("progress", {"number": number})
        return "done"

    run = await run_node(session, Graph("g", session).add_step(FunctionNode("s", session, work)))
    assert [data["number"] for data in event_data(run.events, "progress")] == list(range(20))
    assert [event.event_type for event in run.events][-3:-1] == ["progress", "step_completed"]


@pytest.mark.parametrize("made", [dict, Result])
@pytest.mark.parametrize("attributes", [[1], "text", 5])
async def test_attributes_that_are_not_a_dict_fail_the_step(
    session: Session, made: type[dict[str, Any]], attributes: Any
) -> None:
    node = FunctionNode("s", session, lambda _: made(success=True, output=1, attributes=attributes))
    graph = Graph("g", session).add_step(node)
    assert "attributes of a result must be a dict, got" in (await execute_node(graph)).error
    run = await run_node(session, graph)
    with pytest.raises(WorkflowFailed, match="attributes of a result must be a dict, got"):
        await run.wait()


async def test_a_result_of_user_code_is_used_as_it_is(session: Session) -> None:
    for given, error in [
        (Result(success=False, output=1, attributes={}), "failed"),
        (Result(success=0, output=1, attributes=None, error=OSError("gone")), "gone"),
    ]:
        node = FunctionNode(None, session, lambda _, given=given: given)
        expected = {"success": False, "output": 1, "error": error, "error_type": "Failed", "attributes": {}}
        assert await execute_node(node) == expected


class Unsaid(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


async def test_an_exception_whose_str_raises_is_a_failure(session: Session) -> None:
    def fn(_: Any) -> None:
        raise Unsaid

    result = await execute_node(FunctionNode("s", session, fn))
    assert (result.error_type, result.error) == (
        "Unsaid",
        "Unsaid, whose __str__ raised RuntimeError",
    )


async def test_an_event_has_a_snapshot_of_its_data(session: Session) -> None:
    def work(context: ExecutionContext) -> None:
        told: dict[str, Any] = {"numbers": []}
        for number in range(20):
            told["numbers"].append(number)
            context.emit("progress", told)

    async def aside(context: ExecutionContext) -> None:
        work(context)

    for fn in (work, aside):
        node, events = FunctionNode(fn.__name__, session, fn), list[WorkflowEvent]()
        assert (await execute_node(node, event_sink=events.append))["success"]
        await until(lambda events=events: len(events) == 20)
        graph = Graph(f"g-{fn.__name__}", session).add_step(node)
        for seen in (events, (await run_node(session, graph)).events):
            assert [len(data["numbers"]) for data in event_data(seen, "progress")] == list(range(1, 21))


@pytest.mark.parametrize("data", [5, [1], "text"])
async def test_the_data_of_an_event_must_be_a_dict(session: Session, data: Any) -> None:
    result = await execute_node(FunctionNode("s", session, lambda context: context.emit("log", data)))
    assert result.error.startswith("data of the event 'log' must be a dict, got ")


async def test_event_data_that_is_not_json_fails_the_step_in_a_thread_too(
    session: Session,
) -> None:
    FunctionNode("s", session, lambda context: context.emit("told", {"x": {1, 2}}))
    run = await session.start("s")
    with pytest.raises(WorkflowFailed, match="a value of type set at x cannot be encoded as JSON"):
        await run.wait()


async def test_without_a_run_emit_from_the_thread_reaches_the_sink_on_the_loop(session: Session) -> None:
    seen: list[tuple[str, bool]] = []

    async def sink(event: WorkflowEvent) -> None:
        seen.append((event.event_type, threading.current_thread() is threading.main_thread()))

    node = FunctionNode("s", session, lambda context: context.emit("progress", {}))
    assert (await execute_node(node, event_sink=sink))["success"]
    await until(lambda: seen)
    assert seen == [("progress", True)]


async def test_without_a_run_the_sink_is_notified_of_a_hanging_thread(session: Session) -> None:
    stuck, events = Stuck(), list[WorkflowEvent]()
    node = FunctionNode("s", session, stuck, timeout=0.01)
    context = ExecutionContext(session, event_sink=events.append)
    assert (await context.call(node, None))["error_type"] == "TimeoutError"
    assert [data["thread"] for data in event_data(events, "log")] == ["running"]
    stuck.go.set()
    await until(lambda: len(event_data(events, "log")) == 2)
    assert event_data(events, "log")[1]["thread"] == "ended"


async def test_a_reserved_event_name_of_a_function_gets_the_user_prefix(session: Session) -> None:
    node = FunctionNode("s", session, lambda context: context.emit("workflow_completed", {}))
    run = await run_node(session, node)
    await run.wait()
    assert "user:workflow_completed" in [event.event_type for event in run.events]


async def test_a_thread_of_an_earlier_attempt_does_not_disturb_the_next_attempt(session: Session) -> None:
    stuck = Stuck()
    attempts: list[int] = []

    def fn(context: ExecutionContext) -> Any:
        attempts.append(len(attempts))
        return stuck(context) if len(attempts) == 1 else "second"

    node = FunctionNode("s", session, fn, timeout=0.02, idle_timeout=5, retry=Retry(2, delay=0))
    result, events = await execute_with_events(Graph("g", session).add_step(node))
    assert result["output"] == "second"
    stuck.go.set()
    await until(lambda: event_data(events, "progress"))
