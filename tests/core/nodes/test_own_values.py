"""A leaf gets a copy of its input."""

from typing import Any

import pytest

from core.nodes.support import execute_node, function_node, run_node
from core.workflow.support import at_gate, copy_store, within
from nerve import ExecutionContext, Graph, MockNode, Retry, Session, WorkflowContext
from nerve.core.nodes import FunctionNode, Node, Result
from nerve.core.nodes.control import MapNode, ParallelNode, ReduceNode

everywhere = pytest.mark.parametrize("in_a_run", [True, False])


async def output(session: Session, node: Node, input: Any, in_a_run: bool) -> Any:
    return (
        await (await run_node(session, node, input)).wait()
        if in_a_run
        else (await execute_node(node, input)).output
    )


def adding(session: Session, id: str) -> FunctionNode:
    """Return a leaf that changes its input list."""

    def add(given: Any) -> Any:
        given.append(id)
        return given

    return function_node(session, id, add)


@everywhere
async def test_branches_do_not_share_their_input(session: Session, in_a_run: bool) -> None:
    branches = {name: adding(session, name) for name in ("x", "y")}
    given: list[str] = []
    outputs = await output(session, ParallelNode("p", session, branches), given, in_a_run)
    assert outputs == {"x": ["x"], "y": ["y"]}
    assert given == []


@everywhere
async def test_steps_with_the_same_dependency_do_not_share_its_output(
    session: Session, in_a_run: bool
) -> None:
    graph = Graph("g", session).add_step(MockNode("load", session, [{"output": [1]}]), "load")
    graph.add_step(adding(session, "a"), depends_on=["load"])
    graph.add_step(adding(session, "b"), depends_on=["load"])
    assert await output(session, graph, None, in_a_run) == {"a": [1, "a"], "b": [1, "b"]}


@everywhere
async def test_identical_items_are_copied_for_each_call(session: Session, in_a_run: bool) -> None:
    item: list[Any] = []
    node = MapNode("m", session, adding(session, "a"), max_parallel=1)
    assert await output(session, node, [item, item], in_a_run) == [["a"], ["a"]]


@everywhere
async def test_a_second_attempt_gets_the_original_input(session: Session, in_a_run: bool) -> None:
    seen: list[Any] = []

    def fail(context: ExecutionContext) -> Any:
        seen.append((list(context.input), context.idempotency_key))
        context.input.append("seen")
        raise OSError

    node = FunctionNode("n", session, fail, retry=Retry(attempts=2, delay=0))
    graph = Graph("g", session).add_step(node, "n", on_error="skip")
    await output(session, graph, [1], in_a_run)
    assert [given for given, _ in seen] == [[1], [1]]
    assert len({key for _, key in seen}) == 1


@everywhere
async def test_a_copied_input_keeps_key_order_and_result_objects(session: Session, in_a_run: bool) -> None:
    graph = Graph("g", session)
    for name in ("z", "a"):
        graph.add_step(MockNode(name, session, [{"output": {"y": name, "b": [name]}}]), name)

    def look(given: dict[str, Result]) -> Any:
        assert given["z"].success
        return [list(given), list(given["z"].output), given["a"].output["b"]]

    graph.add_step(function_node(session, "look", look), depends_on=["z", "a"])
    assert await output(session, graph, None, in_a_run) == [["z", "a"], ["y", "b"], ["a"]]


async def test_without_a_run_inputs_that_are_not_json_are_passed_unchanged(session: Session) -> None:
    given = {"what": object()}
    node = MockNode("n", session, [lambda given: {"output": given["what"]}])
    assert (await execute_node(ParallelNode("p", session, {"n": node}), given)).output == {"n": given["what"]}


@everywhere
async def test_a_reduction_starts_from_the_initial_value_every_time(session: Session, in_a_run: bool) -> None:
    def collect(found: list[Any], item: Any) -> list[Any]:
        found.append(item)
        return found

    node = ReduceNode("r", session, collect, initial=[])
    assert await output(session, node, [1, 2], in_a_run) == [1, 2]
    assert (await execute_node(node, [3])).output == [3]


async def test_a_body_resumes_after_a_crash_with_the_same_values(file: Any, tmp_path: Any) -> None:
    def project(file: Any) -> Session:
        session = Session("test", file)

        @session.node
        async def count(context: ExecutionContext) -> int:
            context.input["n"] += 1
            return int(context.input["n"])

        @session.workflow
        async def counts(ctx: WorkflowContext) -> list[int]:
            data = {"n": 0}
            before = [(await ctx.run("count", data))["output"] for _ in range(2)]
            await ctx.gate("Go on?")
            return [*before, (await ctx.run("count", data))["output"]]

        return session

    async with project(file) as session:
        await at_gate(await session.start("counts"))
        copy = copy_store(file, tmp_path / "crashed")
    async with project(copy) as session:
        (run,) = await session.recover()
        await run.next_gate()
        await run.answer("yes")
        assert await within(run.wait()) == [1, 1, 1]
