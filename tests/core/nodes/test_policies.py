"""Retry, timeout, on_error and effect, on steps, on nodes and in workflow functions."""

import asyncio
from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, one_step, run_node
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.nodes import Graph, MockNode, Node, Retry
from nerve.core.nodes.control import LoopNode, MapNode, ParallelNode
from nerve.errors import NodeFailed, WorkflowFailed

everywhere = pytest.mark.parametrize("in_a_run", [True, False])
placed = pytest.mark.parametrize("on_the_node", [True, False])


async def gone_through(session: Session, graph: Graph, in_a_run: bool) -> list[Any]:
    """Return the events of a graph, executed in a run or without one."""
    return (await run_node(session, graph)).events if in_a_run else (await execute_with_events(graph))[1]


def flaky(session: Session, failures: int, **policy: Any) -> MockNode:
    return MockNode("flaky", session, [OSError("gone")] * failures + ["fine"], **policy)


def never(session: Session, **policy: Any) -> FunctionNode:
    async def wait(_: ExecutionContext) -> None:
        await asyncio.Event().wait()

    return FunctionNode("never", session, wait, **policy)


def with_policy(session: Session, make: Any, on_the_node: bool, **policy: Any) -> Graph:
    """Return a graph of one step whose policy is set on the node or on the step."""
    graph = Graph("g", session)
    if on_the_node:
        return graph.add_step(make(session, **policy), "step")
    return graph.add_step(make(session), "step", **policy)


@everywhere
@placed
async def test_a_step_is_retried_with_growing_delays(
    session: Session, in_a_run: bool, on_the_node: bool
) -> None:
    retry = Retry(attempts=4, delay=0.001, factor=2, cap=0.003)
    graph = with_policy(session, lambda s, **p: flaky(s, 3, **p), on_the_node, retry=retry)
    events = await gone_through(session, graph, in_a_run)
    told = [
        (data["attempt"], data["attempts"], data["delay"]) for data in event_data(events, "node_retrying")
    ]
    assert told == [(1, 4, 0.001), (2, 4, 0.002), (3, 4, 0.003)]
    assert len(session.nodes["flaky"].calls) == 4
    assert event_data(events, "step_completed")[0]["success"] is True


@everywhere
async def test_when_all_attempts_fail_the_last_failure_is_the_result(
    session: Session, in_a_run: bool
) -> None:
    graph = Graph("g", session).add_step(flaky(session, 9), "step", retry=Retry(2, delay=0))
    events = await gone_through(session, graph, in_a_run)
    assert len(session.nodes["flaky"].calls) == 2
    assert event_data(events, "step_failed")[0]["error"] == "gone"


@everywhere
@pytest.mark.parametrize(
    ("on", "calls"), [(("OSError",), 2), (("KeyError",), 1), (lambda r: r["error"] == "gone", 2)]
)
async def test_only_the_listed_errors_are_retried(
    session: Session, in_a_run: bool, on: Any, calls: int
) -> None:
    graph = Graph("g", session).add_step(flaky(session, 1, retry=Retry(2, delay=0, on=on)))
    await gone_through(session, graph, in_a_run)
    assert len(session.nodes["flaky"].calls) == calls


def over_500(result: Any) -> bool:
    return bool(result.attributes["code"] > 500)


def ends_the_process(_: Any) -> bool:
    raise SystemExit(3)


REFUSED = {"success": False, "error": "card refused", "error_type": "Refused", "attributes": {"code": None}}


@everywhere
@pytest.mark.parametrize("on", [over_500, ends_the_process])
async def test_a_step_fails_and_names_the_function_when_retry_on_raises(
    session: Session, in_a_run: bool, on: Any
) -> None:
    graph = Graph("g", session).add_step(MockNode("pay", session, [REFUSED]), "step", retry=Retry(3, on=on))
    events = await gone_through(session, graph, in_a_run)
    [failed] = event_data(events, "step_failed")
    assert failed["error"].startswith(f"card refused; Retry.on, {on.__name__} (test_policies.py:")
    assert "raised " in failed["error"]
    assert failed["error_type"] == "Refused"
    assert len(session.nodes["pay"].calls) == 1


