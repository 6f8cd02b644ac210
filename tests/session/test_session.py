"""Session: the names and runs of one project."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import at_gate, counted, until, within
from nerve import FunctionNode, Graph, MockNode, Session
from nerve.core.nodes.control import GateNode, WhileNode
from nerve.core.workflow import Workflow, WorkflowRun, WorkflowState
from nerve.errors import StoreError, StoreInUse
from nerve.store.memory import MemoryStore
from nerve.store.sqlite import SqliteStore


async def ask(ctx):
    return await ctx.gate("Continue?")


async def simple(ctx):
    return ctx.input


@pytest.mark.requirement("S0-55")
@pytest.mark.requirement("C-18")
async def test_a_session_has_a_name_and_is_in_memory_without_a_store(session):
    assert (Session().name, Session("mine").name, Session(name="test").name) == ("default", "mine", "test")
    session.workflow(simple)
    assert await (await session.start("simple", 1)).wait() == 1
    assert not session.engine.store.durable


@pytest.mark.requirement("C-18")
@pytest.mark.parametrize("form", [str, Path, SqliteStore])
async def test_the_store_is_a_path_or_a_store(tmp_path, form):
    file = tmp_path / "nerve.db"
    async with Session("test", form(file)) as session:
        session.workflow(simple)
        run = await session.start("simple", 1)
        await run.wait()
    assert file.exists()
    async with Session("test", str(file)) as session:
        session.workflow(simple)
        assert session.get_workflow_run(run.run_id).to_info().result == 1


async def test_sessions_can_share_a_memory_store():
    store = MemoryStore()
    first, second = Session("test", store), Session("test", store)
    first.workflow(simple), second.workflow(simple)
    run = await first.start("simple", 1)
    await run.wait()
    assert second.get_workflow_run(run.run_id).to_info().result == 1


async def test_a_file_in_use_is_rejected_on_entering(file):
    async with Session("test", file):
        with pytest.raises(StoreInUse, match=str(file)):
            async with Session("other", file):
                pass


async def test_a_file_that_cannot_be_opened_is_reported_on_entering(tmp_path):
    with pytest.raises(StoreError, match="is not a directory"):
        async with Session("test", tmp_path / "missing" / "nerve.db"):
            pass


async def test_leaving_a_session_closes_the_file_also_after_an_error(file):
    async def leave():
        async with Session("test", file) as session:
            session.workflow(ask)
            await session.start("ask")
            raise KeyError

    with pytest.raises(KeyError):
        await leave()
    async with Session("test", file):
        pass


async def test_closing_a_session_is_idempotent(file):
    session = Session("test", file)
    async with session:
        pass
    await session.close()


async def test_waiters_of_a_run_get_an_error_when_its_session_is_closed(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        waiter = asyncio.ensure_future(run.wait())
        await at_gate(run)
    with pytest.raises((RuntimeError, asyncio.CancelledError)):
        await within(waiter)


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_commands_to_a_run_of_a_closed_session_are_rejected(place, file):
    async with Session("test", file if place == "file" else MemoryStore()) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
    for command in (run.stop, run.pause, lambda: run.signal("go"), lambda: run.answer("yes")):
        with pytest.raises(RuntimeError, match="closed"):
            await within(command())


async def test_an_answer_rejected_by_a_closed_session_is_accepted_after_the_restart(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask")
        await at_gate(run)
    with pytest.raises(RuntimeError, match="closed"):
        await within(run.answer("lost"))
    async with Session("test", file) as session:
        session.workflow(ask)
        (run,) = await session.recover()
        await run.answer("kept")
        assert await within(run.wait()) == "kept"


@pytest.mark.requirement("S0-51")
@pytest.mark.requirement("S0-69")
async def test_a_session_has_workflows_and_runs_by_their_ids(session):
    workflow = Workflow("ask", session, ask)
    assert session.workflows == {"ask": workflow}
    run = await session.start("ask")
    assert session._workflow_runs[run.run_id] is run
    assert session.get_workflow_run(run.run_id) is run


@pytest.mark.requirement("S0-52")
@pytest.mark.requirement("D0-2")
@pytest.mark.parametrize("id", ["", "1st", "-x", "a b", "ä", "a/b", "a\n", "a.b", None])
def test_a_malformed_id_is_rejected_with_the_documented_message(session, id):
    with pytest.raises(ValueError) as caught:
        session.validate_unique_id(id, "workflow")
    assert str(caught.value) == (
        f"Invalid workflow ID '{id}'."
        " Must start with letter and contain only letters, numbers, underscores, hyphens."
    )


@pytest.mark.requirement("S0-52")
@pytest.mark.requirement("C-20")
@pytest.mark.parametrize("id", ["a", "A", "code_review", "x-1", "_inner", "_check_coach"])
def test_letters_digits_hyphens_and_underscores_make_an_id(session, id):
    session.validate_unique_id(id, "workflow")


@pytest.mark.requirement("S0-52")
@pytest.mark.requirement("S0-09")
@pytest.mark.parametrize("kind", ["node", "graph", "workflow"])
def test_an_id_is_unique_over_nodes_graphs_and_workflows(session, kind):
    make = {
        "node": lambda: FunctionNode("taken", session, lambda context: None),
        "graph": lambda: Graph("taken", session),
        "workflow": lambda: Workflow("taken", session, simple),
    }
    make[kind]()
    for other in make.values():
        with pytest.raises(ValueError, match=f"'taken' conflicts with existing {kind}"):
            other()


@pytest.mark.requirement("S0-52")
def test_collisions_are_checked_in_nodes_then_graphs_then_workflows(session):
    session.nodes["taken"] = session.graphs["taken"] = session.workflows["taken"] = object()
    for names, kind in ((session.nodes, "node"), (session.graphs, "graph"), (session.workflows, "workflow")):
        with pytest.raises(ValueError, match=f"conflicts with existing {kind}"):
            session.validate_unique_id("taken", "node")
        del names["taken"]
    session.validate_unique_id("taken", "node")


@pytest.mark.requirement("S0-53")
def test_workflows_are_found_listed_and_deleted(session):
    workflow = Workflow("one", session, simple)
    Workflow("two", session, simple)
    assert (session.get_workflow("one"), session.get_workflow("three")) == (workflow, None)
    assert session.list_workflows() == ["one", "two"]
    assert session.delete_workflow("one") is True
    assert session.delete_workflow("one") is False
    assert session.list_workflows() == ["two"]


@pytest.mark.requirement("C-20")
def test_ids_with_a_leading_underscore_are_not_listed(session):
    Workflow("_inner", session, simple)
    assert session.list_workflows() == []
    assert session.get_workflow("_inner") is not None


@pytest.mark.requirement("S0-54")
@pytest.mark.requirement("S0-69")
async def test_runs_are_listed_and_filtered_by_workflow_and_state(session):
    session.workflow(ask), session.workflow(simple)
    waiting, done = await session.start("ask"), await session.start("simple", 1)
    await done.wait()
    await until(lambda: waiting.pending_gate)
    ids = [info.run_id for info in session.list_workflow_runs()]
    assert ids == [waiting.run_id, done.run_id]
    assert [info.run_id for info in session.list_workflow_runs("simple")] == [done.run_id]
    assert [info.run_id for info in session.list_workflow_runs(state=WorkflowState.WAITING)] == [
        waiting.run_id
    ]
    assert session.list_workflow_runs("simple", WorkflowState.FAILED) == []


@pytest.mark.requirement("S0-54")
async def test_a_run_created_directly_is_listed_once_it_is_started(session):
    run = WorkflowRun(Workflow("simple", session, simple), 1)
    assert session.get_workflow_run(run.run_id) is None
    await run.start()
    await run.wait()
    assert session.get_workflow_run(run.run_id) is run


@pytest.mark.requirement("C-05")
async def test_a_run_is_found_by_a_unique_prefix_of_its_id(session):
    session.workflow(simple)
    run = await session.start("simple", 1)
    assert session.get_workflow_run(run.run_id[:18]) is run
    assert session.get_workflow_run("nothing like it") is None
    for _ in range(5):
        await session.start("simple", 1)
    assert session.get_workflow_run(run.run_id[:2]) is None
    assert session.get_workflow_run(run.run_id) is run


@pytest.mark.requirement("S1-28")
@pytest.mark.requirement("S1-27")
@pytest.mark.requirement("S1-47")
@pytest.mark.requirement("S1-46")
@pytest.mark.requirement("C-07")
@pytest.mark.requirement("C-08")
async def test_a_graph_is_registered_as_a_workflow_under_its_own_id(session):
    graph = Graph("pipeline", session, "Adds and shouts")
    graph.add_step(FunctionNode("add", session, lambda context: context.input + "!"), "first")
    graph.add_step_ref("upper", "second", depends_on=["first"], input_fn=lambda up: up["first"]["output"])
    FunctionNode("upper", session, lambda context: context.input.upper())
    workflow = session.register_workflow(graph)
    assert session.get_workflow("pipeline") is workflow
    assert session.list_workflows() == ["pipeline"]
    assert session.get_graph("pipeline") is graph
    assert graph._steps["first"].node is session.get_node("add")
    assert await (await session.start("pipeline", "hey")).wait() == "HEY!"


@pytest.mark.requirement("S1-28")
@pytest.mark.requirement("C-08")
async def test_any_node_can_be_registered_as_a_workflow(session):
    session.register_workflow(GateNode("approval", session, "Merge?"))
    run = await session.start("approval")
    await at_gate(run)
    await run.answer("yes")
    assert await run.wait() == "yes"


@pytest.mark.requirement("S1-28")
@pytest.mark.requirement("C-07")
async def test_a_graph_assigned_to_workflows_can_be_started(session):
    graph = Graph("pipeline", session).add_step(FunctionNode("one", session, lambda context: 1))
    session.workflows["pipeline"] = graph
    assert isinstance(session.get_workflow("pipeline"), Workflow)
    assert await (await session.start("pipeline")).wait() == 1


@pytest.mark.requirement("C-08")
def test_another_graph_cannot_be_registered_under_an_id_in_use(session):
    session.register_workflow(Graph("pipeline", session))
    with pytest.raises(ValueError, match="conflicts"):
        Graph("pipeline", session)


@pytest.mark.requirement("C-08")
def test_registering_the_same_graph_twice_returns_the_same_workflow(session):
    graph = Graph("pipeline", session)
    assert session.register_workflow(graph) is session.register_workflow(graph)
    assert session.list_workflows() == ["pipeline"]


def test_a_graph_with_an_unknown_reference_is_rejected_before_it_runs(session):
    graph = Graph("pipeline", session).add_step_ref("missing", "one")
    with pytest.raises(ValueError, match="'missing'"):
        session.register_workflow(graph)
    assert session.workflows == {}


def test_a_loop_around_a_graph_with_an_unknown_reference_is_rejected_before_it_runs(session):
    inner = Graph("inner", session).add_step_ref("missing", "one")
    loop = WhileNode("loop", session, lambda state: True, inner)
    with pytest.raises(ValueError, match="'missing'"):
        session.register_workflow(loop)


async def test_decorators_register_functions_under_their_names(session):
    @session.node
    def shout(context):
        return context.input.upper()

    @session.node(id="quiet", timeout=5)
    async def lower(context):
        return context.input.lower()

    @session.workflow
    async def both(ctx):
        """Shouts, then whispers."""
        return [(await ctx.run("shout", ctx.input))["output"], (await ctx.run("quiet", ctx.input))["output"]]

    @session.workflow(id="named", description="Another")
    async def other(ctx):
        return 1

    assert session.list_workflows() == ["both", "named"]
    assert session.get_workflow("both").description == "Shouts, then whispers."
    assert session.get_workflow("named").fn is other
    assert await (await session.start("both", "Hey")).wait() == ["HEY", "hey"]


async def test_an_unknown_workflow_is_a_value_error_that_suggests_one(session):
    session.workflow(simple)
    with pytest.raises(ValueError, match=r"Workflow 'simpel' not found. Did you mean 'simple'\?"):
        await session.start("simpel")


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_the_same_key_returns_the_same_run(place, file):
    async with Session("test", file if place == "file" else None) as session:
        session.workflow(ask), session.workflow(simple)
        first = await session.start("simple", 1, key="order-1")
        assert await session.start("simple", 1, key="order-1") is first
        assert (await session.start("simple", 1, key="order-2")).run_id != first.run_id
        assert (await session.start("simple", 1)).run_id != first.run_id
        await first.wait()
        assert (await session.start("simple", 1, key="order-1")).run_id == first.run_id


async def test_a_hundred_concurrent_starts_with_one_key_are_one_run(file):
    async with Session("test", file) as session:
        session.workflow(simple)
        seen = counted(session, "work")

        @session.workflow
        async def body(ctx):
            return (await ctx.run("work", ctx.input))["output"]

        runs = await asyncio.gather(*(session.start("body", 7, key="one") for _ in range(100)))
        assert {id(run) for run in runs} == {id(runs[0])}
        assert await runs[0].wait() == 7
        assert seen == [7]
        assert len(session.list_workflow_runs()) == 1


async def test_a_key_persists_over_a_restart(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask", key="order-1")
        await at_gate(run)
    async with Session("test", file) as session:
        session.workflow(ask)
        again = await session.start("ask", key="order-1")
        assert again.run_id == run.run_id
        await again.answer("yes")
        assert await within(again.wait()) == "yes"
    async with Session("test", file) as session:
        session.workflow(ask)
        assert (await session.start("ask", key="order-1")).to_info().result == "yes"


async def test_starting_again_with_a_key_resumes_the_open_run(file):
    entered, go = asyncio.Event(), asyncio.Event()

    async def slow(context):
        entered.set()
        await go.wait()
        return "done"

    async def work(ctx):
        return (await ctx.run("slow", None))["output"]

    async with Session("test", file) as session:
        FunctionNode("slow", session, slow)
        session.workflow(work)
        run = await session.start("work", key="order-1")
        await entered.wait()
    go.set()
    async with Session("test", file) as session:
        FunctionNode("slow", session, slow)
        session.workflow(work)
        again = await session.start("work", key="order-1")
        assert again.run_id == run.run_id
        assert await within(again.wait()) == "done"


async def test_a_key_belongs_to_its_session_name(file):
    async with Session("one", file) as session:
        session.workflow(simple)
        first = await session.start("simple", 1, key="k")
        await first.wait()
    async with Session("two", file) as session:
        session.workflow(simple)
        assert (await session.start("simple", 2, key="k")).run_id != first.run_id


async def test_a_failed_start_does_not_use_up_its_key(session):
    session.workflow(simple)
    with pytest.raises(TypeError, match="object"):
        await session.start("simple", object(), key="k")
    assert await (await session.start("simple", 1, key="k")).wait() == 1


async def test_a_start_is_on_disk_when_it_returns(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        run = await session.start("ask", {"a": 1})
        rows = session.engine.store.events(run.run_id)
        assert rows[0].type == "workflow_started"
        pinned = session.engine.store.definition(run.events[0].data["definition"])
        assert (pinned.workflow, pinned.notation) == ("ask", "python")
        assert "ctx.gate" in pinned.source


async def test_runs_are_separated_by_the_session_name(file):
    async with Session("one", file) as session:
        session.workflow(simple)
        run = await session.start("simple", 1)
        await run.wait()
    async with Session("two", file) as session:
        session.workflow(simple)
        assert session.list_workflow_runs() == []
        assert session.get_workflow_run(run.run_id) is None


async def test_a_run_of_a_deleted_workflow_continues_to_its_end(session):
    session.workflow(ask)
    run = await session.start("ask")
    await at_gate(run)
    session.delete_workflow("ask")
    await run.answer("yes")
    assert await within(run.wait()) == "yes"
    assert session.get_workflow_run(run.run_id) is run


async def test_a_key_of_another_workflow_is_rejected(session):
    Workflow("one", session, ask)
    Workflow("two", session, ask)
    await session.start("one", key="k")
    with pytest.raises(ValueError, match="Key 'k' belongs to run"):
        await session.start("two", key="k")


@pytest.mark.requirement("S1-04")
async def test_a_function_and_a_graph_are_the_same_kind_of_run(session):
    node = FunctionNode("double", session, lambda context: context.input * 2)
    session.register_workflow(Graph("as_graph", session).add_step(node))

    @session.workflow
    async def as_function(ctx):
        return (await ctx.run("double", ctx.input))["output"]

    runs = [await session.start(name, 4) for name in ("as_graph", "as_function")]
    assert [await run.wait() for run in runs] == [8, 8]
    assert {run.to_info().state for run in runs} == {WorkflowState.COMPLETED}
    assert {run.view.nodes["/double"].state for run in runs} == {"completed"}


async def test_cancelling_a_keyed_start_does_not_affect_other_callers(file):
    async with Session("test", file) as session:
        session.workflow(ask)
        impatient = asyncio.ensure_future(session.start("ask", key="k"))
        patient = asyncio.ensure_future(session.start("ask", key="k"))
        await asyncio.sleep(0)
        impatient.cancel()
        run = await within(patient)
        assert (await within(run.next_gate())).prompt
        assert len(session.engine.store.runs()) == 1


def loops(session, *turns):
    """Run each function in its own event loop."""
    return [asyncio.run(asyncio.wait_for(turn(session), 10)) for turn in turns]


def asking(file=None):
    session = Session("test", file)
    MockNode("echo", session)

    @session.workflow
    async def echoes(ctx):
        await ctx.run_parallel([("echo", 1), ("echo", 2)])
        return (await ctx.run("echo", ctx.input))["output"]

    @session.workflow
    async def asks(ctx):
        return await ctx.gate("Well?")

    return session


async def echoed(session):
    run = await session.start("echoes", "hello", key="the same")
    return await run.wait()


async def answered(session):
    run = await session.start("asks")
    await run.next_gate()
    await run.answer("well")
    await session.signal("heard", None, 1)
    return await run.wait()


async def asked(session):
    run = await session.start("asks")
    await run.next_gate()
    return run


@pytest.mark.parametrize("durable", [True, False])
def test_a_session_without_open_runs_can_be_used_on_another_event_loop(durable, file):
    session = asking(file if durable else None)
    assert loops(session, echoed, answered, echoed, answered) == ["hello", "well"] * 2
    assert [info.state.value for info in session.list_workflow_runs()] == ["completed"] * 3
    asyncio.run(session.close())


@pytest.mark.parametrize(
    "use",
    [
        lambda session, run: session.start("echoes"),
        lambda session, run: session.recover(),
        lambda session, run: run.wait(),
        lambda session, run: run.answer("well"),
        lambda session, run: run.stop(),
    ],
)
def test_waiting_for_a_run_of_an_ended_event_loop_is_an_error(use, file):
    session = asking(file)
    (run,) = loops(session, asked)

    async def used(session):
        with pytest.raises(RuntimeError, match=f"open runs on an event loop that has ended: {run.run_id}"):
            await use(session, run)
        await session.close()
        async with asking(file) as again:
            (found,) = await again.recover()
            await found.next_gate()
            await found.answer("well")
            return await found.wait()

    assert loops(session, used) == ["well"]


async def test_a_session_can_be_used_on_one_event_loop_at_a_time(session):
    MockNode("echo", session)
    await (await session.start("echo", 1)).wait()
    with pytest.raises(RuntimeError, match="in use on another running event loop"):
        await asyncio.to_thread(asyncio.run, session.start("echo", 2))


async def test_the_runs_of_a_session_are_listed_newest_first_by_all_filters() -> None:
    session = Session()

    @session.workflow
    async def greet(ctx: Any) -> str:
        return f"hello {ctx.input}"

    runs = [await session.start("greet", n, tags={"even": n % 2 == 0}, label=f"run-{n}") for n in range(5)]
    for run in runs:
        await run.wait()
    assert session.runs() == runs[::-1]
    assert session.runs(tags={"even": True}, limit=2) == [runs[4], runs[2]]
    assert session.runs(tags={"even": True}, before=runs[2]) == [runs[0]]
    assert session.runs(label="run-1", state="completed", workflow="greet") == [runs[1]]
    assert session.runs(search="RUN-3", since=timedelta(hours=1)) == [runs[3]]
    assert session.runs(since=datetime.now(UTC) + timedelta(days=1)) == []
    for filters, message in (
        ({"tags": {"evn": True}}, "Unknown tag 'evn'. Did you mean 'even'?"),
        ({"since": "2x"}, "since must be a period or a date, got '2x'. Use a period such as 30s"),
        ({"since": 7}, "got 7 of type int"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError) as raised:
            session.runs(**filters)
        assert message in str(raised.value)


def test_a_workflow_has_the_time_of_its_registration() -> None:
    before = datetime.now(UTC)
    session = Session()

    @session.workflow
    async def greet(ctx: Any) -> None: ...

    workflow = session.get_workflow("greet")
    assert workflow is not None
    assert before <= workflow.created_at <= datetime.now(UTC)
