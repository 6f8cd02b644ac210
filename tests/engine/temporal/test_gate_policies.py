"""Gates that several people decide, in runs that a Temporal cluster executes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal
from engine.temporal.api_servers import open_servers, wait_for_end, wait_for_gate, wait_for_run
from engine.temporal.temporal_runs import open_runs
from nerve import Session, WorkflowContext
from nerve.api import Api
from nerve.api.callers import Caller
from nerve.journal.events import decode_event

PEOPLE = {"ann": ["lead"], "ben": ["security"], "cat": ["lead", "security"], "eve": []}
POLICIES: dict[str, dict[str, Any]] = {
    "two": {"approvers": ["lead", "security"], "quorum": 2},
    "veto": {"approvers": ["lead"], "quorum": 2, "veto": ["security"]},
    "claimed": {"approvers": ["lead"], "claim": True},
    "slow": {"approvers": ["lead"], "remind": [0.3], "escalate": [{"after": 0.6, "to": ["eve"]}]},
    "expiring": {"approvers": ["lead"], "quorum": 2, "timeout": 1.5, "remind": [60]},
}


def register(session: Session) -> None:
    @session.workflow
    async def ship(ctx: WorkflowContext) -> str:
        return str(await ctx.gate("Ship?", choices=["approve", "reject"], **POLICIES[ctx.input]))

    @session.workflow
    async def release(ctx: WorkflowContext) -> str:
        return str(await ctx.run_workflow("ship", ctx.input))


@pytest.fixture
async def servers(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[list[Api]]:
    """The APIs of two servers that know the same people."""
    async with open_servers(temporal_url, postgresql_url, tmp_path, register) as apis:
        for name, roles in PEOPLE.items():
            await apis[0].add_person(person=name, roles=roles, scope="member")
        yield apis


async def open_gate(api: Api, policy: str, workflow: str = "ship", by: str = "token:run") -> tuple[str, Any]:
    """Start a run with a gate; return its id and the gate."""
    run = await api.as_caller(Caller(by, "http", "member")).start(workflow=workflow, input=policy)
    return run.run_id, await wait_for_gate(api, run.run_id)


async def act(api: Api, gate: Any, name: str, answer: Any = "approve", **fields: Any) -> Any:
    person = api.as_caller(Caller(f"person:{name}", "http", "member", address="10.0.0.7"))
    return await person.answer(
        run=gate.run_id, gate=gate.gate_id, answer=answer, **{"hash": gate.hash, **fields}
    )


async def gate_events(api: Api, run: str) -> list[Any]:
    events = (await api.events(run=run)).events
    return [event for event in events if event.event_type.startswith("gate_")]


async def types_of(api: Api, run: str) -> list[str]:
    return [event.event_type for event in await gate_events(api, run)]


async def test_two_people_decide_at_two_servers(servers: list[Api]) -> None:
    first, second = servers
    run, gate = await open_gate(first, "two")
    told = await act(first, gate, "ann", reason="fine", key="k")
    assert (told.by, told.address, told.action) == ("person:ann", "10.0.0.7", "answer")
    assert await act(second, gate, "ann", reason="fine", key="k") == told
    for api in servers:
        [shown] = (await api.run(run=run)).gates
        assert [(vote["person"], vote["answer"], vote["reason"]) for vote in shown.votes] == [
            ("ann", "approve", "fine")
        ]
        assert (shown.hash, shown.missing) == (gate.hash, "1 person of lead, security")
    assert (await refusal(act(second, gate, "eve"))).message == (
        "'eve' is not one of the approvers: lead, security"
    )
    await act(second, gate, "ben")
    assert (await wait_for_end(first, run)).result == "approve"
    assert await types_of(first, run) == ["gate_waiting", "gate_voted", "gate_answered"]
    answered = (await gate_events(first, run))[-1].data
    assert [(vote["person"], vote["address"]) for vote in answered["votes"]] == [
        ("ann", "10.0.0.7"),
        ("ben", "10.0.0.7"),
    ]
    error = await refusal(act(first, gate, "cat", "reject"))
    assert (error.code, error.details["winner"]["answer"]) == ("conflict", "approve")


@pytest.mark.full
async def test_a_veto_rejects_alone(servers: list[Api]) -> None:
    run, gate = await open_gate(servers[0], "veto")
    await act(servers[0], gate, "ann")
    await act(servers[1], gate, "ben", "reject")
    assert (await wait_for_end(servers[0], run)).result == "reject"


@pytest.mark.full
async def test_a_gate_is_claimed_released_and_delegated(servers: list[Api]) -> None:
    first, second = servers
    run, gate = await open_gate(first, "claimed")
    await act(first, gate, "ann", None, action="claim")
    assert (await refusal(act(second, gate, "cat"))).message == "'ann' has claimed this gate"
    await act(second, gate, "ann", None, action="release")
    await act(first, gate, "cat", "eve", action="delegate")
    await act(second, gate, "eve")
    assert (await wait_for_end(first, run)).result == "approve"
    assert await types_of(first, run) == [
        *("gate_waiting", "gate_claimed", "gate_released", "gate_delegated", "gate_answered")
    ]


@pytest.mark.full
async def test_reminders_and_escalations_come_when_they_are_due(servers: list[Api]) -> None:
    run, gate = await open_gate(servers[0], "slow")
    await wait_for_run(servers[1], run, lambda shown: "eve" in shown.gates[0].approvers)
    waiting, reminded, escalated = await gate_events(servers[1], run)
    assert [reminded.event_type, escalated.event_type] == ["gate_reminded", "gate_escalated"]
    assert (reminded.timestamp - waiting.timestamp).total_seconds() >= 0.3
    assert (escalated.timestamp - waiting.timestamp).total_seconds() >= 0.6
    await act(servers[1], gate, "eve")
    assert (await wait_for_end(servers[0], run)).result == "approve"


@pytest.mark.full
async def test_a_gate_with_a_vote_fails_at_its_timeout(servers: list[Api]) -> None:
    run, gate = await open_gate(servers[0], "expiring")
    await act(servers[0], gate, "ann")
    assert (await wait_for_end(servers[1], run)).state == "failed"
    assert await types_of(servers[1], run) == ["gate_waiting", "gate_voted", "gate_timeout"]


@pytest.mark.full
async def test_who_started_the_run_cannot_approve_the_gate_of_a_child_run(servers: list[Api]) -> None:
    run, gate = await open_gate(servers[0], "claimed", "release", by="person:ann")
    error = await refusal(act(servers[1], gate, "ann"))
    assert error.message == "'ann' started the run and cannot approve it"
    await act(servers[1], gate, "cat")
    assert (await wait_for_end(servers[0], run)).result == "approve"


@pytest.mark.full
async def test_people_race_at_two_servers_and_the_gate_is_decided_once(servers: list[Api]) -> None:
    for number in range(20):
        await servers[0].add_person(person=f"p{number}", roles=["lead"])
    run, gate = await open_gate(servers[0], "two")
    answers = ["approve" if number % 2 else "reject" for number in range(20)]
    replies = await asyncio.gather(
        *(act(servers[number // 2 % 2], gate, f"p{number}", each) for number, each in enumerate(answers)),
        return_exceptions=True,
    )
    ended = await wait_for_end(servers[0], run)
    *voted, answered = (await gate_events(servers[0], run))[1:]
    assert len([each for each in replies if not isinstance(each, Exception)]) == len(voted) + 1
    assert {each.code for each in replies if isinstance(each, Exception)} == {"conflict"}
    assert (answered.event_type, answered.data["answer"]) == ("gate_answered", ended.result)
    assert {(each["answer"]) for each in answered.data["votes"]} == {ended.result}


@pytest.mark.full
@pytest.mark.parametrize("max_cached_workflows", [100, 0], ids=["kept", "rebuilt"])
async def test_votes_and_reminders_survive_new_histories_and_workers_that_replay_them(
    temporal_url: str, max_cached_workflows: int
) -> None:
    session = Session()

    @session.workflow
    async def crowd(ctx: WorkflowContext) -> str:
        return str(await ctx.gate("Ship?", choices=["yes", "no"], quorum=12, remind=[0.1, 0.2, 3600]))

    async with open_runs(temporal_url, session, max_cached_workflows) as runs:
        run = await runs.start("crowd", history_events=30)
        gate = await run.next_wait()
        for number in range(12):
            voter = {"name": f"p{number}", "roles": [], "started_run": False}
            await run.command("answer", gate=gate.path, value="yes", by=f"person:p{number}", voter=voter)
        assert await run.wait() == "yes"
        assert await run.count_histories() > 1
    assert (run.types.count("gate_waiting"), run.types.count("gate_voted")) == (1, 11)
    assert run.types.count("gate_reminded") <= 2
    assert len(decode_event(run.rows[-2]).votes) == 12  # type: ignore[attr-defined]
    assert [row.seq for row in run.rows] == list(range(1, len(run.rows) + 1))
