"""Forks do not pass around a gate: what was decided for one run does not count for a changed copy."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest

from api.support import refusal
from core.workflow.support import until
from nerve import FunctionNode, Session
from nerve.api import Api
from nerve.api.callers import Caller, Grant
from nerve.core.nodes.control import GateNode, SwitchNode

FORKING: list[Grant] = ["run", "member", "admin"]
CHOICES = ["approve", "reject"]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with Session(store=tmp_path / "nerve.db") as session:
        register(session)
        api = Api(session)
        for name in ("ann", "ben"):
            await api.add_person(person=name, roles=["lead"], scope="member")
        yield api


def register(session: Session) -> None:
    async def deploy(context: Any) -> str:
        return f"deployed {context.input}"

    async def leave(context: Any) -> str:
        return "nothing"

    cases = {
        "approve": FunctionNode("deploy", session, deploy),
        "reject": FunctionNode("leave", session, leave),
    }
    SwitchNode("choose", session, lambda answer: answer, cases)
    GateNode("decide", session, "Ship?", choices=CHOICES)
    GateNode("agree", session, "Ship?", choices=CHOICES, approvers=["lead"])

    async def ship(ctx: Any, gate: str) -> str:
        answer = (await ctx.run(gate, "it"))["output"]
        return str((await ctx.run("choose", answer))["output"])

    @session.workflow
    async def plain(ctx: Any) -> str:
        return await ship(ctx, "decide")

    @session.workflow
    async def agreed(ctx: Any) -> str:
        return await ship(ctx, "agree")

    @session.workflow
    async def asked(ctx: Any) -> str:
        return str(await ctx.gate("Ship?", choices=CHOICES, approvers=["lead"], quorum=2))

    @session.workflow
    async def outer(ctx: Any) -> str:
        answer = await ctx.run_workflow("asked")
        return str((await ctx.run("choose", answer))["output"])


def caller(api: Api, scope: Grant) -> Api:
    return api.as_caller(Caller(f"token:{scope}", "http", scope))


async def decide(api: Api, workflow: str, answer: str, people: tuple[str, ...] = ("ann",)) -> str:
    """Return a run whose gate is answered, and that has ended."""
    run = await caller(api, "run").start(workflow=workflow, wait=True)
    for name in people:
        person = api.as_caller(Caller(f"person:{name}", "http", "member"))
        gate = run.gates[0]
        await person.answer(run=run.run_id, gate=gate.gate_id, answer=answer, hash=gate.hash)
    await api.session.get_workflow_run(run.run_id).wait()
    return str(run.run_id)


async def settled(api: Api, run: str) -> Any:
    await until(lambda: api.session.get_workflow_run(run).state.value in ("waiting", "completed", "failed"))
    return await api.run(run=run)


@pytest.mark.parametrize("scope", get_args(Grant))
async def test_a_token_may_change_a_step_after_an_answer_only_if_it_may_answer(
    api: Api, scope: Grant
) -> None:
    run = await decide(api, "plain", "reject")
    forking = caller(api, scope).fork(run=run, at="/choose", input="approve")
    if scope in ("member", "admin"):
        assert (await settled(api, (await forking).run_id)).result == "deployed approve"
        return
    error = await refusal(forking)
    assert error.code == "forbidden"
    if scope == "run":
        assert "after the gate at '/decide/answer', so it needs the scope 'answer'" in error.message
    assert len((await api.runs()).runs) == 1


@pytest.mark.parametrize("scope", FORKING)
@pytest.mark.parametrize(
    "change",
    [
        {"at": "/choose", "input": "approve"},
        {"overrides": {"/choose": {"input": "approve"}}},
        {"overrides": {"/choose/reject": {"input": "approve"}}},
    ],
)
async def test_what_people_have_decided_does_not_count_for_changed_steps(
    api: Api, scope: Grant, change: dict[str, Any]
) -> None:
    run = await decide(api, "agreed", "reject")
    error = await refusal(caller(api, scope).fork(run=run, **change))
    assert error.code == "refused"
    assert error.message.endswith("people have decided the gate at '/agree/answer' without that")
    assert error.fix == "Fork at '/agree/answer', so that the gate asks again."
    assert len((await api.runs()).runs) == 1


@pytest.mark.parametrize("workflow", ["plain", "agreed", "asked"])
@pytest.mark.parametrize("fields", [{"input": "approve"}, {"output": "approve"}, {"answer": "approve"}])
async def test_an_override_of_a_gate_asks_again(api: Api, workflow: str, fields: dict[str, Any]) -> None:
    """No override is an answer, whoever gives it."""
    run = await decide(api, workflow, "reject", ("ann", "ben") if workflow == "asked" else ("ann",))
    [path] = [row.path for row in api.session.engine.store.events(run) if row.type == "gate_waiting"]
    for at in {path, "/" + path.split("/")[1]}:
        for scope in FORKING:
            forked = await caller(api, scope).fork(run=run, overrides={at: fields})
            shown = await settled(api, forked.run_id)
            assert (shown.state, shown.gates[0].votes) == ("waiting", [])
            assert (shown.gates[0].policy is None) == (workflow == "plain")


async def test_a_fork_at_the_gate_asks_again_and_keeps_the_changes(api: Api) -> None:
    run = await decide(api, "agreed", "reject")
    overrides = {"/choose": {"input": "approve"}}
    forked = await caller(api, "run").fork(run=run, at="/agree/answer", overrides=overrides)
    shown = await settled(api, forked.run_id)
    assert shown.state == "waiting"
    person = api.as_caller(Caller("person:ben", "http", "member"))
    await person.answer(run=forked.run_id, answer="approve", hash=shown.gates[0].hash)
    assert (await settled(api, forked.run_id)).result == "deployed approve"


async def test_the_gate_of_a_child_run_is_not_passed_around(api: Api) -> None:
    run = await decide(api, "outer", "reject", ("ann", "ben"))
    error = await refusal(caller(api, "admin").fork(run=run, overrides={"/choose": {"input": "approve"}}))
    assert error.message.endswith("people have decided the gate at '/asked' without that")


async def test_a_fork_without_changes_reuses_the_decision(api: Api) -> None:
    run = await decide(api, "agreed", "approve")
    again = await caller(api, "run").fork(run=run, at="/choose", overrides={"/choose": {}})
    assert (await settled(api, again.run_id)).result == "deployed approve"


@pytest.mark.parametrize("scope", FORKING)
async def test_skip_and_retry_do_not_answer_a_gate(api: Api, scope: Grant) -> None:
    for workflow in ("plain", "agreed"):
        run = await api.start(workflow=workflow, wait=True)
        path = run.gates[0].path
        for skipping in (
            caller(api, scope).skip(run=run.run_id, path=path, output="approve"),
            caller(api, scope).retry(run=run.run_id, path=path, output="approve"),
        ):
            assert "only a held run has a step in doubt" in (await refusal(skipping)).message
        assert (await api.run(run=run.run_id)).state == "waiting"
    ended = await decide(api, "agreed", "reject")
    again = await caller(api, scope).retry(run=ended, path="/agree/answer", output="approve")
    assert (await settled(api, again.run_id)).state == "waiting"


async def test_votes_at_an_open_gate_do_not_count_in_a_fork(api: Api) -> None:
    """They were given for one run; both gates have a decision of their own."""
    run = (await caller(api, "run").start(workflow="asked", wait=True)).run_id
    ann, ben = (api.as_caller(Caller(f"person:{name}", "http", "member")) for name in ("ann", "ben"))
    gate = (await api.run(run=run)).gates[0]
    await ann.answer(run=run, answer="approve", hash=gate.hash)
    forked = (await caller(api, "run").fork(run=run)).run_id
    copy = (await settled(api, forked)).gates[0]
    assert (copy.votes, copy.missing, copy.hash == gate.hash) == ([], "2 people of lead", False)
    assert [row.type for row in api.session.engine.store.events(forked)] == [
        *("workflow_started", "gate_waiting")
    ]
    error = await refusal(ben.answer(run=forked, answer="approve", hash=gate.hash))
    assert error.code == "conflict"
    await ben.answer(run=forked, answer="approve", hash=copy.hash)
    assert (await api.run(run=forked)).state == "waiting"
    await asyncio.gather(
        ann.answer(run=forked, answer="approve", hash=copy.hash),
        ben.answer(run=run, answer="approve", hash=gate.hash),
    )
    for each in (run, forked):
        assert (await settled(api, each)).result == "approve"


# -- self-approval through forks -----------------------------------------------------------------------


def member(api: Api, name: str) -> Api:
    return api.as_caller(Caller(f"person:{name}", "http", "member"))


async def approve(api: Api, run: str) -> Any:
    [gate] = (await settled(api, run)).gates
    return await api.answer(run=run, answer="approve", hash=gate.hash)


async def test_who_has_started_the_source_of_a_fork_cannot_approve_it(api: Api) -> None:
    """Also through a fork of the fork, a retry, and after the source was deleted."""
    ann, ben = member(api, "ann"), member(api, "ben")
    source = (await ann.start(workflow="agreed", wait=True)).run_id
    forked = (await ben.fork(run=source)).run_id
    again = (await caller(api, "run").fork(run=forked)).run_id
    for run in (forked, again):
        for person, name in ((ann, "ann"), (ben, "ben")):
            error = await refusal(approve(person, run))
            assert error.message == f"'{name}' started the run and cannot approve it"
    for run in (source, forked):
        await api.stop(run=run)
        await api.delete(run=run)
    assert "'ann' started the run" in (await refusal(approve(ann, again))).message
    await api.add_person(person="cay", roles=["lead"])
    await approve(member(api, "cay"), again)
    assert (await settled(api, again)).result == "deployed approve"


async def test_who_has_started_a_run_that_starts_another_cannot_approve_that(api: Api) -> None:
    @api.session.workflow
    async def starter(ctx: Any) -> str:
        return str(await ctx.start("asked", detached=True))

    run = (await member(api, "ann").start(workflow="starter", wait=True)).run_id
    started = str((await settled(api, run)).result)
    assert "'ann' started the run" in (await refusal(approve(member(api, "ann"), started))).message


# -- definitions ---------------------------------------------------------------------------------------

UNGUARDED = 'name: release\ndescription: x\nnodes:\n  - id: deploy\n    bash: "true"\n'
GUARDED = UNGUARDED.replace("nodes:\n", "nodes:\n  - id: ask\n    gate: {prompt: Ship?, approvers: [lead]}\n")


async def test_a_token_for_runs_cannot_choose_a_definition_without_the_gate(api: Api) -> None:
    old = (await api.define(source=UNGUARDED, notation="yaml")).hash
    first = (await api.start(workflow="release", wait=True)).run_id
    new = (await api.define(source=GUARDED, notation="yaml")).hash
    run = (await api.start(workflow="release", wait=True)).run_id
    for scope in ("run", "member"):
        limited = caller(api, scope)
        for request in (
            limited.fork(run=run, definition=old),
            limited.start(workflow="release", definition=old),
        ):
            error = await refusal(request)
            assert error.code == "forbidden"
            assert error.message == f"Definition '{old}' is not the current one of workflow 'release'"
        for definition in ("current", new):
            forked = await limited.fork(run=first, definition=definition)
            assert (await settled(api, forked.run_id)).state == "waiting"
        preview = await limited.preview_fork(run=run, definition=old)
        assert preview.refusal["code"] == "forbidden"
        assert (await limited.preview_fork(run=run, definition=new)).refusal is None
    assert (await caller(api, "admin").fork(run=run, definition=old)).run_id


async def test_a_preview_says_what_the_fork_would_refuse(api: Api) -> None:
    run = await decide(api, "agreed", "reject")
    change = {"overrides": {"/choose": {"input": "approve"}}}
    error = await refusal(caller(api, "admin").fork(run=run, **change))
    preview = await caller(api, "admin").preview_fork(run=run, overridden=["/choose"])
    assert preview.refusal == error.to_dict()
    assert (await api.preview_fork(run=run, at="/choose", new_input=True)).refusal == error.to_dict()
    assert (await api.preview_fork(run=run, at="/choose")).refusal is None
    plain = await decide(api, "plain", "reject")
    shown = await caller(api, "read").preview_fork(run=plain, overridden=["/choose"])
    assert shown.refusal["code"] == "forbidden"
