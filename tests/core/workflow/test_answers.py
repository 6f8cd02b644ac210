"""An answer applies only to what the gate showed: a rerun step opens its gate again."""

import asyncio

import pytest

from core.workflow.support import at_gate, counted, until, within
from nerve import ExecutionContext, FunctionNode, Graph, MockNode, Session
from nerve.core.nodes.control import GateNode


async def by_gate(ctx):
    built = (await ctx.run("build", ctx.input))["output"]
    await ctx.gate("Deploy?")
    return (await ctx.run("deploy", built))["output"]


async def by_node(ctx):
    built = (await ctx.run("build", ctx.input))["output"]
    await ctx.run("approve")
    return (await ctx.run("deploy", built))["output"]


async def by_child(ctx):
    built = (await ctx.run("build", ctx.input))["output"]
    await ctx.run_workflow("ask")
    return (await ctx.run("deploy", built))["output"]


async def by_leaf(ctx):
    built = (await ctx.run("build", ctx.input))["output"]
    await ctx.run("clerk")
    return (await ctx.run("deploy", built))["output"]


async def by_fallback(ctx):
    built = (await ctx.run("build", ctx.input))["output"]
    await ctx.run("broken", on_error=ctx.session.nodes["approve"])
    return (await ctx.run("deploy", built))["output"]


async def ask(ctx):
    return await ctx.gate("Deploy?")


async def clerk(context: ExecutionContext):
    from nerve.core.runtime import GateWait

    return await context.leaf_runtime.ask(GateWait(f"{context.path}/ask", "Deploy?"))


def graph_of(session: Session) -> Graph:
    graph = Graph("by_graph", session)
    graph.add_step_ref("build").add_step_ref("sign", depends_on=["build"], input_fn=lambda up: "same")
    graph.add_step_ref("approve", depends_on=["sign"], input_fn=lambda up: "release")
    graph.add_step_ref("deploy", depends_on=["build", "approve"], input_fn=lambda up: up["build"]["output"])
    return graph


def project(session: Session) -> dict[str, list]:
    seen = {name: counted(session, name) for name in ("build", "sign", "deploy")}
    GateNode("approve", session, "Deploy?")
    FunctionNode("clerk", session, clerk)
    MockNode("broken", session, [ValueError("broken")])
    for body in (ask, *KINDS):
        session.workflow(body)
    session.register_workflow(graph_of(session))
    return seen


KINDS = [by_gate, by_node, by_child, by_leaf, by_fallback]
NAMES = [*(body.__name__ for body in KINDS), "by_graph"]


async def approved(session: Session, name: str):
    run = await session.start(name, "v1")
    await at_gate(run)
    await run.answer("yes")
    assert await within(run.wait()) == "v1"
    return run


@pytest.mark.parametrize("options", [{"at": "/build", "input": "v2"}, {"input": "v2"}], ids=["step", "run"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_fork_with_another_input_opens_every_kind_of_gate_again(session, name, options):
    seen = project(session)
    run = await approved(session, name)
    fork = await session.fork(run.run_id, **options)
    await at_gate(fork)
    assert seen["deploy"] == ["v1"]
    await fork.answer("yes, v2 too")
    assert await within(fork.wait()) == "v2"
    assert (seen["build"], seen["deploy"]) == (["v1", "v2"], ["v1", "v2"])


@pytest.mark.parametrize("name", NAMES)
async def test_a_fork_that_changes_nothing_before_the_gate_keeps_its_answer(session, name):
    seen = project(session)
    run = await approved(session, name)
    for options in ({}, {"input": "v1"}, {"at": "/deploy"}):
        fork = await session.fork(run.run_id, **options)
        assert await within(fork.wait()) == "v1"
    assert (seen["build"], seen["deploy"]) == (["v1"], ["v1", "v1"])


async def test_the_enclosing_nodes_of_the_gate_are_replayed_and_keep_their_other_steps(session):
    seen = project(session)

    @session.workflow
    async def around(ctx):
        await ctx.run("build", ctx.input)
        return (await ctx.run_graph("by_graph", "same"))["output"]

    run = await session.start("around", "v1")
    await at_gate(run)
    await run.answer("yes")
    await within(run.wait())
    fork = await session.fork(run.run_id, at="/build", input="v2")
    await at_gate(fork)
    await fork.answer("yes")
    assert await within(fork.wait()) == "same"
    assert seen == {"build": ["v1", "same", "v2"], "sign": ["same"], "deploy": ["same"]}


# -- changed code ------------------------------------------------------------------------------


def versioned(file, version, body):
    """The workflow opens another gate at its end, so that the code before it can change."""
    session = Session("test", file)
    seen = project(session)

    @session.workflow
    async def changing(ctx):
        ctx.input = version
        done = await body(ctx)
        await ctx.gate("And now?")
        return done

    @session.workflow
    async def changing_graph(ctx):
        await ctx.run("build", version)
        done = await ctx.run_graph("by_graph", "same")
        await ctx.gate("And now?")
        return [version, done["output"]]

    return session, seen


async def asked(run, prompt):
    await until(lambda: [gate.prompt for gate in run.pending_gates] == [prompt])


async def changed_meanwhile(file, name, body=None):
    """Start with v1, answer the first gate, and recover with v2, which holds the run."""
    session, _ = versioned(file, "v1", body)
    async with session:
        run = await session.start(name, "v1")
        await asked(run, "Deploy?")
        await run.answer("yes")
        await asked(run, "And now?")
        await at_gate(run)
    return run.run_id


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("body", KINDS)
async def test_changed_code_that_reruns_a_step_before_the_gate_opens_the_gate_again(file, body, restart):
    run_id = await changed_meanwhile(file, "changing", body)
    session, seen = versioned(file, "v2", body)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run_id)
        await run.answer("go")
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        await asked(run, "Deploy?")
        await at_gate(run)
        assert (seen["build"], seen["deploy"]) == (["v2"], [])
        if not restart:
            await run.answer("yes, v2 too")
            await asked(run, "And now?")
            await run.answer("go")
            assert await within(run.wait()) == "v2"
            return
    session, seen = versioned(file, "v2", body)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run_id)
        await asked(run, "Deploy?")
        await run.answer("yes, v2 too")
        await asked(run, "And now?")
        await run.answer("go")
        assert await within(run.wait()) == "v2"
        assert (seen["build"], seen["deploy"]) == ([], ["v2"])


