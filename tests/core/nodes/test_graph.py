"""Graph: steps start when their dependencies have ended."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.nodes.support import event_data, execute_node, execute_with_events, function_node, run_node
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.cycles import find_cycle
from nerve.core.nodes import Graph, MockNode, Node, Result
from nerve.core.nodes.control import LoopNode, MapNode, ParallelNode, WhileNode
from nerve.errors import WorkflowFailed


@pytest.mark.requirement("S1-27")
async def test_a_graph_of_one_step_has_its_output_and_attributes(session: Session) -> None:
    graph = Graph(id="test", session=session)
    graph.add_step(LoopNode("loop3", session, MockNode(), times=3), step_id="loop")
    result = await graph.execute(ExecutionContext(session, "in"))
    assert result["attributes"]["iterations"] == 3
    assert result["attributes"]["steps"] == {"loop": {"success": True, "output": "in"}}


@pytest.mark.requirement("S1-27")
def test_steps_are_added_by_position_or_keyword_and_listed_by_id(session: Session) -> None:
    node = MockNode("n", session)
    graph = Graph("g", session).add_step(node, "first").add_step(node, step_id="second", depends_on=["first"])
    graph.add_step_ref("n", "third", depends_on=["second"], input_fn=lambda up: up["second"])
    assert graph.steps == ["first", "second", "third"]
    assert all(graph._steps[name].node is node for name in graph.steps)


@pytest.mark.requirement("S1-27")
async def test_a_reference_is_looked_up_when_the_graph_is_executed(session: Session) -> None:
    graph = Graph("g", session).add_step_ref("late")
    MockNode("late", session, ["here"])
    assert (await execute_node(graph))["output"] == "here"


@pytest.mark.requirement("S1-27")
async def test_a_reference_may_name_a_graph(session: Session) -> None:
    Graph("inner", session).add_step(MockNode("n", session, ["deep"]))
    assert (await execute_node(Graph("outer", session).add_step_ref("inner")))["output"] == "deep"


async def test_a_chain_runs_in_sequence(session: Session) -> None:
    nodes = [function_node(session, name, lambda text, name=name: f"{name}({text})") for name in "abc"]
    assert (await execute_node(Graph("g", session).chain(*nodes), "x"))["output"] == "c(b(a(x)))"


async def test_several_final_steps_each_contribute_an_output(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("a", session, [1])).add_step(MockNode("b", session, [2]))
    result = await execute_node(graph)
    assert (result["output"], list(result["attributes"])) == ({"a": 1, "b": 2}, ["steps"])


async def test_a_graph_without_steps_returns_its_input(session: Session) -> None:
    result = await execute_node(Graph("g", session), "in")
    assert result == {"success": True, "output": "in", "attributes": {"steps": {}}}


async def test_ready_steps_run_concurrently(session: Session) -> None:
    meeting = asyncio.Barrier(3)

    async def meet(_: ExecutionContext) -> None:
        await meeting.wait()

    graph = Graph("g", session)
    for name in "abc":
        graph.add_step(FunctionNode(name, session, meet))
    assert (await execute_node(graph))["success"]


async def test_a_step_starts_as_soon_as_its_own_dependencies_end(session: Session) -> None:
    seen = asyncio.Event()

    async def slow(_: ExecutionContext) -> None:
        await seen.wait()

    async def after_quick(_: ExecutionContext) -> None:
        seen.set()

    graph = Graph("g", session).add_step(FunctionNode("slow", session, slow))
    graph.add_step(MockNode("quick", session))
    graph.add_step(FunctionNode("after", session, after_quick), depends_on=["quick"])
    assert (await execute_node(graph))["success"]


async def test_the_failure_of_one_branch_does_not_cancel_the_others(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("bad", session, [OSError("gone")]))
    graph.add_step(MockNode("good", session, ["fine"]))
    graph.add_step(MockNode("after_good", session), depends_on=["good"])
    graph.add_step(MockNode("after_bad", session), depends_on=["bad"])
    result = await execute_node(graph)
    assert (result["success"], result["error"]) == (False, "step 'bad' failed: gone")
    assert result.get("output") == {"after_good": "fine", "after_bad": None}
    assert session.nodes["after_bad"].calls == []


async def test_the_census_of_a_failed_graph_names_failed_and_skipped_steps(session: Session) -> None:
    graph = Graph("g", session).chain(
        MockNode("bad", session, [OSError("gone")]), MockNode("next", session), MockNode("last", session)
    )
    attributes = (await execute_node(graph))["attributes"]
    assert attributes["census"]["not_ok"] == {"failed": ["bad"], "skipped": ["next", "last"]}
    assert attributes["steps"]["next"]["skipped"] == "step 'bad' failed"


async def test_a_failed_step_without_a_handler_fails_the_run(session: Session) -> None:
    run = await run_node(session, Graph("g", session).add_step(MockNode("bad", session, [OSError("gone")])))
    with pytest.raises(WorkflowFailed, match="step 'bad' failed: gone"):
        await run.wait()
    assert event_data(run.events, "step_failed")[0]["error_type"] == "OSError"


@pytest.mark.requirement("S1-31")
async def test_steps_have_their_own_events_with_durations(session: Session) -> None:
    _, events = await execute_with_events(Graph("g", session).add_step(MockNode("n", session), "first"))
    assert [(event.event_type, event.path) for event in events] == [
        ("step_started", "/first"),
        ("step_completed", "/first"),
    ]
    assert events[1].data["duration_ms"] >= 0
    assert (events[1].data["step_id"], events[1].data["node_id"]) == ("first", "n")


async def test_an_input_fn_that_raises_fails_its_step_and_is_recorded(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("n", session), "first", input_fn=lambda up: up["nothing"])
    run = await run_node(session, graph)
    with pytest.raises(WorkflowFailed, match="step 'first' failed: input_fn raised: 'nothing'"):
        await run.wait()
    assert run.view.nodes["/first"].state == "failed"
    assert session.nodes["n"].calls == []


def test_an_unknown_dependency_is_named_with_a_suggestion(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("fetch", session))
    graph.add_step(MockNode("show", session), depends_on=["fecth"])
    expected = r"Step 'show' of graph 'g' depends on 'fecth', which is not a step\. Did you mean 'fetch'"
    with pytest.raises(ValueError, match=expected):
        session.register_workflow(graph)


async def test_an_unknown_reference_is_reported_before_anything_runs(session: Session) -> None:
    first = MockNode("first", session)
    graph = Graph("g", session).add_step(first).add_step_ref("fist", "second", depends_on=["first"])
    with pytest.raises(ValueError, match=r"Step 'second' refers to node 'fist'.*Did you mean 'first'"):
        await execute_node(graph)
    assert first.calls == []


@pytest.mark.parametrize("wrap", ["loop", "map", "graph"])
async def test_a_nested_unknown_reference_is_reported_before_anything_runs(
    session: Session, wrap: str
) -> None:
    bad = Graph("bad", session).add_step_ref("missing")
    outer = {
        "loop": lambda: LoopNode("x", session, bad, times=1),
        "map": lambda: MapNode("x", session, bad),
        "graph": lambda: Graph("x", session).add_step(bad),
    }[wrap]()
    first = MockNode("first", session)
    with pytest.raises(ValueError, match="refers to node 'missing'"):
        session.register_workflow(Graph("g", session).chain(first, outer))


async def test_a_cycle_is_reported_before_anything_runs(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("free", session))
    graph.add_step(MockNode("a", session), depends_on=["b"]).add_step(
        MockNode("b", session), depends_on=["a"]
    )
    with pytest.raises(ValueError, match=r"Graph 'g' has a cycle: (a -> b -> a|b -> a -> b)\. Use a loop"):
        await execute_node(graph)
    assert session.nodes["free"].calls == []


@pytest.mark.parametrize("around", [True, False])
async def test_a_graph_that_contains_itself_is_rejected(session: Session, around: bool) -> None:
    graph = Graph("g", session)
    graph.add_step(WhileNode("w", session, lambda _: True, graph) if around else graph, "again")
    with pytest.raises(ValueError, match=r"'g' contains itself: g -> (w -> )?g"):
        session.register_workflow(graph)


def test_duplicate_step_ids_are_rejected(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("n", session))
    with pytest.raises(ValueError, match="Graph 'g' already has a step 'n'"):
        graph.add_step_ref("n")
    with pytest.raises(ValueError, match="A step of graph 'g' needs a step_id"):
        graph.add_step(MockNode())


def test_a_string_as_depends_on_is_rejected(session: Session) -> None:
    with pytest.raises(
        ValueError, match="depends_on of step 'n' must be a list of step ids, got 'abc' of type"
    ):
        Graph("g", session).add_step(MockNode("n", session), depends_on="abc")


@pytest.mark.requirement("S1-28")
def test_a_registered_graph_is_a_workflow_of_the_same_name(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("n", session))
    workflow = session.register_workflow(graph)
    assert session.graphs["g"] is graph
    assert session.get_workflow("g") is workflow is session.workflows["g"]
    assert session.list_workflows() == ["g"]


names = st.sampled_from("abcdef")
graphs = st.dictionaries(names, st.lists(names, max_size=4)).map(
    lambda graph: {name: [dep for dep in deps if dep in graph] for name, deps in graph.items()}
)


def reachable(graph: dict[str, list[str]], start: str) -> set[str]:
    found: set[str] = set()
    edge = list(graph[start])
    while edge:
        name = edge.pop()
        if name not in found:
            found.add(name)
            edge += graph[name]
    return found


@given(graphs)
def test_find_cycle_finds_names_that_reach_themselves(
    graph: dict[str, list[str]],
) -> None:
    cycle = find_cycle(graph)
    assert bool(cycle) == any(name in reachable(graph, name) for name in graph)
    assert all(before in graph[after] for before, after in pairwise(cycle))
    assert cycle[:1] == cycle[-1:]


@given(graphs)
async def test_in_any_graph_a_step_runs_after_its_dependencies(graph: dict[str, list[str]]) -> None:
    session, done = Session(), list[Any]()
    built = Graph("g", session)
    for name, deps in graph.items():
        earlier = [dep for dep in deps if dep < name]
        built.add_step(
            function_node(session, name, lambda _, name=name: done.append(name)), depends_on=earlier
        )
    await execute_node(built)
    assert sorted(done) == sorted(graph)
    assert all(done.index(dep) < done.index(name) for name in graph for dep in graph[name] if dep < name)


async def test_a_step_after_a_failed_one_is_shown_as_skipped(session):
    graph = Graph("g", session)
    graph.add_step(MockNode(responses=[ValueError("no")]), "bad").add_step(
        MockNode(), "next", depends_on=["bad"]
    )
    session.register_workflow(graph)
    run = await session.start("g")
    with pytest.raises(WorkflowFailed):
        await run.wait()
    assert {path: node.state for path, node in run.view.nodes.items()} == {
        "/bad": "failed",
        "/next": "skipped",
    }


class Plain(Node):
    """A node whose constructor does not call that of Node."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(self.word)


