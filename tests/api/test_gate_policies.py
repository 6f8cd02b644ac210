"""Gates that several people decide: over the API, in the journal, over restarts, and against races."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal
from core.workflow.support import until
from nerve import Session
from nerve.api import Api
from nerve.api.callers import Caller
from nerve.journal.index import read_events
from nerve.journal.replay import Replay
from nerve.testing import VirtualClock

PEOPLE = {"ann": ["lead"], "amy": ["lead"], "ben": ["security"], "cat": ["lead", "security"], "eve": []}


def with_gate(session: Session, **policy: Any) -> Api:
    @session.workflow
    async def ship(ctx: Any) -> str:
        return str(await ctx.gate("Ship?", choices=["approve", "reject"], **policy))

    return Api(session)


async def open_gate(session: Session, by: str = "token:run", **policy: Any) -> tuple[Api, str]:
    """Start a run with a gate, with people; return the API and the id of the run."""
    api = with_gate(session, **policy)
    for name, roles in PEOPLE.items():
        await api.add_person(person=name, roles=roles, scope="member")
    run = await api.as_caller(Caller(by, "http", "member")).start(workflow="ship", wait=True)
    return api, run.run_id


def person(api: Api, name: str) -> Api:
    return api.as_caller(Caller(f"person:{name}", "http", "member", address="10.0.0.7"))


async def vote(api: Api, run: str, name: str, answer: str = "approve", **fields: Any) -> Any:
    gate = (await api.run(run=run)).gates[0]
    return await person(api, name).answer(run=run, answer=answer, hash=gate.hash, **fields)


async def gate_of(api: Api, run: str) -> Any:
    return (await api.run(run=run)).gates[0]


def events_of(api: Api, run: str) -> list[str]:
    return [row.type for row in api.session.engine.store.events(run) if row.type.startswith("gate_")]


async def test_two_people_decide(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead", "security"], quorum=2)
        told = await vote(api, run, "ann", reason="fine")
        assert (told.by, told.address, told.action) == ("person:ann", "10.0.0.7", "answer")
        gate = await gate_of(api, run)
        assert [(each["person"], each["answer"], each["reason"]) for each in gate.votes] == [
            ("ann", "approve", "fine")
        ]
        assert gate.missing == "1 person of lead, security"
        await vote(api, run, "ben")
        assert await session.get_workflow_run(run).wait() == "approve"
        assert events_of(api, run) == ["gate_waiting", "gate_voted", "gate_answered"]
        [answered] = [e for e in (await api.events(run=run)).events if e.event_type == "gate_answered"]
        assert [each["person"] for each in answered.data["votes"]] == ["ann", "ben"]
        assert answered.data["by"] == "person:ben"
        assert len({each["hash"] for each in answered.data["votes"]} | {gate.hash}) == 1


async def test_each_role_is_needed_once(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, quorum="2 of [lead, security]")
        for name in ("ann", "amy"):
            await vote(api, run, name)
        assert (await gate_of(api, run)).missing == "1 person of security"
        await vote(api, run, "cat")
        assert await session.get_workflow_run(run).wait() == "approve"


async def test_what_is_no_person_cannot_answer(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead"])
        gate = await gate_of(api, run)
        for caller in (
            Caller("token:admin", "http", "admin"),
            Caller("unix:ada", "cli"),
            Caller("api", "api"),
        ):
            error = await refusal(api.as_caller(caller).answer(run=run, answer="approve", hash=gate.hash))
            assert (error.code, "is answered by people" in error.message) == ("forbidden", True)
        error = await refusal(vote(api, run, "ben"))
        assert error.message == "'ben' is not one of the approvers: lead"
        error = await refusal(person(api, "ann").answer(run=run, answer="approve"))
        assert error.message.endswith("needs its hash")
        error = await refusal(person(api, "ann").answer(run=run, answer="approve", hash="old"))
        assert error.code == "conflict"
        assert events_of(api, run) == ["gate_waiting"]


async def test_the_user_of_this_machine_may_be_a_person(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead"])
        await api.change_person(person="ann", contacts={"unix": "ada"})
        gate = await gate_of(api, run)
        told = await api.as_caller(Caller("unix:ada", "cli")).answer(
            run=run, answer="approve", hash=gate.hash
        )
        assert told.by == "unix:ada"
        assert await session.get_workflow_run(run).wait() == "approve"


@pytest.mark.parametrize("starter", ["person:ann", "unix:ada"])
async def test_who_started_the_run_cannot_approve_it(tmp_path: Path, starter: str) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, by=starter, approvers=["lead"])
        await api.change_person(person="ann", contacts={"unix": "ada"})
        assert (await refusal(vote(api, run, "ann"))).message == "'ann' started the run and cannot approve it"
        await vote(api, run, "cat")
        assert await session.get_workflow_run(run).wait() == "approve"


async def test_a_disabled_person_and_a_taken_role_do_not_count(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead"])
        await api.change_person(person="ann", disabled=True)
        await api.change_person(person="amy", roles=[])
        assert (await refusal(vote(api, run, "ann"))).code == "forbidden"
        assert (await refusal(vote(api, run, "amy"))).code == "forbidden"


async def test_a_vote_may_be_changed_until_the_gate_is_decided(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead"], quorum=2)
        await vote(api, run, "ann")
        await vote(api, run, "ann", "reject")
        await vote(api, run, "cat", "reject")
        assert await session.get_workflow_run(run).wait() == "reject"
        error = await refusal(person(api, "amy").answer(run=run, answer="approve", hash="x"))
        assert error.details["winner"]["answer"] == "reject"


async def test_a_repeated_key_is_one_vote(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead"], quorum=2)
        first = await vote(api, run, "ann", key="k")
        assert await vote(api, run, "ann", key="k") == first
        assert events_of(api, run) == ["gate_waiting", "gate_voted"]


async def test_a_gate_is_delegated_claimed_and_released(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["lead"], claim=True)
        await person(api, "ann").answer(run=run, action="claim")
        assert (await gate_of(api, run)).claimed_by == "ann"
        assert (await refusal(vote(api, run, "cat"))).message == "'ann' has claimed this gate"
        await person(api, "ann").answer(run=run, action="release")
        error = await refusal(person(api, "cat").answer(run=run, action="delegate", answer="evi"))
        assert (error.message, error.fix) == ("Person 'evi' not found", "Did you mean 'eve'?")
        await person(api, "cat").answer(run=run, action="delegate", answer="eve")
        await vote(api, run, "eve")
        assert await session.get_workflow_run(run).wait() == "approve"
        assert events_of(api, run) == [
            *("gate_waiting", "gate_claimed", "gate_released", "gate_delegated", "gate_answered")
        ]


async def test_a_delegation_may_decide_with_a_vote_that_was_given(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, quorum="2 of [lead, security]")
        await vote(api, run, "ann")
        await vote(api, run, "amy")
        await person(api, "ben").answer(run=run, action="delegate", answer="amy")
        assert await session.get_workflow_run(run).wait() == "approve"
        assert events_of(api, run)[-2:] == ["gate_delegated", "gate_answered"]


async def test_a_gate_without_a_policy_takes_only_answers(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session)
        error = await refusal(person(api, "ann").answer(run=run, action="claim"))
        assert "has no policy" in error.message
        assert (await gate_of(api, run)).policy is None


async def test_fifty_people_race_on_one_gate(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api, run = await open_gate(session, approvers=["crowd"], quorum=20)
        for number in range(50):
            await api.add_person(person=f"p{number}", roles=["crowd"])
        gate = await gate_of(api, run)
        answers = ["approve" if number % 2 else "reject" for number in range(50)]
        replies = await asyncio.gather(
            *(
                person(api, f"p{number}").answer(run=run, answer=answer, hash=gate.hash)
                for number, answer in enumerate(answers)
            ),
            return_exceptions=True,
        )
        outcome = await session.get_workflow_run(run).wait()
        rows = (await api.events(run=run)).events
        [answered] = [e for e in rows if e.event_type == "gate_answered"]
        voted = [e for e in rows if e.event_type == "gate_voted"]
        accepted = [each for each in replies if not isinstance(each, Exception)]
        assert len(accepted) == len(voted) + 1
        assert {each.code for each in replies if isinstance(each, Exception)} == {"conflict"}
        assert answered.data["answer"] == outcome
        assert len(answered.data["votes"]) == 20
        assert {each["answer"] for each in answered.data["votes"]} == {outcome}


async def test_votes_survive_a_restart_at_each_of_them(tmp_path: Path) -> None:
    file = tmp_path / "nerve.db"
    policy = {"quorum": "3 of [lead, security, admin]", "escalate": [{"after": 1e6, "to": ["eve"]}]}
    async with Session(store=file) as session:
        _, run = await open_gate(session, **policy)
    for name in ("ann", "ben"):
        async with Session(store=file) as session:
            api = with_gate(session, **policy)
            await vote(api, run, name)
    async with Session(store=file) as session:
        api = with_gate(session, **policy)
        await session.recover()
        gate = await gate_of(api, run)
        assert [each["person"] for each in gate.votes] == ["ann", "ben"]
        [listed] = (await api.gates()).gates
        assert (listed.votes, listed.hash, listed.missing) == (gate.votes, gate.hash, "1 person of admin")
        await api.add_person(person="dan", roles=["admin"])
        await vote(api, run, "dan")
        assert await session.get_workflow_run(run).wait() == "approve"
        # The body does not repeat what people did at its gate.
        assert Replay(read_events(session.engine.store.events(run))).has_stops is False


async def test_reminders_and_escalations_are_recorded_once_and_survive_a_restart(tmp_path: Path) -> None:
    file, clock = tmp_path / "nerve.db", VirtualClock(skip=False)
    policy = {"approvers": ["lead"], "remind": [10, 100], "escalate": [{"after": 50, "to": ["eve"]}]}
    async with Session(store=file, clock=clock) as session:
        api, run = await open_gate(session, **policy)
        await clock.advance(20)
        await until(lambda: events_of(api, run) == ["gate_waiting", "gate_reminded"])
    await clock.advance(40)
    async with Session(store=file, clock=clock) as session:
        api = with_gate(session, **policy)
        await session.recover()
        await clock.advance(1)
        await until(lambda: events_of(api, run) == ["gate_waiting", "gate_reminded", "gate_escalated"])
        assert (await gate_of(api, run)).approvers == ["eve", "lead"]
        await vote(api, run, "eve")
        assert await session.get_workflow_run(run).wait() == "approve"


async def test_a_gate_of_a_child_run_is_decided_by_people(tmp_path: Path) -> None:
    async with Session(store=tmp_path / "nerve.db") as session:
        api = with_gate(session, approvers=["lead"])

        @session.workflow
        async def release(ctx: Any) -> str:
            return str(await ctx.run_workflow("ship"))

        for name in ("ann", "cat"):
            await api.add_person(person=name, roles=["lead"], scope="member")
        run = await person(api, "ann").start(workflow="release", wait=True)
        assert run.error is None
        error = await refusal(vote(api, run.run_id, "ann"))
        assert error.message == "'ann' started the run and cannot approve it"
        await vote(api, run.run_id, "cat")
        assert await session.get_workflow_run(run.run_id).wait() == "approve"


@pytest.mark.parametrize("policy", [{}, {"approvers": ["lead"]}])
async def test_the_hash_of_a_gate_is_the_same_after_a_restart(tmp_path: Path, policy: dict[str, Any]) -> None:
    file = tmp_path / "nerve.db"
    async with Session(store=file) as session:
        api, run = await open_gate(session, **policy)
        before = (await gate_of(api, run)).hash
    async with Session(store=file) as session:
        api = with_gate(session, **policy)
        assert (await gate_of(api, run)).hash == before
        await session.recover()
        assert (await gate_of(api, run)).hash == before
