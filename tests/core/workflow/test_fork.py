"""Fork: a new run that copies the settled steps of another run up to a path."""

import asyncio

import pytest

from core.workflow.support import Latch, at_gate, counted, types, until, within
from nerve import BashNode, FunctionNode, Graph, Limits, MockNode, Retry, Session
from nerve.core.nodes.control import MapNode
from nerve.core.workflow import Workflow, WorkflowState
from nerve.errors import LimitReached


async def three(ctx):
    a = (await ctx.run("a", ctx.input))["output"]
    b = (await ctx.run("b", a + 1))["output"]
    return (await ctx.run("c", b + 1))["output"]


async def one(ctx):
    return (await ctx.run("a", ctx.input))["output"]


@pytest.fixture
def steps(session):
    session.workflow(three)
    return {name: counted(session, name) for name in "abc"}


async def test_a_finished_run_is_forked_without_repeating_anything(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    fork = await session.fork(run.run_id)
    assert fork.run_id != run.run_id
    assert await within(fork.wait()) == 3
    assert steps == {"a": [1], "b": [2], "c": [3]}


async def test_a_fork_at_a_path_runs_that_step_again_and_keeps_what_came_before(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    fork = await session.fork(run.run_id, at="/b")
    assert await within(fork.wait()) == 3
    assert (steps["a"], steps["b"]) == ([1], [2, 2])
    assert run.events[0].data["input"] == fork.events[0].data["input"] == 1
    assert fork.events[0].data["forked_from"]["run"] == run.run_id


async def test_a_fork_with_another_input_for_a_step_runs_what_depends_on_it(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    fork = await session.fork(run.run_id, at="/b", input=10)
    assert await within(fork.wait()) == 11
    assert steps == {"a": [1], "b": [2, 10], "c": [3, 11]}


async def test_a_fork_with_another_workflow_input_runs_what_depends_on_it(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    fork = await session.fork(run.run_id, input=5)
    assert await within(fork.wait()) == 7
    assert steps == {"a": [1, 5], "b": [2, 6], "c": [3, 7]}
    assert (run.input, fork.input) == (1, 5)


async def test_the_forked_run_is_not_changed(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    before = [event.to_dict() for event in run.events]
    await within((await session.fork(run.run_id, at="/a", input=7)).wait())
    assert [event.to_dict() for event in run.events] == before


async def test_the_fork_of_a_failed_run_executes_the_failed_step_again(session):
    calls = []

    async def flaky(context):
        calls.append(context.input)
        if len(calls) == 1:
            raise OSError("disk on fire")
        return "fine"

    FunctionNode("flaky", session, flaky)
    first = counted(session, "first")

    @session.workflow
    async def body(ctx):
        await ctx.run("first", 1)
        result = await ctx.run("flaky", 2)
        if not result["success"]:
            raise RuntimeError(result["error"])
        return result["output"]

    run = await session.start("body")
    with pytest.raises(RuntimeError, match="disk on fire"):
        await run.wait()
    fork = await session.fork(run.run_id, at="/flaky")
    assert await within(fork.wait()) == "fine"
    assert (first, calls) == ([1], [2, 2])


async def test_a_waiting_run_is_forked_and_each_has_its_own_gate(session):
    work = counted(session, "work")

    @session.workflow
    async def body(ctx):
        await ctx.run("work", 1)
        return await ctx.gate("Continue?")

    run = await session.start("body")
    await at_gate(run)
    fork = await session.fork(run.run_id)
    await until(lambda: fork.pending_gate)
    assert run.pending_gate.gate_id != fork.pending_gate.gate_id
    await fork.answer("fork")
    await run.answer("run")
    assert [await within(run.wait()), await within(fork.wait())] == ["run", "fork"]
    assert work == [1]


async def test_a_running_run_is_forked_and_what_was_running_runs_in_both(session):
    latch = Latch()
    FunctionNode("slow", session, latch.leaf)
    first = counted(session, "first")

    @session.workflow
    async def body(ctx):
        await ctx.run("first", 1)
        return (await ctx.run("slow", 2))["output"]

    run = await session.start("body")
    await latch.entered.wait()
    fork = await session.fork(run.run_id)
    await until(lambda: len(latch.inputs) == 2)
    latch.open.set()
    assert [await within(run.wait()), await within(fork.wait())] == [2, 2]
    assert first == [1]


async def test_settled_siblings_outside_the_path_are_kept(session):
    seen = [counted(session, f"n{number}", lambda given: given * 10) for number in range(3)]

    @session.workflow
    async def body(ctx):
        results = await ctx.run_parallel([(f"n{number}", number) for number in range(3)])
        return [r["output"] for r in results]

    run = await session.start("body")
    await run.wait()
    fork = await session.fork(run.run_id, at="/n1", input=7)
    assert await within(fork.wait()) == [0, 70, 20]
    assert seen == [[0], [1, 7], [2]]


async def test_steps_of_a_graph_that_do_not_depend_on_the_path_are_kept(session):
    seen = {name: counted(session, name) for name in ("left", "right", "join")}
    graph = Graph("diamond", session)
    graph.add_step_ref("left").add_step_ref("right")
    graph.add_step_ref(
        "join",
        depends_on=["left", "right"],
        input_fn=lambda up: [up["left"]["output"], up["right"]["output"]],
    )
    session.register_workflow(graph)
    run = await session.start("diamond", 1)
    await run.wait()
    fork = await session.fork(run.run_id, at="/left", input=5)
    assert await within(fork.wait()) == [5, 1]
    assert seen == {"left": [1, 5], "right": [1], "join": [[1, 1], [5, 1]]}


async def test_one_item_of_a_map_is_run_again_and_the_others_are_kept(session):
    seen = counted(session, "item", lambda given: given * 10)
    each = MapNode("each", session, session.nodes["item"])
    session.register_workflow(each)
    run = await session.start("each", [1, 2, 3])
    await run.wait()
    started = [event.path for event in run.events if event.event_type == "node_started"]
    fork = await session.fork(run.run_id, at=started[1])
    assert await within(fork.wait()) == [10, 20, 30]
    assert seen == [1, 2, 3, 2]


async def test_gates_before_the_path_keep_their_answers_and_those_after_it_are_asked_again(session):
    work = counted(session, "work")

    @session.workflow
    async def body(ctx):
        before = await ctx.gate("Before?")
        await ctx.run("work", 1)
        return [before, await ctx.gate("After?")]

    run = await session.start("body")
    for answer in ("one", "two"):
        await at_gate(run)
        await run.answer(answer)
    assert await run.wait() == ["one", "two"]
    fork = await session.fork(run.run_id, at="/work")
    await until(lambda: fork.pending_gate)
    assert [gate.prompt for gate in fork.pending_gates] == ["After?"]
    await fork.answer("three")
    assert await within(fork.wait()) == ["one", "three"]
    assert work == [1, 1]


async def test_an_unknown_path_is_a_value_error_that_lists_the_known_ones(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    with pytest.raises(ValueError, match=r"Unknown path '/z'.*/a, /b, /c"):
        await session.fork(run.run_id, at="/z")
    assert len(session.list_workflow_runs()) == 1


async def test_an_unknown_run_is_a_value_error(session):
    with pytest.raises(ValueError, match="Workflow run 'nowhere' not found"):
        await session.fork("nowhere")


@pytest.mark.requirement("C-05")
async def test_a_run_to_fork_is_found_by_a_unique_prefix_of_its_id(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    fork = await session.fork(run.run_id[:13])
    assert fork.events[0].data["forked_from"]["run"] == run.run_id
    await fork.wait()


async def test_a_fork_survives_a_restart(file):
    async def body(ctx):
        work = (await ctx.run("work", 1))["output"]
        return [work, await ctx.gate("Continue?")]

    async with Session("test", file) as session:
        session.workflow(body)
        counted(session, "work")
        run = await session.start("body")
        await at_gate(run)
        fork = await session.fork(run.run_id, at="/work", input=5)
        await until(lambda: fork.pending_gate)
    async with Session("test", file) as session:
        session.workflow(body)
        again = counted(session, "work")
        await session.recover()
        fork = session.get_workflow_run(fork.run_id)
        await fork.answer("yes")
        assert await within(fork.wait()) == [5, "yes"]
        assert again == []


async def test_a_fork_of_a_fork_keeps_both_changes(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    first = await session.fork(run.run_id, at="/a", input=10)
    assert await within(first.wait()) == 12
    second = await session.fork(first.run_id, at="/c", input=100)
    assert await within(second.wait()) == 100
    assert steps == {"a": [1, 10], "b": [2, 11], "c": [3, 12, 100]}


async def test_overrides_change_settings_of_a_step(session):
    BashNode("shell", session, "echo one")

    @session.workflow
    async def body(ctx):
        return (await ctx.run("shell", None))["output"]

    run = await session.start("body")
    assert await run.wait() == "one\n"
    fork = await session.fork(run.run_id, at="/shell", overrides={"/shell": {"command": "echo two"}})
    assert await within(fork.wait()) == "two\n"


async def test_a_settled_child_is_a_value_in_a_fork_and_an_unsettled_one_is_forked_too(session):
    work = counted(session, "work")

    @session.workflow
    async def child(ctx):
        await ctx.run("work", ctx.input)
        return await ctx.gate(f"Child {ctx.input}?")

    @session.workflow
    async def parent(ctx):
        return [await ctx.run_workflow("child", 1), await ctx.run_workflow("child", 2)]

    run = await session.start("parent")
    await at_gate(run)
    await run.answer("first")
    await until(lambda: run.pending_gate and run.pending_gate.prompt == "Child 2?")
    fork = await session.fork(run.run_id)
    await until(lambda: fork.pending_gate)
    assert [gate.path for gate in fork.pending_gates] == ["/child[2]/gate"]
    await fork.answer("fork's second")
    assert await within(fork.wait()) == ["first", "fork's second"]
    assert work == [1, 2]
    assert run.state is WorkflowState.WAITING
    await run.answer("second")
    assert await within(run.wait()) == ["first", "second"]


async def test_a_retried_child_is_forked_from_its_last_attempt(session):
    worked, paid = counted(session, "work", lambda _: len(worked)), counted(session, "pay")

    async def stumbles(ctx):
        await ctx.run("pay", 5, effect="once")
        if (await ctx.run("work"))["output"] == 1:
            raise ValueError("not yet")
        return await ctx.gate("Child asks?")

    child, retry = Workflow("child", session, stumbles), Retry(attempts=3, delay=0)
    session.register_workflow(Graph("graph", session).add_step(child, timeout=60, retry=retry))
    run = await session.start("graph")
    await at_gate(run)
    fork = await session.fork(run.run_id)
    fork = await session.fork(fork.run_id)
    await at_gate(fork)
    await fork.answer("yes")
    assert await within(fork.wait()) == "yes"
    assert (len(worked), paid) == (2, [5, 5])


async def test_the_same_random_numbers_are_drawn_in_a_fork(session):
    drawn = []

    @session.workflow
    async def body(ctx):
        drawn.append((ctx.random(), ctx.new_id()))
        return await ctx.gate("Continue?")

    run = await session.start("body")
    await at_gate(run)
    fork = await session.fork(run.run_id)
    await until(lambda: fork.pending_gate)
    assert drawn[0] == drawn[1]


async def test_the_view_of_a_fork_shows_the_copied_steps(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    fork = await session.fork(run.run_id, at="/c")
    await fork.wait()
    assert [(node.path, node.state) for node in fork.view.tree] == [
        ("/a", "completed"),
        ("/b", "completed"),
        ("/c", "completed"),
    ]
    assert [event.seq for event in fork.events] == list(range(1, len(fork.events) + 1))
    assert types(fork)[-1] == "workflow_completed"


async def test_many_forks_of_one_run_at_once(session, steps):
    run = await session.start("three", 1)
    await run.wait()
    forks = await asyncio.gather(*(session.fork(run.run_id, at="/c", input=n) for n in range(10)))
    assert await asyncio.gather(*(fork.wait() for fork in forks)) == list(range(10))
    assert steps["a"] == [1]


# -- limits ------------------------------------------------------------------------------------


@pytest.fixture
def long(session):
    seen = counted(session, "step")

    @session.workflow(limits=Limits(steps=3))
    async def long(ctx):
        for number in range(5):
            await ctx.run("step", number)
        return "done"

    return seen


async def test_the_fork_of_a_run_that_reached_a_limit_continues_with_a_higher_limit(session, long):
    run = await session.start("long")
    with pytest.raises(LimitReached):
        await run.wait()
    fork = await session.fork(run.run_id)
    with pytest.raises(LimitReached):
        await within(fork.wait())
    fork = await session.fork(run.run_id, limits={"steps": 10})
    assert await within(fork.wait()) == "done"
    assert long == [0, 1, 2, 3, 4]
    again = await session.fork(fork.run_id, at="/step[5]")
    assert await within(again.wait()) == "done"


async def test_a_fork_inherits_the_raised_limits(session):
    usage = {"output": "done", "attributes": {"usage": {"tokens": 600}}}
    MockNode("agent", session, [usage])

    @session.workflow(limits=Limits(tokens=1000))
    async def costly(ctx):
        for _ in range(3):
            await ctx.run("agent")
        return "all done"

    run = await session.start("costly")
    await until(lambda: run.held)
    await run.resume(limits={"tokens": 5000, "/agent": {"tokens": 700}})
    assert await within(run.wait()) == "all done"
    fork = await session.fork(run.run_id, at="/agent[3]")
    assert await within(fork.wait()) == "all done"
    start = fork.events[0].data
    assert (start["limits"]["tokens"], start["raised"]) == (5000, {"/agent": {"tokens": 700}})


async def test_invalid_limits_are_rejected_before_anything_is_forked(session, long):
    run = await session.start("long")
    with pytest.raises(LimitReached):
        await run.wait()
    with pytest.raises(ValueError, match="Unknown limit 'stepps'"):
        await session.fork(run.run_id, limits={"stepps": 10})
    assert len(session.list_workflow_runs()) == 1


# -- overrides ---------------------------------------------------------------------------------


@pytest.fixture
async def shells(session):
    """Return a run of a graph in a function, both with commands."""
    graph = Graph("graph", session)
    graph.add_step(BashNode("first", session, "echo one"), "first")
    graph.add_step(BashNode("second", session, "cat; echo two"), "second", depends_on=["first"])
    before = counted(session, "before")

    @session.workflow
    async def body(ctx):
        await ctx.run("before", 1)
        return (await ctx.run_graph("graph"))["output"]

    run = await session.start("body")
    assert await within(run.wait()) == "one\ntwo\n"
    return run, before


async def test_an_override_in_a_settled_graph_reruns_that_step_and_its_dependents(session, shells):
    run, before = shells
    fork = await session.fork(run.run_id, overrides={"/graph/first": {"command": "echo uno"}})
    assert await within(fork.wait()) == "uno\ntwo\n"
    assert before == [1]
    fork = await session.fork(run.run_id, overrides={"/graph/second": {"command": "echo due"}})
    assert await within(fork.wait()) == "due\n"


async def test_an_override_of_an_unknown_path_is_rejected(session, shells):
    run, _ = shells
    with pytest.raises(ValueError, match=r"Unknown path '/graph/frist'\. Did you mean '/graph/first'\?"):
        await session.fork(run.run_id, overrides={"/graph/frist": {"command": "echo uno"}})
    with pytest.raises(ValueError, match=r"Unknown path '/x'\. Known paths: /before, /graph"):
        await session.fork(run.run_id, overrides={"/x": {"command": "echo uno"}})


@pytest.mark.parametrize(
    "wrong", [5, ["/graph"], {"/graph/first": 5}, {"/graph/first": ["command"]}, {1: {}}]
)
async def test_malformed_overrides_are_rejected(session, shells, wrong):
    run, _ = shells
    with pytest.raises(ValueError, match="overrides must map step paths to settings, such as"):
        await session.fork(run.run_id, overrides=wrong)
    assert len(session.list_workflow_runs()) == 1


# -- names -------------------------------------------------------------------------------------


async def test_a_tilde_in_a_name_does_not_make_it_internal_to_another_step(session):
    names = ["a", "a~b", "a~timeout", "~", "a%7Eb", "b"]
    graph = Graph("graph", session)
    seen = {name: counted(session, f"node{number}") for number, name in enumerate(names)}
    for number, name in enumerate(names):
        graph.add_step_ref(f"node{number}", name)
    session.register_workflow(graph)
    run = await session.start("graph", 1)
    await within(run.wait())
    paths = [event.path for event in run.events if event.event_type == "step_started"]
    assert paths == ["/a", "/a%7Eb", "/a%7Etimeout", "/%7E", "/a%257Eb", "/b"]
    fork = await session.fork(run.run_id, at="/a")
    await within(fork.wait())
    assert {name: len(inputs) for name, inputs in seen.items()} == {name: 1 + (name == "a") for name in names}


@pytest.mark.parametrize("first", ["fork", "start"])
async def test_concurrent_forks_or_starts_with_one_key_return_the_same_run(session, steps, first):
    run = await session.start("three", 1)
    await run.wait()
    begun = [
        session.fork(run.run_id, key="k"),
        session.fork(run.run_id, key="k"),
        session.start("three", key="k"),
    ]
    if first == "start":
        begun.reverse()
    found = await within(asyncio.gather(*begun, return_exceptions=True))
    if first == "fork":
        assert found[0] is found[1] is found[2]
    else:
        assert [str(error).partition("', which")[2] for error in found[1:]] == [
            f" is not a fork of '{run.run_id}'"
        ] * 2


async def test_the_path_to_fork_at_must_be_a_string(session, steps):
    run = await session.start("three", 1)
    with pytest.raises(ValueError, match="the path to fork at must be a string, got 5"):
        await session.fork(run.run_id, at=5)


@pytest.mark.parametrize("verb", ["fork", "retry"])
async def test_a_run_of_another_session_is_neither_forked_nor_retried(file, verb):
    async with Session("theirs", file) as session:
        counted(session, "a")
        session.workflow(one)
        run = await session.start("one", 1)
        await run.wait()
    async with Session("ours", file) as session:
        seen = counted(session, "a")
        session.workflow(one)
        with pytest.raises(ValueError, match=f"'{run.run_id}' belongs to session 'theirs', not to 'ours'"):
            await getattr(session, verb)(run.run_id)
        assert (seen, session.list_workflow_runs()) == ([], [])