@everywhere
async def test_a_control_node_fails_when_retry_on_raises(session: Session, in_a_run: bool) -> None:
    inner = one_step(session, MockNode("pay", session, [REFUSED]), "inner")
    graph = Graph("g", session).add_step(inner, "step", retry=Retry(3, on=lambda result: 1 / 0 > 0))
    events = await gone_through(session, graph, in_a_run)
    assert "<lambda> (test_policies.py:" in event_data(events, "step_failed")[-1]["error"]


@everywhere
@placed
@pytest.mark.requirement("D1-6")
async def test_a_timeout_fails_the_step(session: Session, in_a_run: bool, on_the_node: bool) -> None:
    graph = with_policy(session, never, on_the_node, timeout=0.01)
    events = await gone_through(session, graph, in_a_run)
    [failed] = event_data(events, "step_failed")
    assert (failed["error"], failed["error_type"]) == ("timed out after 0.01 s", "TimeoutError")


@everywhere
async def test_a_timeout_of_zero_is_zero(session: Session, in_a_run: bool) -> None:
    events = await gone_through(session, Graph("g", session).add_step(never(session), timeout=0), in_a_run)
    assert event_data(events, "step_failed")[0]["error"] == "timed out after 0 s"


@everywhere
async def test_a_timeout_applies_to_each_attempt(session: Session, in_a_run: bool) -> None:
    policy = {"timeout": 0.01, "retry": Retry(3, delay=0, on=("TimeoutError",))}
    graph = Graph("g", session).add_step(never(session), "step", **policy)
    events = await gone_through(session, graph, in_a_run)
    assert [data["error_type"] for data in event_data(events, "node_retrying")] == ["TimeoutError"] * 2


@everywhere
@placed
async def test_an_idle_timeout_fails_a_silent_step(
    session: Session, in_a_run: bool, on_the_node: bool
) -> None:
    graph = with_policy(session, never, on_the_node, idle_timeout=0.01)
    events = await gone_through(session, graph, in_a_run)
    assert event_data(events, "step_failed")[0]["error"] == "silent for 0.01 s"


@everywhere
async def test_a_step_that_emits_events_is_not_idle(session: Session, in_a_run: bool) -> None:
    async def talk(context: ExecutionContext) -> str:
        for number in range(12):
            context.emit("progress", {"number": number})
            await asyncio.sleep(0.05)
        return "said"

    graph = Graph("g", session).add_step(FunctionNode("talk", session, talk), idle_timeout=0.5)
    events = await gone_through(session, graph, in_a_run)
    assert event_data(events, "step_completed")


async def test_outside_of_a_graph_a_timeout_emits_node_timeout(session: Session) -> None:
    _, events = await execute_with_events(LoopNode("l", session, never(session, timeout=0.01), times=1))
    [event] = event_data(events, "node_timeout")
    assert (event["timeout"], event["error"]) == (0.01, "timed out after 0.01 s")


@everywhere
@placed
async def test_on_error_skip_skips_a_failure(session: Session, in_a_run: bool, on_the_node: bool) -> None:
    graph = with_policy(session, lambda s, **p: flaky(s, 9, **p), on_the_node, on_error="skip")
    after = MockNode("after", session)
    graph.add_step(after, depends_on=["step"])
    await gone_through(session, graph, in_a_run)
    assert after.calls == [None]


async def test_a_skipped_failure_is_listed_in_the_steps(session: Session) -> None:
    result = await execute_node(one_step(session, flaky(session, 9, on_error="skip")))
    assert (result["success"], result["output"]) == (True, None)
    assert result["attributes"]["steps"]["step"]["skipped"] == "gone"