@pytest.mark.parametrize("restart", [False, True])
async def test_changed_code_opens_the_gate_of_a_settled_graph_again_and_keeps_its_other_steps(file, restart):
    run_id = await changed_meanwhile(file, "changing_graph")
    session, seen = versioned(file, "v2", None)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run_id)
        await run.answer("go")
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        await asked(run, "Deploy?")
        await at_gate(run)
        assert seen == {"build": ["v2"], "sign": [], "deploy": []}
        await run.answer("yes, v2 too")
        await asked(run, "And now?")
        await at_gate(run)
        if not restart:
            await run.answer("go")
            assert await within(run.wait()) == ["v2", "same"]
            assert seen == {"build": ["v2"], "sign": [], "deploy": []}
            return
    session, seen = versioned(file, "v2", None)
    async with session:
        await session.recover()
        run = session.get_workflow_run(run_id)
        await asked(run, "And now?")
        await run.answer("go")
        assert await within(run.wait()) == ["v2", "same"]
        assert seen == {"build": [], "sign": [], "deploy": []}


async def test_a_concurrent_gate_opens_again_if_it_was_answered_after_the_rerun_step(file):
    def opened(version):
        session = Session("test", file)
        seen = counted(session, "build")

        @session.workflow
        async def both(ctx):
            answer, built = await asyncio.gather(ctx.gate("Deploy?"), ctx.run("build", version))
            await ctx.gate("And now?")
            return [answer, built["output"]]

        return session, seen

    session, _ = opened("v1")
    async with session:
        run = await session.start("both")
        await until(lambda: "node_completed" in [event.event_type for event in run.events])
        await run.answer("yes")
        await asked(run, "And now?")
        await at_gate(run)
    session, seen = opened("v2")
    async with session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.answer("go")
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        await asked(run, "Deploy?")
        await run.answer("yes, v2 too")
        await asked(run, "And now?")
        await run.answer("go")
        assert await within(run.wait()) == ["yes, v2 too", "v2"]
        assert seen == ["v2"]


async def test_after_a_code_change_no_gate_is_open_before_the_new_code_opens_it(file):
    def opened(version):
        session = Session("test", file)
        seen = counted(session, "build")

        @session.workflow
        async def body(ctx):
            await ctx.run("build", version)
            return await ctx.gate("Deploy?")

        return session, seen

    session, _ = opened("v1")
    async with session:
        run = await session.start("body")
        await at_gate(run)
    session, seen = opened("v2")
    async with session:
        await session.recover()
        run = session.get_workflow_run(run.run_id)
        await run.pause()
        await run.resume()
        await until(lambda: run.held)
        await run.resume(with_changes=True)
        assert run.pending_gates == []
        await within(run.next_gate())
        assert seen == ["v2"]
        await run.answer("yes")
        assert await within(run.wait()) == "yes"


@pytest.mark.parametrize("deep", [False, True])
async def test_a_fork_opens_the_gate_of_a_child_run_again_and_keeps_its_other_steps(session, deep):
    seen = project(session)

    @session.workflow
    async def sells(ctx):
        await ctx.run("sign", "the contract")
        return await ctx.gate("Deploy?")

    @session.workflow
    async def between(ctx):
        return await ctx.run_workflow("sells")

    @session.workflow
    async def parent(ctx):
        await ctx.run("build", ctx.input)
        return await ctx.run_workflow("between" if deep else "sells")

    run = await session.start("parent", "v1")
    await at_gate(run)
    await run.answer("yes")
    assert await within(run.wait()) == "yes"
    fork = await session.fork(run.run_id, at="/build", input="v2")
    await at_gate(fork)
    await fork.answer("no")
    assert await within(fork.wait()) == "no"
    assert (seen["build"], seen["sign"]) == (["v1", "v2"], ["the contract"])