async def test_a_custom_node_needs_only_execute(session: Session) -> None:
    assert (await execute_node(Graph("g", session).add_step(Plain("hello"), "first"))).output == "hello"


async def test_a_repeated_dependency_counts_once(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("a", session))
    graph.add_step(MockNode("b", session), depends_on=["a", "a"])
    assert (await execute_node(graph, 1)).output == 1


@pytest.mark.parametrize("on_the_node", [True, False])
async def test_on_error_handles_an_input_fn_that_raises(session: Session, on_the_node: bool) -> None:
    skip: dict[str, Any] = {"on_error": "skip"}
    node = MockNode("n", session, **(skip if on_the_node else {}))
    graph = Graph("g", session).add_step(
        node, input_fn=lambda up: up["nothing"], **({} if on_the_node else skip)
    )
    result = await execute_node(graph)
    assert result.success
    assert result.attributes["skipped"] == "input_fn raised: 'nothing'"


async def test_a_policy_that_does_not_fit_a_referenced_node_is_rejected_before_anything_runs(
    session: Session,
) -> None:
    first = MockNode("first", session)
    graph = Graph("g", session).add_step(first).add_step_ref("later", effect="once")
    Graph("later", session).add_step(MockNode("n", session))
    with pytest.raises(
        ValueError, match="step 'later': 'later' is a control node and cannot have effect='once'"
    ):
        await execute_node(graph)
    with pytest.raises(
        ValueError, match="step 'later': 'later' is a control node and cannot have effect='once'"
    ):
        session.register_workflow(graph)
    assert first.calls == []


