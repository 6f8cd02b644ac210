"""The graph of a run: nodes, groups and edges of every notation, with the states of the steps."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import nerve
from commander.core.events import Journal
from nerve.api import Api
from nerve.client import Client
from nerve.notations import open_document
from nerve.spec.checker import check_document
from nerve.spec.validation import plain_form
from nerve.testing import TestSession, test_session
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.graph_model import MAX_VISIBLE_NODES, RunGraph, encode_for_script
from nerve.ui.progress_tree import ProgressTree
from nerve.ui.run_graph import build_run_graph

EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "examples").glob("**/*")
    if path.suffix in (".json", ".yaml", ".lisp")
)


@pytest.fixture
async def session() -> AsyncIterator[TestSession]:
    async with test_session() as opened:
        yield opened


@pytest.fixture
def client(session: TestSession) -> Client:
    return Client(Api(session))


def bash(id: str, command: str = "true", **fields: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, **fields}


def sequence(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "sequence", "steps": list(steps), **fields}


async def load_tree(
    client: Client, run_id: str, tree: ProgressTree | None = None, prefix: str = ""
) -> ProgressTree:
    """Return the tree of a run and its child runs, from the events that a client returns."""
    tree = tree or ProgressTree()
    children = {}
    async for event in client.history(run_id):
        tree.apply_event(prefix, to_workflow_event(event))
        if child := event.data.get("child"):
            children[prefix + event.path] = child
    for path, child in children.items():
        await load_tree(client, child, tree, path)
    return tree


async def graph_after(client: Client, body: dict[str, Any], **start: Any) -> RunGraph:
    """Return the graph of a run of a workflow when the run has ended or waits."""
    await client.define(source=json.dumps({"name": "drawn", "body": body}), notation="json")
    run = await client.start(workflow="drawn", wait=True, **start)
    definition = await client.definition(run=run.run_id)
    return build_run_graph(definition.spec, await load_tree(client, run.run_id))


def graph_of(body: dict[str, Any]) -> RunGraph:
    return build_run_graph({"name": "drawn", "body": body})


def edges_of(graph: RunGraph) -> list[str]:
    return [" ".join(filter(None, (f"{edge.start} → {edge.end}", edge.label))) for edge in graph.edges]


def states_of(graph: RunGraph) -> dict[str, str]:
    return {id: " ".join(filter(None, (each.state, each.text))) for id, each in graph.states.items()}


# -- definitions -------------------------------------------------------------------------------


def test_a_sequence_is_a_chain_of_steps_with_their_kinds() -> None:
    graph = graph_of(
        sequence(bash("build"), {"kind": "prompt", "id": "write", "agent": "claude", "text": "Do"})
    )
    assert edges_of(graph) == ["/build → /write"]
    assert [node.to_dict() for node in graph.nodes.values()] == [
        {"id": "/build", "label": "build", "shape": "bash", "word": "shell command", "detail": "true"},
        {"id": "/write", "label": "write", "shape": "agent", "word": "agent", "detail": "claude Do"},
    ]


def test_steps_without_a_name_are_distinguished_by_their_number() -> None:
    graph = graph_of(sequence({"kind": "bash", "command": "one"}, {"kind": "bash", "command": "two"}))
    assert edges_of(graph) == ["/bash → /bash[2]"]


def test_dependencies_are_edges() -> None:
    steps = [bash("a"), bash("b"), bash("c", depends_on=["a", "b"])]
    graph = graph_of({"kind": "graph", "steps": steps})
    assert edges_of(graph) == ["/a → /c", "/b → /c"]
    assert graph.nodes["/c"].detail == "true"
    last = graph.list_items()[2]
    assert (last.node.label, last.node.word, last.node.detail, last.node.after, last.status.state) == (
        *("c", "shell command", "true", "a, b", "pending"),
    )


def test_a_decision_has_an_edge_to_each_alternative_and_to_what_follows() -> None:
    switch = {"kind": "switch", "id": "by", "key": "given", "cases": {"x": bash("first")}}
    branch = {
        "kind": "branch",
        "id": "if",
        "condition": "given",
        "then": bash("yes"),
        "otherwise": bash("no"),
    }
    assert edges_of(graph_of(sequence(branch, switch, bash("last")))) == [
        "/if → /if/then then",
        "/if → /if/else else",
        "/by → /by/x x",
        "/if/then → /by",
        "/if/else → /by",
        "/by/x → /last",
        "/by → /last default",
    ]


def test_loops_and_maps_are_collapsed_groups_and_parallel_branches_an_open_one() -> None:
    graph = graph_of(
        sequence(
            {"kind": "loop", "id": "again", "times": 3, "body": sequence(bash("a"), bash("b"))},
            {"kind": "map", "id": "each", "over": "given", "body": bash("one")},
            {"kind": "parallel", "id": "both", "branches": [bash("left"), bash("right")]},
        )
    )
    assert edges_of(graph) == ["/again/again/a → /again/again/b", "/again → /each", "/each → /both"]
    groups = {id: node.collapsed for id, node in graph.nodes.items() if node.is_group}
    assert groups == {"/again": True, "/each": True, "/both": False}
    assert graph.members["/both"] == ["/both/left", "/both/right"]


def test_a_failure_handler_is_reached_by_an_error_edge_and_leads_to_the_next_step() -> None:
    graph = graph_of(sequence(bash("a", on_error=bash("fix")), bash("b")))
    assert edges_of(graph) == ["/a → /a[fallback] on error", "/a → /b", "/a[fallback] → /b"]
    assert [edge.is_error for edge in graph.edges] == [True, False, False]


def test_a_machine_has_its_transitions_its_gotos_and_its_end() -> None:
    states = [
        {
            "name": "a",
            "body": bash("x"),
            "next": [{"when": "given.ok", "to": "c"}, {"to": "b"}],
            "on_error": "b",
        },
        {"name": "b", "body": sequence(bash("y"), {"kind": "goto", "state": "a"})},
        {"name": "c", "terminal": True},
    ]
    graph = graph_of({"kind": "machine", "start": "a", "states": states})
    assert edges_of(graph) == [
        "/b/y → /b/goto",
        "~start → /a",
        "/a → /c given.ok",
        "/a → /b",
        "/a → /b on error",
        "/b → ~end",
        "/c → ~end",
        "/b/goto → /a",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_of_every_notation_are_drawn(path: Path) -> None:
    checked = check_document(open_document(path, path.parent)[0])
    assert checked.spec is not None
    graph = build_run_graph(plain_form(checked.spec))
    assert len(graph.nodes) > 1
    assert graph.edges
    for edge in graph.edges:
        assert {edge.start, edge.end} <= graph.nodes.keys()


# -- states ------------------------------------------------------------------------------------


async def test_steps_of_a_definition_have_the_states_of_the_run(client: Client) -> None:
    choice = {"kind": "branch", "id": "if", "condition": "true", "then": bash("yes"), "otherwise": bash("no")}
    compute = {"kind": "transform", "id": "sum", "expression": "1"}
    gate = {"kind": "gate", "id": "ok", "prompt": "Continue?", "choices": ["yes", "no"]}
    graph = await graph_after(
        client, sequence(bash("a"), choice, sequence(compute, bash("b")), gate, bash("c"))
    )
    assert states_of(graph) == {
        "/a": "completed",
        "/if": "completed",
        "/if/then": "completed",
        "/sequence/sum": "completed",
        "/sequence/b": "completed",
        "/ok": "waiting",
        "/c": "pending",
    }
    assert (graph.state, graph.title) == ("waiting", "drawn")


async def test_steps_that_a_run_did_not_reach_are_skipped_at_its_end(client: Client) -> None:
    graph = await graph_after(
        client, sequence(bash("a", "false"), {"kind": "parallel", "branches": [bash("b")]})
    )
    assert states_of(graph) == {"/a": "failed", "/parallel": "skipped", "/parallel/b": "skipped"}


async def test_a_map_counts_its_items_and_opens_the_failed_one(client: Client) -> None:
    body = sequence(bash("get", "echo {{ item }}"), bash("test", "test {{ item }} != 2"))
    each = {"kind": "map", "id": "each", "over": "[1, 2, 3]", "body": body, "require": 2}
    graph = await graph_after(client, sequence(each))
    assert states_of(graph) == {
        "/each": "completed 2 of 3 done, 1 failed",
        "/each/each/get": "completed 3 of 3 done",
        "/each/each/test": "failed 2 of 3 done, 1 failed",
    }
    assert graph.states["/each/each/test"].path == "/each/each[2]/test"


def test_a_running_map_counts_the_items_that_have_not_started() -> None:
    journal = Journal()
    for n in range(3):
        path = f"/each/each{f'[{n + 1}]' if n else ''}"
        journal.add("map_item_start", "/each", node_id="each", index=n, total=10)
        journal.add("node_started", path, node_id="one")
    result = {"success": True, "output": "", "attributes": {}}
    journal.add("node_completed", "/each/each", node_id="one", success=True, result=result, duration_ms=1)
    each = {"kind": "map", "id": "each", "over": "given", "body": bash("one")}
    graph = build_run_graph({"name": "w", "body": sequence(each)}, tree_of(journal))
    assert states_of(graph)["/each"] == "running 1 of 10 done, 2 running"


def tree_of(journal: Journal) -> ProgressTree:
    tree = ProgressTree()
    for event in journal.events:
        tree.apply_event("", to_workflow_event(event))
    return tree


async def test_a_loop_shows_its_iteration_and_its_steps_how_often_they_ran(client: Client) -> None:
    loop = {"kind": "loop", "id": "again", "times": 3, "body": sequence(bash("a"))}
    graph = await graph_after(client, sequence(loop))
    assert states_of(graph) == {"/again": "completed iteration 3 of 3", "/again/again/a": "completed 3 times"}
    assert graph.states["/again/again/a"].path == "/again/again[3]/a"


async def test_a_workflow_that_is_one_map_is_a_group_without_a_path(client: Client) -> None:
    graph = await graph_after(client, {"kind": "map", "id": "each", "over": "[1, 2]", "body": bash("one")})
    assert states_of(graph) == {"/": "completed 2 done", "/each": "completed 2 of 2 done"}
    assert graph.states["/"].path == ""


async def test_a_handled_failure_shows_the_handler(client: Client) -> None:
    graph = await graph_after(client, sequence(bash("a", "false", on_error=bash("fix")), bash("b")))
    assert states_of(graph) == {"/a": "failed", "/a[fallback]": "completed", "/b": "completed"}


async def test_a_machine_that_a_later_step_has_followed_is_completed(client: Client) -> None:
    states = [
        {"name": "s", "body": bash("x"), "next": [{"to": "t"}]},
        {"name": "t", "body": sequence(bash("y")), "terminal": True},
    ]
    gate = {"kind": "gate", "id": "ok", "prompt": "Continue?"}
    graph = await graph_after(
        client, sequence({"kind": "machine", "id": "m", "start": "s", "states": states}, gate)
    )
    assert {id: state for id, state in states_of(graph).items() if id.startswith("/m")} == {
        "/m": "completed",
        "/m/s": "completed",
        "/m/t": "completed",
        "/m/t/y": "completed",
    }


async def test_a_child_workflow_is_a_group_with_the_steps_of_its_run(client: Client) -> None:
    child = {"name": "inner", "body": sequence(bash("x"), bash("y"))}
    await client.define(source=json.dumps(child), notation="json")
    graph = await graph_after(
        client, sequence({"kind": "workflow", "id": "call", "workflow": "inner"}, bash("b"))
    )
    assert edges_of(graph) == ["/call → /b", "/call/x → /call/y"]
    assert graph.nodes["/call"].to_dict() == {
        "id": "/call",
        "label": "call",
        "group": "child",
        "word": "child workflow",
        "detail": "inner",
        "collapsed": True,
    }
    status = graph.states["/call/x"]
    assert (status.state, status.path) == ("completed", "/x")
    assert status.run == (await client.runs(workflow="inner")).runs[0].run_id


# -- Python ------------------------------------------------------------------------------------


async def test_python_code_is_drawn_from_the_steps_that_happened(
    session: TestSession, client: Client
) -> None:
    @session.step
    async def fetch(n: int) -> int:
        await session.clock.sleep(1)
        return n

    @session.step
    async def add(numbers: list[int]) -> int:
        await session.clock.sleep(1)
        return sum(numbers)

    @session.workflow
    async def total(ctx: nerve.WorkflowContext) -> int:
        numbers = await asyncio.gather(*(fetch(n) for n in range(3)))
        result = await add(numbers)
        await ctx.gate("Publish?", choices=["yes", "no"])
        return result

    run = await client.start(workflow="total", wait=True)
    definition = await client.definition(run=run.run_id)
    graph = build_run_graph(definition.spec, await load_tree(client, run.run_id))
    assert [node.label for node in graph.nodes.values()][:2] == ["fetch", "add"]
    assert edges_of(graph)[0] == "/fetch → /add"
    assert states_of(graph)["/fetch"] == "completed 3 of 3 done"
    assert graph.state == "waiting"


def test_rounds_that_a_workflow_announces_are_one_group() -> None:
    journal = Journal()
    result = {"success": True, "output": "", "attributes": {}}
    for n, path in enumerate(("/dev", "/coach", "/coach[2]")):
        if n:
            journal.add("outer_round", "", round=n, max=3)
        journal.add("node_started", path, node_id="x")
        journal.add("node_completed", path, node_id="x", success=True, result=result, duration_ms=1)
    graph = build_run_graph(None, tree_of(journal))
    assert graph.members == {"": ["/dev", "/~rounds"], "/~rounds": ["/~rounds/coach"]}
    assert states_of(graph)["/~rounds/coach"] == "completed 2 of 2 done"
    assert states_of(graph)["/~rounds"] == "completed round 2/3"


# -- size and safety ---------------------------------------------------------------------------


def visible_count(graph: RunGraph) -> int:
    hidden = {id for id, node in graph.nodes.items() if node.collapsed}
    return sum(len(ids) for id, ids in graph.members.items() if id not in hidden)


def test_a_level_with_too_many_steps_is_divided_into_collapsed_parts() -> None:
    graph = graph_of(sequence(*(bash(f"s{n}") for n in range(1000))))
    assert graph.members[""] == [f"~part{n}" for n in range(1, 11)]
    assert graph.nodes["~part2"].label == "s100 … s199"
    assert graph.nodes["~part2"].detail == "100 steps"
    assert visible_count(graph) == 10


def test_groups_start_collapsed_when_the_graph_would_show_too_many_nodes() -> None:
    groups = [
        {"kind": "parallel", "id": f"p{n}", "branches": [bash(f"b{m}") for m in range(50)]} for n in range(10)
    ]
    graph = graph_of(sequence(*groups))
    assert [node.collapsed for node in graph.nodes.values() if node.is_group] == [False] * 5 + [True] * 5
    assert visible_count(graph) <= MAX_VISIBLE_NODES


def test_the_cost_of_a_graph_grows_with_its_steps() -> None:
    def cost(count: int) -> float:
        journal = Journal()
        for n in range(count):
            journal.add("node_started", f"/s{n}", node_id="s")
        tree = tree_of(journal)
        spec = {"name": "w", "body": sequence(*(bash(f"s{n}") for n in range(count)))}

        def measure() -> float:
            started = time.process_time()
            for source in (spec, None):
                encode_for_script(build_run_graph(source, tree).to_dict())
            return time.process_time() - started

        # The garbage of all tests of the process may be collected during one of them.
        return min(measure() for _ in range(3))

    cost(200)
    assert cost(8000) < 12 * max(cost(2000), 0.02)


def test_no_text_can_end_the_script_element_of_the_data() -> None:
    graph = graph_of(sequence(bash("a", "</script><script>alert(1)</script><!-- &amp;")))
    script = encode_for_script(graph.to_dict())
    assert not set("<>&") & set(script)
    assert json.loads(script) == graph.to_dict()
