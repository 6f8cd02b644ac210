"""Every control node alone, in a graph, in another control node and in a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, function_node, one_step, run_node, until
from nerve import Session, WorkflowContext
from nerve.core.nodes import Graph, MockNode, Node, Result
from nerve.core.nodes.control import (
    BranchNode,
    GateNode,
    LoopNode,
    MachineNode,
    MapNode,
    ParallelNode,
    ReduceNode,
    State,
    SwitchNode,
    WhileNode,
)

Make = Callable[[Session], Node]


def inc(session: Session) -> Node:
    return function_node(session, "inc", lambda n: n + 1)


def relay(session: Session) -> Node:
    return MachineNode("x", session, {"a": State(inc(session), "b"), "b": State(MockNode())})


NODES: dict[str, tuple[Make, Any, str, int]] = {
    "while": (lambda s: WhileNode("x", s, lambda st: st.current_value < 3, inc(s)), 3, "loop_iteration", 3),
    "loop": (lambda s: LoopNode("x", s, inc(s), times=2), 2, "loop_iteration", 2),
    "branch": (lambda s: BranchNode("x", s, lambda n: n == 0, inc(s)), 1, "branch_taken", 1),
    "switch": (lambda s: SwitchNode("x", s, str, {"0": inc(s)}), 1, "branch_taken", 1),
    "map": (lambda s: MapNode("x", s, inc(s)), [1], "map_item_complete", 1),
    "reduce": (lambda s: ReduceNode("x", s, lambda acc, item: acc + item, 5), 5, "step_started", 1),
    "parallel": (lambda s: ParallelNode("x", s, {"a": inc(s)}), {"a": 1}, "node_completed", 1),
    "gate": (lambda s: GateNode("x", s, "?", auto_answer="yes"), "yes", "gate_answered", 1),
    "machine": (relay, 1, "state_entered", 2),
    "graph": (lambda s: Graph("x", s).chain(inc(s), MockNode("y", s)), 1, "step_completed", 3),
}
AROUND: dict[str, tuple[Callable[[Session, Node], Node], Callable[[Any], Any]]] = {
    "graph": (lambda s, node: one_step(s, node), lambda out: out),
    "while": (lambda s, node: WhileNode("w", s, lambda st: st.iteration < 1, node), lambda out: out),
    "loop": (lambda s, node: LoopNode("l", s, node, times=1), lambda out: out),
    "branch": (lambda s, node: BranchNode("b", s, lambda _: False, MockNode(), node), lambda out: out),
    "switch": (lambda s, node: SwitchNode("s", s, lambda _: "k", {}, default=node), lambda out: out),
    "map": (lambda s, node: MapNode("m", s, node), lambda out: [out]),
    "parallel": (lambda s, node: ParallelNode("p", s, {"k": node}), lambda out: {"k": out}),
    "machine": (lambda s, node: MachineNode("mm", s, {"only": State(node)}), lambda out: out),
}
every_node = pytest.mark.parametrize("name", NODES)


@every_node
@pytest.mark.requirement("S1-01")
async def test_it_runs_without_a_graph(session: Session, name: str) -> None:
    make, output, _, _ = NODES[name]
    result = await execute_node(make(session), 0)
    assert (result["success"], result["output"]) == (True, output)


@every_node
@pytest.mark.requirement("S1-01")
async def test_in_a_graph_its_attributes_become_those_of_the_graph(session: Session, name: str) -> None:
    make, output, _, _ = NODES[name]
    node = make(session)
    alone = (await execute_node(node, 0))["attributes"]
    result = await execute_node(one_step(session, node), 0)
    assert (result["success"], result["output"]) == (True, output)
    assert result["attributes"].keys() == alone.keys() | {"steps"}


@every_node
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.requirement("S1-01")
async def test_it_runs_in_another_control_node(session: Session, name: str, around: str) -> None:
    (make, output, _, _), (wrap, as_seen) = NODES[name], AROUND[around]
    result = await execute_node(wrap(session, make(session)), 0)
    assert (result["success"], result["output"]) == (True, as_seen(output))


@every_node
@pytest.mark.requirement("S1-01")
async def test_it_runs_in_a_run_with_its_events(session: Session, name: str) -> None:
    make, output, event, times = NODES[name]
    run = await run_node(session, one_step(session, make(session)), 0)
    assert await run.wait() == output
    assert len(event_data(run.events, event)) == times


@every_node
@pytest.mark.requirement("S1-01")
async def test_it_runs_as_its_own_workflow(session: Session, name: str) -> None:
    make, output, _, _ = NODES[name]
    assert await (await run_node(session, make(session), 0)).wait() == output


@every_node
@pytest.mark.requirement("S1-01")
async def test_it_runs_in_a_workflow_function(session: Session, name: str) -> None:
    make, output, _, _ = NODES[name]
    make(session)

    @session.workflow
    async def flow(ctx: Any) -> Any:
        return (await ctx.run("x", 0))["output"]

    assert await (await session.start("flow")).wait() == output


@pytest.mark.requirement("S1-01")
async def test_nested_loops_have_nested_paths(session: Session) -> None:
    inner = LoopNode("inner", session, inc(session), times=2)
    outer = LoopNode("outer", session, inner, times=2)
    run = await run_node(session, Graph("flow", session).add_step(outer, "go"), 0)
    assert await run.wait() == 4
    leaves = [e.path for e in run.events if e.data.get("node_id") == "inc" and e.event_type == "node_started"]
    assert leaves == [
        "/go/outer/inner",
        "/go/outer/inner[2]",
        "/go/outer[2]/inner",
        "/go/outer[2]/inner[2]",
    ]


def parallel_loops(session: Session) -> Node:
    loop = LoopNode("loop", session, inc(session), times=2, accumulate=True)
    return MapNode("map", session, ParallelNode("both", session, {"a": loop}))


def accumulated(result: Result) -> list[Any]:
    """Return the outputs of the loops, read through attributes that only Results have."""
    loops = [part.attributes["results"]["a"] for part in result.attributes["results"]]
    return [each.output for loop in loops for each in loop.output]


@pytest.mark.requirement("S1-18")
async def test_nested_results_are_result_objects(session: Session) -> None:
    assert accumulated(await execute_node(parallel_loops(session), [0, 5])) == [1, 2, 6, 7]


@pytest.mark.requirement("S1-18")
async def test_nested_results_are_result_objects_in_a_run_and_after_a_restart(tmp_path: Path) -> None:
    seen: list[list[Any]] = []

    async def body(ctx: WorkflowContext) -> None:
        seen.append(accumulated(await ctx.run("map", [0, 5])))
        await ctx.gate("Go on?")

    def opened() -> Session:
        session = Session("test", tmp_path / "nerve.db")
        parallel_loops(session)
        session.workflow(body)
        return session

    async with opened() as session:
        run = await session.start("body")
        await until(lambda: run.pending_gate)
    async with opened() as session:
        (recovered,) = await session.recover()
        await recovered.answer("yes")
        await recovered.wait()
    assert seen == [[1, 2, 6, 7]] * 2
