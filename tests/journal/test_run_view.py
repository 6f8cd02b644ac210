"""RunView: the state of a run, folded from its events."""

import asyncio
import json

import pytest
from hypothesis import given

from core.workflow.support import at_gate, counted, until
from journal.journals import journals
from nerve import FunctionNode, Graph, Retry, Session
from nerve.core.events import WorkflowEvent
from nerve.core.nodes.control import GateNode, LoopNode
from nerve.core.workflow import Workflow
from nerve.journal.events import RequestAbandoned, make_event
from nerve.journal.index import JournalIndex, read_row
from nerve.journal.run_view import RunViewBuilder, fold_events, read_view
from nerve.store.port import EventRow


def told(*facts):
    """Return events from (type, path, data)."""
    return [
        WorkflowEvent("r", "w", kind, data, seq=seq, path=path)
        for seq, (kind, path, data) in enumerate(facts, 1)
    ]


STARTED = ("workflow_started", "", {"run_id": "r", "workflow_id": "w"})


def node(path, **data):
    return ("node_started", path, {"node_id": path, **data})


def done(path, success=True, **data):
    return ("node_completed", path, {"node_id": path, "success": success, **data})


@pytest.mark.parametrize("end", ["cancelled", "failed", "completed"])
def test_the_end_of_a_run_ends_its_running_nodes(end):
    asked = ("gate_waiting", "/ask/answer", {"gate_id": "1", "prompt": "?"})
    events = told(
        STARTED, node("/loop", control=True), node("/loop/slow"), asked, (f"workflow_{end}", "", {})
    )
    view = fold_events(events)
    states = {path: view.nodes[path].state for path in ("/loop", "/loop/slow", "/ask")}
    assert states == {"/loop": "cancelled", "/loop/slow": "cancelled", "/ask": "cancelled"}
    assert view.nodes["/loop/slow"].ended_at == events[-1].timestamp


def test_a_restarted_node_has_no_end_time():
    view = fold_events(told(STARTED, node("/a"), done("/a", success=False), node("/a")))
    assert (view.nodes["/a"].state, view.nodes["/a"].seconds) == ("running", None)


def test_an_empty_view_is_pending():
    assert (fold_events([]).state, fold_events([]).tree, fold_events([]).gates) == ("pending", [], {})


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ([], "running"),
        ([("gate_waiting", "/gate", {"gate_id": "1", "prompt": "?"})], "waiting"),
        ([("timer_started", "/sleep", {"seconds": 1})], "waiting"),
        ([("timer_started", "/~timeout", {"seconds": 1, "guard": True})], "running"),
        ([("signal_waiting", "/go", {"label": "go"})], "waiting"),
        ([("gate_waiting", "/g", {"gate_id": "1"}), ("gate_answered", "/g", {"answer": 1})], "running"),
        ([("gate_waiting", "/g", {"gate_id": "1"}), ("gate_timeout", "/g", {})], "running"),
        ([node("/a"), ("workflow_paused", "", {})], "pausing"),
        ([node("/a"), ("workflow_paused", "", {}), done("/a")], "paused"),
        ([("workflow_paused", "", {}), ("workflow_resumed", "", {})], "running"),
        ([("workflow_held", "", {"reason": "budget"})], "held"),
        ([("workflow_held", "", {"reason": "budget"}), ("workflow_resumed", "", {})], "running"),
        ([("workflow_completed", "", {"result": 1})], "completed"),
        ([("workflow_failed", "", {"error": "no"})], "failed"),
        ([("workflow_cancelled", "", {"reason": "enough"})], "cancelled"),
    ],
)
def test_the_state_is_read_from_the_events(facts, state):
    assert fold_events(told(STARTED, *facts)).state == state


def test_the_end_of_a_run_sets_its_result_error_or_reason():
    assert fold_events(told(STARTED, ("workflow_completed", "", {"result": 1}))).result == 1
    assert fold_events(told(STARTED, ("workflow_failed", "", {"error": "no"}))).error == "no"
    assert fold_events(told(STARTED, ("workflow_cancelled", "", {"reason": "enough"}))).error == "enough"


def test_the_end_of_a_run_closes_its_gates():
    opened = ("gate_waiting", "/gate", {"gate_id": "1", "prompt": "?"})
    assert list(fold_events(told(STARTED, opened)).gates) == ["/gate"]
    assert fold_events(told(STARTED, opened, ("workflow_cancelled", "", {"reason": ""}))).gates == {}