@everywhere
@placed
async def test_on_error_executes_a_fallback_node(session: Session, in_a_run: bool, on_the_node: bool) -> None:
    fallback = MockNode("fallback", session, ["saved"])
    graph = with_policy(session, lambda s, **p: flaky(s, 9, **p), on_the_node, on_error=fallback)
    after = MockNode("after", session)
    graph.add_step(after, depends_on=["step"])
    events = await gone_through(session, graph, in_a_run)
    assert after.calls == ["saved"]
    assert [e.path for e in events if e.data.get("node_id") == "fallback"] == ["/step[fallback]"] * 2


async def test_a_fallback_gets_the_input_of_the_step(session: Session) -> None:
    fallback = MockNode("fallback", session)
    await execute_node(one_step(session, flaky(session, 9, on_error=fallback)), "in")
    assert fallback.calls == ["in"]


async def test_a_fallback_is_not_executed_after_a_success(session: Session) -> None:
    fallback = MockNode("fallback", session)
    assert (await execute_node(one_step(session, flaky(session, 0, on_error=fallback))))["output"] == "fine"
    assert fallback.calls == []


async def test_a_fallback_that_fails_fails_the_step(session: Session) -> None:
    fallback = MockNode("fallback", session, [KeyError("worse")])
    result = await execute_node(one_step(session, flaky(session, 9, on_error=fallback)))
    assert (result["success"], result["error_type"]) == (False, "KeyError")


async def test_on_error_fail_overrides_the_policy_of_the_node(session: Session) -> None:
    graph = Graph("g", session).add_step(flaky(session, 9, on_error="skip"), on_error="fail")
    assert not (await execute_node(graph))["success"]


async def test_concurrent_fallbacks_have_their_own_paths(session: Session) -> None:
    body = MockNode("body", session, [OSError("gone")], on_error=MockNode("fallback", session))
    run = await run_node(session, MapNode("m", session, body), [1, 2])
    assert await run.wait() == [1, 2]
    paths = {event.path for event in run.events if event.data.get("node_id") == "fallback"}
    assert paths == {"/m[fallback]", "/m[2][fallback]"}


@everywhere
@placed
async def test_effect_once_is_accepted(session: Session, in_a_run: bool, on_the_node: bool) -> None:
    graph = with_policy(session, lambda s, **p: flaky(s, 0, **p), on_the_node, effect="once")
    events = await gone_through(session, graph, in_a_run)
    assert event_data(events, "step_completed")


@everywhere
async def test_a_control_node_is_retried_as_a_whole(session: Session, in_a_run: bool) -> None:
    loop = LoopNode("loop", session, flaky(session, 1), times=2, retry=Retry(2, delay=0))
    await gone_through(session, Graph("g", session).add_step(loop), in_a_run)
    assert len(session.nodes["flaky"].calls) == 3


@everywhere
async def test_the_timeout_of_a_control_node_applies_to_the_whole(session: Session, in_a_run: bool) -> None:
    pair = ParallelNode("pair", session, {"a": never(session), "b": MockNode()}, timeout=0.01)
    events = await gone_through(session, Graph("g", session).add_step(pair), in_a_run)
    assert event_data(events, "step_failed")[0]["error"] == "timed out after 0.01 s"


async def test_a_workflow_function_can_set_policies(session: Session) -> None:
    flaky(session, 2)

    @session.workflow
    async def flow(ctx: Any) -> Any:
        return (await ctx.run("flaky", retry=Retry(3, delay=0)))["output"]

    assert await (await session.start("flow")).wait() == "fine"


async def test_a_timeout_raises_in_a_workflow_function(session: Session) -> None:
    never(session)

    @session.workflow
    async def flow(ctx: Any) -> Any:
        with pytest.raises(TimeoutError, match=r"node 'never' timed out after 0\.01 s"):
            await ctx.run("never", timeout=0.01)
        return "went on"

    assert await (await session.start("flow")).wait() == "went on"


class Raising(Node):
    """A custom node that raises."""

    async def execute(self, context: ExecutionContext) -> Any:
        raise KeyError("lost")