@pytest.mark.parametrize("around", [Graph, ParallelNode, MapNode])
async def test_a_graph_that_failed_inside_another_node_fails_it(session: Session, around: type) -> None:
    inner = Graph("inner", session)
    inner.chain(MockNode("bad", session, [OSError("gone")]), MockNode("next", session))
    outer: Graph | ParallelNode | MapNode
    if around is Graph:
        outer = Graph("outer", session).add_step(inner)
    else:
        outer = (
            MapNode("outer", session, inner)
            if around is MapNode
            else ParallelNode("outer", session, {"i": inner})
        )
    result = await execute_node(outer, 1)
    assert not result.success
    assert "gone" in result.error
    assert (result.attributes["census"]["failed"], result.attributes["census"]["skipped"]) == (1, 0)
    run = await run_node(session, outer, 1)
    with pytest.raises(WorkflowFailed, match="gone"):
        await run.wait()


async def test_a_failure_with_an_attribute_named_skipped_is_a_failure(session: Session) -> None:
    tests = {"success": False, "error": "2 tests failed", "attributes": {"skipped": 3}}
    node = MockNode("tests", session, [tests])
    assert (
        await execute_node(Graph("g", session).add_step(node))
    ).error == "step 'tests' failed: 2 tests failed"
    result = await execute_node(ParallelNode("p", session, {"a": node, "b": MockNode("fine", session)}))
    assert not result.success
    assert result.attributes["census"]["not_ok"] == {"failed": ["a"]}


async def test_a_success_with_a_count_named_skipped_is_a_success(session: Session) -> None:
    node = MockNode("tests", session, [{"success": True, "attributes": {"skipped": 3}}])
    result = await execute_node(ParallelNode("p", session, {"a": node}))
    assert result.attributes["census"]["not_ok"] == {}