def test_the_tree_follows_the_paths():
    view = fold_events(told(STARTED, node("/g", control=True), node("/g/a"), done("/g/a"), node("/g/b")))
    (graph,) = view.tree
    assert (graph.name, graph.is_control, graph.state) == ("g", True, "running")
    assert [(child.name, child.state) for child in graph.children] == [("a", "completed"), ("b", "running")]


@pytest.mark.requirement("S1-33")
def test_the_steps_of_a_graph_are_in_the_tree_before_they_begin():
    start = ("workflow_started", "", {"steps": ["init", "loop"]})
    assert [(n.name, n.state) for n in fold_events(told(start)).tree] == [
        ("init", "pending"),
        ("loop", "pending"),
    ]


def test_a_loop_shows_its_iteration_counted_from_one():
    iteration = ("loop_iteration", "/loop", {"loop_id": "loop", "iteration": 1, "max": 5})
    view = fold_events(told(STARTED, node("/loop", control=True), iteration))
    assert (view.nodes["/loop"].iteration, view.nodes["/loop"].max_iterations) == (2, 5)


def test_failures_are_counted_and_shown_at_their_nodes():
    view = fold_events(told(STARTED, node("/a"), done("/a", False, error="no"), node("/b"), done("/b")))
    assert (view.nodes["/a"].state, view.nodes["/a"].error) == ("failed", "no")
    assert (view.usage.steps, view.usage.errors) == (2, 1)


def test_a_cancelled_node_is_not_a_failure():
    view = fold_events(told(STARTED, node("/a"), ("node_cancelled", "/a", {"node_id": "a"})))
    assert (view.nodes["/a"].state, view.usage.errors) == ("cancelled", 0)


def test_usage_is_added_up_from_the_results_of_leaves_only():
    result = {"success": True, "output": 1, "attributes": {"usage": {"tokens": 5, "cost": 0.5}}}
    inner = [node("/g/a"), done("/g/a", result=result)]
    view = fold_events(told(STARTED, node("/g", control=True), *inner, done("/g", result=result)))
    assert (view.usage.tokens, view.usage.cost) == (5, 0.5)


def test_an_event_of_an_unknown_name_changes_nothing():
    view = fold_events(told(STARTED, ("progress", "", {"percent": 50}), ("workflow_changed", "", {})))
    assert (view.state, view.tree, view.last_seq) == ("running", [], 3)


@pytest.mark.parametrize("name", ["node_report", "step_by_step", "gate_note", "timer_set", "signal_sent"])
def test_a_user_event_with_a_similar_name_changes_nothing(name):
    facts = [STARTED, node("/a"), (name, "/a", {"x": 1}), (name, "", {}), done("/a")]
    view = fold_events(told(*facts))
    assert (view.state, view.nodes.keys(), view.nodes["/a"].state) == ("running", {"/a"}, "completed")
    assert (view.usage.errors, fold_events(told(*facts[:4])).nodes["/a"].state) == (0, "running")


ODD = [{"path": 5}, {"path": "/a"}, {"path": ["a"], "step_id": {}}, {"path": "", "step_id": "x"}]
ODD += [{"iteration": "x", "max": []}, {"iteration": 1.5}, {"message": {}}, {"thread": [1]}, {"models": 5}]


@pytest.mark.parametrize("data", ODD)
@pytest.mark.parametrize(
    "name", ["skipped", "loop_iteration", "log", "usage", "provider_limited", "output_chunk", "tool_call"]
)
def test_user_events_with_any_data_give_a_valid_view(name, data):
    view = fold_events(told(STARTED, node("/a"), (name, "/a", data), node("/b"), done("/a"), done("/b")))
    assert view.nodes.keys() == {"/a", "/b"}
    assert view.nodes["/a"].held is None
    assert isinstance(view.nodes["/a"].iteration, int | None)


def test_a_step_cannot_skip_steps_outside_of_itself():
    view = fold_events(
        told(STARTED, node("/a"), node("/b"), ("skipped", "/b", {"step_id": "a", "path": "/a"}))
    )
    assert view.nodes["/a"].state == "running"