@pytest.mark.requirement("D0-17")
async def test_a_node_that_raises_is_a_failed_step_of_a_graph(session: Session) -> None:
    run = await run_node(session, one_step(session, Raising("r", session)))
    with pytest.raises(WorkflowFailed, match="step 'step' failed: 'lost'"):
        await run.wait()


@pytest.mark.requirement("D0-17")
async def test_a_node_that_raises_raises_node_failed_in_a_workflow_function(session: Session) -> None:
    Raising("r", session)

    @session.workflow
    async def flow(ctx: Any) -> None:
        await ctx.run("r")

    run = await session.start("flow")
    with pytest.raises(NodeFailed, match="/r: KeyError: 'lost'"):
        await run.wait()
    assert event_data(run.events, "node_error")[0]["error_type"] == "KeyError"


async def gives_up(_: ExecutionContext) -> None:
    """A leaf that awaits its own task, which is cancelled."""
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


class GivesUp(Node):
    async def execute(self, context: ExecutionContext) -> Any:
        await gives_up(context)


def both(session: Session, own_kind: bool) -> tuple[Node, Node, list[Any]]:
    done: list[Any] = []

    async def slow(context: ExecutionContext) -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        done.append("slow")
        return "fine"

    bad = GivesUp("bad", session) if own_kind else FunctionNode("bad", session, gives_up)
    return bad, FunctionNode("good", session, slow), done


@everywhere
@pytest.mark.parametrize("own_kind", [True, False])
async def test_a_leaf_whose_own_task_is_cancelled_fails_alone(
    session: Session, in_a_run: bool, own_kind: bool
) -> None:
    bad, good, done = both(session, own_kind)
    graph = Graph("g", session)
    graph.add_step(ParallelNode("p", session, {"bad": bad, "good": good}, require=1))
    graph.add_step(bad, "again", retry=Retry(attempts=2, delay=0), on_error="skip")
    events = await gone_through(session, graph, in_a_run)
    assert done == ["slow"]
    assert len(event_data(events, "node_retrying")) == 1
    failed = [event.data["error_type"] for event in events if event.data.get("success") is False]
    assert failed == ["CancelledError", "CancelledError"]
    assert {data["success"] for data in event_data(events, "step_completed")} == {True}


async def test_a_function_without_a_run_whose_own_task_is_cancelled_fails(session: Session) -> None:
    result = await execute_node(FunctionNode("bad", session, gives_up))
    assert (result.success, result.error_type) == (False, "CancelledError")


@everywhere
@pytest.mark.parametrize("own_kind", [True, False])
async def test_a_cancelled_leaf_propagates_the_cancellation(
    session: Session, in_a_run: bool, own_kind: bool
) -> None:
    entered = asyncio.Event()

    async def wait(_: ExecutionContext) -> None:
        entered.set()
        await asyncio.Event().wait()

    class Waits(Node):
        async def execute(self, context: ExecutionContext) -> Any:
            await wait(context)

    node = Waits("n", session) if own_kind else FunctionNode("n", session, wait)
    graph = Graph("g", session).add_step(node, "n", on_error="skip", retry=Retry(attempts=3, delay=0))
    if in_a_run:
        session.register_workflow(graph)
        run = await session.start("g")
        await entered.wait()
        assert await run.stop() == ["/n"]
        assert run.state.value == "cancelled"
        return
    task = asyncio.create_task(execute_node(graph))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@everywhere
@pytest.mark.parametrize(
    ("bounds", "ran_out"),
    [({"timeout": 0}, 0), ({"timeout": 60, "idle_timeout": 0.02}, 0.02), ({"idle_timeout": 0}, 0)],
)
async def test_a_timed_out_step_reports_its_timeout(
    session: Session, in_a_run: bool, bounds: dict[str, float], ran_out: float
) -> None:
    graph = Graph("g", session).add_step(never(session), step_id="s", **bounds)
    [event] = event_data(await gone_through(session, graph, in_a_run), "step_failed")
    assert event["timeout"] == ran_out
