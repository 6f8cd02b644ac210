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