async def test_the_fold_of_any_prefix_of_a_real_run_is_a_valid_view():
    session = Session("test")
    counted(session, "work")
    attempts = []

    async def flaky(context):
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("not yet")
        return "fine"

    FunctionNode("flaky", session, flaky, retry=Retry(attempts=3, delay=0.001))
    inner = LoopNode("loop", session, session.nodes["work"], times=2)
    graph = Graph("g", session).chain(session.nodes["flaky"], inner, GateNode("gate", session, "Continue?"))
    session.register_workflow(graph)
    run = await session.start("g", 1)
    await at_gate(run)
    assert run.view.state == run.state.value == "waiting"
    await run.answer("yes")
    await run.wait()
    states = [fold_events(run.events[:count]).state for count in range(len(run.events) + 1)]
    assert states[0] == "pending"
    assert states[-1] == "completed"
    assert set(states[1:-1]) == {"running", "waiting"}
    assert run.view.nodes["/flaky"].attempts == 3
    assert [n.state for n in run.view.tree] == ["completed"] * 3
    assert all(n.seconds is not None and n.seconds >= 0 for n in run.view.tree)


async def test_a_view_can_be_kept_up_to_date_event_by_event():
    session = Session("test")
    counted(session, "work")

    @session.workflow
    async def body(ctx):
        await asyncio.gather(ctx.run("work", 1), ctx.run("work", 2))

    builder = RunViewBuilder()
    run = await session.start("body", event_sink=builder.add_event)
    await run.wait()
    assert builder.view == run.view


async def test_a_thread_that_still_runs_after_its_timeout_is_shown():
    import threading

    session, go = Session("test"), threading.Event()
    FunctionNode("slow", session, lambda context: go.wait(10), timeout=0.01)

    @session.workflow
    async def body(ctx):
        try:
            await ctx.run("slow", None)
        except TimeoutError:
            return await ctx.gate("Continue?")

    run = await session.start("body")
    await at_gate(run)
    assert run.view.nodes["/slow"].thread_running
    go.set()
    await until(lambda: not run.view.nodes["/slow"].thread_running)
    await run.stop()


async def test_the_state_of_a_node_without_events_is_derived_from_its_parts():
    session = Session()
    FunctionNode("up", session, lambda context: str(context.input).upper())
    call = {"kind": "call", "target": "up", "id": "b"}
    loop = {"kind": "loop", "id": "again", "times": 2, "body": {"kind": "sequence", "steps": [call]}}
    gate = {"kind": "gate", "id": "ask"}
    body = {"kind": "sequence", "steps": [loop, gate, {"kind": "call", "target": "up", "id": "last"}]}
    session.load(json.dumps({"name": "flow", "body": body}))
    run = await session.start("flow", "x")
    await run.next_gate()
    assert [(node.name, node.state) for node in run.view.tree] == [
        ("again", "completed"),
        ("ask", "waiting"),
        ("last", "pending"),
    ]
    assert run.view.nodes["/again"].iteration == 2
    await run.answer("ok")
    await run.wait()
    assert {node.state for node in run.view.nodes.values()} == {"completed"}


async def test_a_gate_that_is_the_whole_run_is_shown_as_waiting():
    session = Session("test")
    Workflow("whole", session, body=GateNode("approve", session, "Go?"))
    for end in ("answered", "stopped"):
        run = await session.start("whole")
        await at_gate(run)
        assert [(node.path, node.state) for node in run.view.tree] == [("/approve", "waiting")]
        await (run.answer("yes") if end == "answered" else run.stop())
        await until(lambda run=run: run.is_complete)
        state = "completed" if end == "answered" else "cancelled"
        assert [(node.path, node.state) for node in run.view.tree] == [("/approve", state)]


def consistent(rows: list[EventRow]) -> list[EventRow]:
    """Return a journal in which what is abandoned is settled if it was open, as the engine records it."""
    index, kept = JournalIndex(), []
    for row in rows:
        is_abandoned = isinstance(read_row(row).event, RequestAbandoned)
        if not is_abandoned or (row.settles is not None) == (row.path in index.unsettled):
            kept.append(row)
            index.add([row])
    return kept


@given(journals().map(consistent))
def test_the_view_of_events_as_clients_get_them_is_the_view_of_the_journal(rows):
    assert fold_events(make_event("r", "w", row) for row in rows) == read_view("r", "w", rows)


@given(journals())
def test_the_usage_in_a_view_is_what_the_index_counts(rows):
    assert read_view("r", "w", rows).usage == JournalIndex(rows).usage


@given(journals())
def test_a_view_has_a_node_for_every_call_and_its_ancestors(rows):
    view = read_view("r", "w", rows)
    called = {row.path for row in rows if row.type in ("node_started", "step_started")}
    assert called <= view.nodes.keys()
    for path, node in view.nodes.items():
        parent = path.rpartition("/")[0]
        assert node in (view.nodes[parent].children if parent else view.tree)
