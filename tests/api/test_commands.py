"""Every command of the API: its effect and its errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal, with_workflows
from nerve import FunctionNode, Graph, Session
from nerve.api import OPERATIONS, Api
from nerve.core.nodes.control import GateNode

ASKS = """
name: written
description: Asks in YAML
inputs: {tone: {type: string, required: true}}
body: {kind: gate, id: g, prompt: "{{ inputs.tone }}?", choices: [yes, no]}
"""


async def over(api: Api, run_id: str) -> Any:
    """Return the run when it has ended."""
    run = api.session.get_workflow_run(run_id)
    assert run is not None
    await run.wait_until_ended()
    return await api.run(run=run_id)


async def test_a_workflow_is_defined_from_source_and_started(api: Api) -> None:
    reply = await api.define(source=ASKS)
    assert (reply.id, reply.kind, reply.description) == ("written", "yaml", "Asks in YAML")
    assert [(arguments.name, arguments.required) for arguments in reply.inputs] == [("tone", True)]
    run = await api.start(workflow="written", params={"tone": "Calm"}, wait=True)
    assert (run.state, run.gates[0].prompt, run.gates[0].choices) == ("waiting", "Calm?", ["yes", "no"])
    error = await refusal(api.start(workflow="written"))
    assert error.code == "refused"
    assert "tone" in error.message


async def test_source_text_is_never_read_as_a_file_name(api: Api, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(ASKS)
    error = await refusal(api.define(source=str(secret)))
    assert error.code == "refused"
    assert error.details["problems"]
    assert "Calm" not in str(error.to_dict())
    assert api.session.get_workflow("written") is None


async def test_an_invalid_definition_reports_its_position(api: Api) -> None:
    error = await refusal(api.define(source="name: x\nbody: {kind: nothing}\n", notation="yaml"))
    assert (error.code, error.status) == ("refused", 422)
    assert error.details["problems"][0]["line"] == 2
    assert (await refusal(api.define(source="x", notation="toml"))).code == "bad_request"
    assert (await refusal(api.define(source="x" * 1_000_001))).code == "too_large"
    error = await refusal(api.define(source="name: hello\nbody: {kind: gate, id: g}\n"))
    assert error.code == "refused"  # a function already has that name


async def test_a_definition_is_stored_with_its_key_and_active_after_a_restart(api: Api, file: Path) -> None:
    reply = await api.define(source=ASKS, key="k")
    await api.define(source=ASKS.replace("Asks", "Begs"))
    await api.session.close()
    async with Session(store=file) as session:
        restarted = with_workflows(session)
        await session.recover()
        assert await restarted.define(source=ASKS, key="k") == reply
        assert (await restarted.workflow(workflow="written")).description == "Begs in YAML"
        run = await restarted.start(workflow="written", params={"tone": "Calm"}, wait=True)
        assert run.gates[0].prompt == "Calm?"


async def test_an_unregistered_definition_is_only_for_runs_that_name_it(api: Api, file: Path) -> None:
    await api.define(source=ASKS)
    reply = await api.define(source=ASKS.replace("{{ inputs.tone }}?", "Mine?"), keep=False)
    arguments = {"workflow": "written", "params": {"tone": "Calm"}, "wait": True}
    own = await api.start(**arguments, definition=reply.hash, key="own")
    assert [own.gates[0].prompt, (await api.start(**arguments)).gates[0].prompt] == ["Mine?", "Calm?"]
    assert (await api.workflow(workflow="written")).hash != reply.hash
    other = await api.define(source=ASKS.replace("Asks", "Begs"), keep=False)
    assert (await refusal(api.start(**arguments, definition=other.hash, key="own"))).code == "conflict"
    assert (await refusal(api.start(**arguments, definition="nothing"))).code == "not_found"
    assert (await refusal(api.start(workflow="hello", definition=reply.hash))).code == "not_found"
    await api.session.close()
    async with Session(store=file) as session:
        await session.recover()
        again = Api(session)
        assert (await again.run(run=own.run_id)).gates[0].prompt == "Mine?"
        assert (await again.start(**arguments, definition=reply.hash)).gates[0].prompt == "Mine?"
        await again.answer(run=own.run_id, answer="yes")
        assert (await over(again, own.run_id)).result == "yes"


async def test_a_definition_with_the_name_of_a_file_is_refused(memory: Api) -> None:
    folder = memory.session.project / ".nerve" / "workflows"
    folder.mkdir(parents=True)
    (folder / "it.yaml").write_text(ASKS)
    await memory.reload()
    for refused in (
        memory.define(source=ASKS.replace("Asks", "Begs")),
        memory.assert_fact(fact=["workflow-definition", {"source": ASKS}]),
    ):
        error = await refusal(refused)
        assert (error.code, "it.yaml" in error.message) == ("refused", True)
    assert memory.session.engine.dataspace.asserted_facts("workflow-definition") == []
    (folder / "it.yaml").unlink()
    await memory.reload()
    assert (await memory.define(source=ASKS)).id == "written"


async def test_a_definition_with_the_name_of_a_node_is_refused_and_not_stored(api: Api) -> None:
    source = "name: careful\nbody: {kind: gate, id: g}\n"
    for refused in (
        api.define(source=source),
        api.assert_fact(fact=["workflow-definition", {"source": source}]),
    ):
        assert (await refusal(refused)).code == "refused"
    assert api.session.engine.dataspace.asserted_facts("workflow-definition") == []


async def test_a_run_is_started_and_waited_for(api: Api) -> None:
    run = await api.start(workflow="hello", input="you", label="first", wait=True)
    assert (run.workflow, run.state, run.result, run.label) == ("hello", "completed", "hello you", "first")
    started = await api.start(workflow="ask")
    assert started.state in ("running", "waiting")
    failed = await api.start(workflow="broken", input="bad", wait=True)
    assert (failed.state, failed.error) == ("failed", "it is bad")


@pytest.mark.requirement("D0-15")
async def test_waiting_ends_if_a_user_must_act_and_not_during_a_sleep(api: Api) -> None:
    @api.session.workflow
    async def naps(ctx: Any) -> str:
        await ctx.sleep(0.01)
        return "rested"

    @api.session.workflow
    async def listens(ctx: Any) -> Any:
        await ctx.sleep(0.01)
        return await ctx.wait_signal("go")

    @api.session.workflow
    async def hands_on(ctx: Any) -> Any:
        return await ctx.run_workflow("listens")

    assert (await api.start(workflow="naps", wait=True)).result == "rested"
    assert (await api.start(workflow="ask", wait=True)).state == "waiting"
    listening = [await api.start(workflow=name, wait=True) for name in ("listens", "hands_on")]
    assert [run.state for run in listening] == ["waiting", "waiting"]
    await api.signal(label="go", value=7)
    assert [(await over(api, run.run_id)).result for run in listening] == [7, 7]


@pytest.mark.requirement("D0-15")
async def test_waiting_ends_when_a_run_or_its_child_is_paused(api: Api) -> None:
    go, started = asyncio.Event(), asyncio.Event()

    @api.session.node
    async def works(context: Any) -> str:
        started.set()
        await go.wait()
        return "done"

    @api.session.workflow
    async def labours(ctx: Any) -> Any:
        await ctx.run("works")
        return (await ctx.run("works")).output

    @api.session.workflow
    async def has_it_done(ctx: Any) -> Any:
        return await ctx.run_workflow("labours")

    for name, label in (("labours", "own"), ("has_it_done", "own"), ("has_it_done", "child")):
        go.clear(), started.clear()
        waiting = asyncio.ensure_future(api.start(workflow=name, wait=True))
        await started.wait()
        there = (await api.runs()).runs
        own, child = next(run for run in there if run.workflow == name), there[0]
        paused = await api.pause(run=(own if label == "own" else child).run_id)
        assert paused.state in ("pausing", "paused")
        go.set()
        assert (await waiting).run_id == own.run_id
        assert (await api.run(run=paused.run_id)).state == "paused"
        await api.resume(run=paused.run_id)
        assert (await over(api, own.run_id)).result == "done"


async def test_nodes_and_graphs_are_started_as_workflows_of_one_step(api: Api) -> None:
    session = api.session
    graph = Graph(id="line", session=session)
    graph.add_step(FunctionNode("shout", None, lambda context: context.input.upper()), "one")
    assert (await api.start(workflow="line", input="a", wait=True)).state == "completed"
    run = await api.start(workflow="careful", input="b", wait=True)
    assert run.result == "b"


async def test_a_node_that_was_started_is_still_a_node_for_workflows(api: Api) -> None:
    @api.session.workflow
    async def through(ctx: Any) -> Any:
        return (await ctx.run("careful", ctx.input))["output"]

    for name in ("through", "careful", "through"):
        assert (await api.start(workflow=name, input="b", wait=True)).result == "b"
    assert "careful" not in [each.id for each in (await api.workflows()).workflows]


async def test_the_run_of_a_node_continues_after_a_restart(tmp_path: Path) -> None:
    async with Session("test", tmp_path / "nerve.db") as session:
        GateNode("sure", session, "Sure?")
        await Api(session).start(workflow="sure", wait=True)
    async with Session("test", tmp_path / "nerve.db") as session:
        GateNode("sure", session, "Sure?")
        (run,) = await session.recover()
        await Api(session).answer(run=run.run_id, answer="yes")
        assert await run.wait() == "yes"


async def test_a_run_without_its_code_is_listed_and_does_not_continue(tmp_path: Path) -> None:
    async with Session("test", tmp_path / "nerve.db") as session:
        with_workflows(session)
        started = await Api(session).start(workflow="ask", wait=True)
    async with Session("test", tmp_path / "nerve.db") as session:
        api = Api(session)
        await session.recover()
        assert [run.run_id for run in (await api.runs()).runs] == [started.run_id]
        (gate,) = (await api.gates()).gates
        assert (gate.run_id, (await api.run(run=started.run_id)).workflow) == (started.run_id, "ask")
        assert (await api.events(run=started.run_id)).events
        error = await refusal(api.answer(run=started.run_id, answer="yes"))
        assert (error.code, error.fix) == ("refused", "Name the file with its code: --with FILE")
        with_workflows(session)
        await api.answer(run=started.run_id, answer="yes")
        assert (await over(api, started.run_id)).state == "completed"


async def test_a_run_without_its_code_can_be_stopped(tmp_path: Path) -> None:
    async with Session("test", tmp_path / "nerve.db") as session:
        with_workflows(session)
        started = await Api(session).start(workflow="ask", wait=True)
    async with Session("test", tmp_path / "nerve.db") as session:
        assert (await Api(session).stop(run=started.run_id)).state == "cancelled"


async def test_names_are_completed_from_a_unique_prefix(api: Api) -> None:
    run = await api.start(workflow="hel", input="x", wait=True)
    assert run.workflow == "hello"
    await api.define(source=ASKS.replace("written", "help"))
    error = await refusal(api.start(workflow="hel"))
    assert (error.code, error.message) == ("conflict", "'hel' is ambiguous: hello, help")
    assert (await api.run(run=run.run_id[:30])).run_id == run.run_id
    await api.start(workflow="hello", wait=True)
    assert (await refusal(api.run(run="0"))).code == "conflict"


async def test_an_invalid_start_is_reported(api: Api) -> None:
    error = await refusal(api.start(workflow="nobody"))
    assert error.to_dict() == {
        "code": "not_found",
        "message": "Workflow 'nobody' not found",
        "fix": "See the list: nerve workflow list",
    }
    assert (await refusal(api.start())).code == "bad_request"
    assert (await refusal(api.start(workflow=""))).code == "bad_request"
    assert (await refusal(api.start(workflow="x" * 300))).code == "bad_request"
    assert (await refusal(api.start(workflow="hello", colour="red"))).code == "bad_request"
    assert (await refusal(api.start(workflow="hello", input="\udfff"))).code == "refused"
    assert (await refusal(api.start(workflow="hello\ud800"))).code == "refused"
    assert (await refusal(api.start(workflow="hello", input=object()))).code == "refused"
    assert (await refusal(api.start(workflow="hello", limits={"colour": 1}))).code == "refused"
    assert (await api.runs()).runs == []


async def test_the_same_key_starts_one_run_a_hundred_times_in_parallel(api: Api) -> None:
    starts = [api.start(workflow="ask", input=1, key="once", wait=True) for _ in range(100)]
    replies = await asyncio.gather(*starts)
    assert all(reply == replies[0] for reply in replies)
    assert len((await api.runs()).runs) == 1
    error = await refusal(api.start(workflow="hello", key="once"))
    assert error.code == "conflict"


async def test_a_key_is_remembered_across_a_restart(file: Path) -> None:
    async with Session(store=file) as session:
        run = await with_workflows(session).start(workflow="hello", key="once", wait=True)
    async with Session(store=file) as session:
        api = with_workflows(session)
        assert (await api.start(workflow="hello", key="once")).run_id == run.run_id
        assert len((await api.runs()).runs) == 1


async def test_signals_and_facts_are_asserted_and_retracted(api: Api) -> None:
    assert (await api.signal(label="go", key="a", value={"n": 1})).done
    fact = await api.assert_fact(fact=["colour", "red"])
    assert (fact.record, fact.by) == (["colour", "red"], "api")
    assert (await api.assert_fact(fact=["colour", "red"])).id == fact.id
    await api.assert_fact(fact='(colour "blue")')
    page = await api.facts(pattern="(colour _)")
    assert [each.record[1] for each in page.facts] == ["red", "blue"]
    gone = await api.retract(fact=["colour", "red"])
    assert [each.record for each in gone.facts] == [["colour", "red"]]
    assert (await api.retract(fact=["colour", "red"])).facts == []
    for wrong in (None, "", "(", 7, [], {"a": 1}):
        assert (await refusal(api.assert_fact(fact=wrong))).code == "refused", wrong
        if wrong is not None:
            assert (await refusal(api.retract(fact=wrong))).code == "refused", wrong


async def test_a_run_is_paused_resumed_and_stopped(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    assert (await api.pause(run=run.run_id)).state == "paused"
    assert (await api.pause(run=run.run_id)).state == "paused"
    assert (await api.resume(run=run.run_id)).state in ("running", "waiting")
    assert (await refusal(api.resume(run=run.run_id))).code == "conflict"
    stopped = await api.stop(run=run.run_id, reason="enough")
    assert (stopped.state, stopped.error) == ("cancelled", "enough")
    assert (await api.stop(run=run.run_id)).state == "cancelled"
    for name in ("pause", "resume", "skip"):
        assert (await refusal(api.perform(name, {"run": run.run_id}))).code == "conflict"
    for name in ("pause", "resume", "stop", "fork", "retry", "skip"):
        assert (await refusal(api.perform(name, {"run": "nobody"}))).code == "not_found"
        assert (await refusal(api.perform(name, {}))).code == "bad_request"


async def test_a_finished_run_is_retried_from_its_first_failure_and_forked(api: Api) -> None:
    good = {"ok": False}

    @api.session.node
    async def moody(context: Any) -> str:
        if not good["ok"]:
            raise ValueError("not today")
        return "fine"

    @api.session.workflow
    async def two_steps(ctx: Any) -> str:
        first, second = await ctx.run("careful", ctx.input), await ctx.run("moody")
        if not second.success:
            raise ValueError(second.error)
        return f"{first.output} {second.output}"

    failed = await api.start(workflow="two_steps", input="a", wait=True)
    assert failed.state == "failed"
    good["ok"] = True
    again = await api.retry(run=failed.run_id)
    assert again.run_id != failed.run_id
    assert (await over(api, again.run_id)).result == "a fine"
    error = await refusal(api.retry(run=again.run_id))
    assert (error.code, error.fix) == ("conflict", "Start it again, or fork it.")
    forked = await api.fork(run=again.run_id, input="b")
    assert (await over(api, forked.run_id)).input == "b"
    same = await api.fork(run=again.run_id, at="/moody")
    assert (await over(api, same.run_id)).input == "a"
    assert (await refusal(api.fork(run=again.run_id, at="/nowhere"))).code == "refused"
    assert (await refusal(api.fork(run=again.run_id, overrides={"/nowhere": {}}))).code == "refused"
    raised = await api.fork(run=again.run_id, limits={"steps": 77})
    events = (await api.events(run=raised.run_id)).events
    assert events[0].data["limits"]["steps"] == 77


async def test_a_run_that_failed_outside_its_steps_is_retried_with_their_results(
    api: Api,
) -> None:
    done: list[str] = []

    @api.session.node
    async def paid(context: Any) -> str:
        done.append("paid")
        return "paid"

    @api.session.workflow
    async def clumsy(ctx: Any) -> str:
        result = await ctx.run("paid")
        if len(done) == 1:
            done.append("stumbled")
            raise KeyError("a slip")
        return str(result.output)

    failed = await api.start(workflow="clumsy", wait=True)
    assert failed.state == "failed"
    again = await api.retry(run=failed.run_id)
    assert (await over(api, again.run_id)).result == "paid"
    assert done == ["paid", "stumbled"]


async def test_a_step_of_a_finished_run_is_retried_by_its_path(api: Api) -> None:
    done: list[str] = []

    @api.session.node
    async def step(context: Any) -> Any:
        done.append(context.input)
        return context.input

    @api.session.workflow
    async def three(ctx: Any) -> list[str]:
        return [(await ctx.run("step", name)).output for name in "abc"]

    first = await api.start(workflow="three", wait=True)
    again = await api.retry(run=first.run_id, path="/step[2]")
    assert (await over(api, again.run_id)).result == ["a", "b", "c"]
    assert done == ["a", "b", "c", "b"]
    assert (await refusal(api.retry(run=first.run_id, path="/step[9]"))).code == "refused"


async def test_a_message_is_routed_to_a_workflow_and_started(api: Api) -> None:
    decided = await api.route(text="hello: say it")
    assert (decided.kind, decided.workflow, decided.run) == ("workflow", "hello", None)
    started = await api.route(text="hello: say it", start=True, conversation="c")
    assert started.run.workflow == "hello"
    assert [run.run_id for run in (await api.runs(conversation="c")).runs] == [started.run.run_id]
    assert (await api.route(text="what is the weather like")).kind in ("conversation", "question")
    assert (await refusal(api.route())).code == "bad_request"


@pytest.mark.requirement("S3-09")
async def test_the_definitions_of_a_project_are_reloaded_with_an_error_for_each_bad_file(
    memory: Api, tmp_path: Path
) -> None:
    folder = tmp_path / ".archon" / "workflows"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text(ASKS)
    (folder / "b.yaml").write_text("name: b\nbody: {kind: nothing}\n")
    (folder / "c.yaml").write_text("name: hello\nbody: {kind: gate, id: g}\n")
    reply = await memory.reload()
    assert reply.workflows == 1
    assert sorted(Path(problem["file"]).name for problem in reply.problems) == ["b.yaml", "c.yaml"]
    run = await memory.start(workflow="written", params={"tone": "Calm"}, wait=True)
    (folder / "a.yaml").write_text(ASKS.replace("}}?", "}}!"))
    await memory.reload()
    later = await memory.start(workflow="written", params={"tone": "Loud"}, wait=True)
    assert (run.gates[0].prompt, later.gates[0].prompt) == ("Calm?", "Loud!")
    await memory.answer(run=run.run_id, answer="yes")
    assert (await over(memory, run.run_id)).result == "yes"


async def test_workflows_without_files_are_dropped_and_their_open_runs_continue(
    memory: Api, tmp_path: Path
) -> None:
    folder = tmp_path / ".nerve" / "workflows"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text(ASKS)
    (folder / "other.yaml").write_text("name: other\nbody: {kind: transform, expression: '1'}\n")
    assert (await memory.reload()).workflows == 2
    assert len((await memory.facts(pattern="(workflow-definition :id written)")).facts) == 1
    run = await memory.start(workflow="written", params={"tone": "Calm"}, wait=True)
    text = (folder / "a.yaml").read_text()
    (folder / "a.yaml").write_text("name: [")
    torn = await memory.reload()
    assert (torn.removed, len(torn.problems)) == ([], 1)  # a half-written file removes nothing
    (folder / "a.yaml").unlink()
    assert (await memory.reload()).removed == ["written"]
    assert (await memory.reload()).removed == []
    assert (await memory.facts(pattern="(workflow-definition :id written)")).facts == []
    assert "written" not in {each.id for each in (await memory.workflows()).workflows}
    assert {"hello", "other"} <= {each.id for each in (await memory.workflows()).workflows}
    assert (await refusal(memory.start(workflow="written"))).code == "not_found"
    await memory.answer(run=run.run_id, answer="yes")
    assert (await over(memory, run.run_id)).result == "yes"
    (folder / "b.yaml").write_text(text)
    assert (await memory.reload()).removed == []
    (folder / "b.yaml").write_text(text.replace("name: written", "name: renamed"))
    assert (await memory.reload()).removed == ["written"]


async def test_workflows_from_other_sources_are_not_dropped_with_a_file(memory: Api, tmp_path: Path) -> None:
    folder = tmp_path / ".nerve" / "workflows"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text(ASKS)
    await memory.reload()
    memory.session.load(ASKS.replace("}}?", "}}!"), "yaml")
    (folder / "a.yaml").unlink()
    assert (await memory.reload()).removed == []
    run = await memory.start(workflow="written", params={"tone": "Calm"}, wait=True)
    assert run.gates[0].prompt == "Calm!"


async def test_an_unknown_operation_is_refused(api: Api) -> None:
    error = await refusal(api.perform("explode", {}))
    assert error.code == "not_found"
    assert all(name in error.fix for name in OPERATIONS)
    with pytest.raises(AttributeError):
        _ = api.explode


async def test_a_finished_run_stays_finished_when_it_is_stopped_paused_or_resumed(
    api: Api,
) -> None:
    run = await api.start(workflow="hello", input="you", wait=True)
    for _ in range(2):
        assert (await api.stop(run=run.run_id)) == run
    for refused in (api.pause(run=run.run_id), api.resume(run=run.run_id)):
        assert (await refusal(refused)).code == "conflict"
