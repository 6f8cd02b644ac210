"""The audit says everything that was decided, by whom, by which way and from where, if no chain is broken."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from api.support import refusal
from core.workflow.support import until
from nerve import FunctionNode, Session
from nerve.api import Api
from nerve.api.callers import Caller
from nerve.api.models import AuditEntry
from nerve.client import Client
from nerve.core.people import hash_token
from nerve.crypto import KEY_BYTES, AesGcmCodec
from nerve.store.postgres import PostgresStore

CHOICES = ["approve", "reject"]
STARTER = Caller("token:run", "http", "run", address="10.0.0.7")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with Session(store=tmp_path / "nerve.db") as session:
        yield await with_people(session)


async def with_people(session: Session) -> Api:
    register(session)
    api = Api(session)
    await api.add_person(person="ann", roles=["lead"], contacts={"unix": "ada"})
    await api.add_person(person="ben", roles=["lead"])
    return api


def register(session: Session) -> None:
    async def work(context: Any) -> str:
        return "worked"

    FunctionNode("work", session, work)

    @session.workflow
    async def ship(ctx: Any) -> str:
        return str(await ctx.gate("Ship?", choices=CHOICES, approvers=["lead"], quorum=2))

    @session.workflow
    async def plain(ctx: Any) -> str:
        return str(await ctx.gate("Go on?", choices=CHOICES))

    @session.workflow
    async def outer(ctx: Any) -> str:
        await ctx.run("work")
        return str(await ctx.run_workflow("plain"))


def as_person(api: Api, name: str, via: str = "page") -> Api:
    return api.as_caller(Caller(f"person:{name}", via, "member", address="192.0.2.1"))


async def entries(api: Api, **filters: Any) -> list[AuditEntry]:
    return (await Client(api).all_audit_entries(**filters)).entries


async def actions(api: Api, **filters: Any) -> list[tuple[str, str | None]]:
    return [(entry.action, entry.person or entry.by) for entry in await entries(api, **filters)]


async def decide(api: Api) -> str:
    """Return a run that two people have approved."""
    run = await api.as_caller(STARTER).start(workflow="ship", wait=True)
    for name in ("ann", "ben"):
        [gate] = (await api.run(run=run.run_id)).gates
        await as_person(api, name).answer(run=run.run_id, answer="approve", hash=gate.hash, reason="fine")
    await api.session.get_workflow_run(run.run_id).wait()
    return str(run.run_id)


async def test_each_vote_says_who_by_which_way_from_where_and_what_was_shown(api: Api) -> None:
    run = await api.as_caller(STARTER).start(workflow="ship", wait=True)
    [gate] = run.gates
    await decide(api)
    for name in ("ann", "ben"):
        await as_person(api, name).answer(run=run.run_id, answer="approve", hash=gate.hash, reason="fine")
    await api.session.get_workflow_run(run.run_id).wait()
    found = await entries(api, run=run.run_id)
    assert [entry.action for entry in found] == ["start", "vote", "vote", "answer"]
    assert (found[0].by, found[0].via, found[0].address) == ("token:run", "http", "10.0.0.7")
    for entry, name in zip(found[1:3], ("ann", "ben"), strict=True):
        assert (entry.person, entry.by, entry.via) == (name, f"person:{name}", "page")
        assert (entry.address, entry.hash, entry.reason) == ("192.0.2.1", gate.hash, "fine")
        assert (entry.answer, entry.gate) == ("approve", gate.gate_id)
    assert (found[3].hash, found[3].details) == (gate.hash, {"people": ["ann", "ben"]})


async def test_the_answer_of_a_gate_without_a_policy_has_the_hash_of_what_was_shown(api: Api) -> None:
    run = await api.start(workflow="plain", wait=True)
    await api.as_caller(Caller("unix:ada", "cli", pid=7)).answer(run=run.run_id, answer="approve")
    [_, answer] = await entries(api, run=run.run_id)
    assert (answer.by, answer.via, answer.pid, answer.hash) == ("unix:ada", "cli", 7, run.gates[0].hash)


async def test_delegation_and_a_replaced_vote_are_entries_of_their_own(api: Api) -> None:
    run = await api.start(workflow="ship", wait=True)
    ann = as_person(api, "ann")
    await api.add_person(person="cay")
    shown = {"run": run.run_id, "hash": run.gates[0].hash}
    await as_person(api, "ben").answer(answer="cay", action="delegate", **shown)
    for answer in ("reject", "approve"):
        await ann.answer(run=run.run_id, answer=answer, hash=run.gates[0].hash)
    await as_person(api, "cay").answer(run=run.run_id, answer="approve", hash=run.gates[0].hash)
    found = await entries(api, run=run.run_id)
    assert [(entry.action, entry.person, entry.answer) for entry in found[1:]] == [
        ("delegate", "ben", None),
        ("vote", "ann", "reject"),
        ("vote", "ann", "approve"),
        ("vote", "cay", "approve"),
        ("answer", "cay", "approve"),
    ]
    assert found[1].details == {"to": "cay"}


async def test_pauses_resumes_raised_budgets_and_stops_say_who(api: Api) -> None:
    run = (await api.start(workflow="plain", wait=True)).run_id
    ann = as_person(api, "ann", "oidc")
    await ann.pause(run=run)
    await ann.resume(run=run)
    await ann.pause(run=run)
    await ann.resume(run=run, limits={"turns": 50})
    await ann.stop(run=run, reason="no need")
    found = (await entries(api, run=run))[1:]
    assert [entry.action for entry in found] == ["pause", "resume", "pause", "raise", "stop"]
    assert {(entry.by, entry.via, entry.address) for entry in found} == {("person:ann", "oidc", "192.0.2.1")}
    assert (found[3].details, found[4].reason) == ({"limits": {"turns": 50}}, "no need")


async def test_a_stop_is_one_entry_of_the_run_that_was_stopped(api: Api) -> None:
    run = (await api.start(workflow="outer", wait=True)).run_id
    await as_person(api, "ben").stop(run=run)
    assert [name for name, _ in await actions(api)].count("stop") == 1
    assert (await actions(api, run=run))[-1] == ("stop", "ben")


async def test_a_fork_names_its_source_and_does_not_repeat_what_it_copies(api: Api) -> None:
    run = await decide(api)
    forked = (await as_person(api, "ann").fork(run=run)).run_id
    await api.session.get_workflow_run(forked).wait()
    [fork] = await entries(api, run=forked)
    assert (fork.action, fork.person, fork.details["from"]) == ("fork", "ann", run)


async def test_deletions_and_definitions_say_who(api: Api) -> None:
    run = await decide(api)
    admin = api.as_caller(Caller("person:ben", "http", "admin"))
    await admin.delete(run=run)
    source = 'name: new\ndescription: x\nnodes:\n  - id: a\n    bash: "true"\n'
    defined = await admin.define(source=source, notation="yaml", keep=False)
    found = {entry.action: entry for entry in await entries(api, person="ben")}
    assert found["delete"].details == {"runs": {run: "ship"}}
    assert (found["define"].workflow, found["define"].person) == ("new", "ben")
    assert found["define"].details["definition"] == defined.hash
    assert [entry.action for entry in await entries(api, person="ben")][-2:] == ["delete", "define"]


async def test_changes_of_people_say_what_was_changed_but_no_secret(api: Api) -> None:
    hash = hash_token("nvp_x")
    email = {"email": "ann@example.com"}
    await api.change_person(person="ann", roles=["boss"], token_hash=hash, contacts=email)
    await api.change_person(person="ann", disabled=True)
    await api.remove_person(person="ben")
    found = [entry for entry in await entries(api) if entry.action != "add person"]
    assert [(entry.action, entry.details) for entry in found] == [
        ("change person", {"person": "ann", "roles": ["boss"], "contacts": ["email"], "token": "new"}),
        ("change person", {"person": "ann", "disabled": True}),
        ("remove person", {"person": "ben"}),
    ]
    assert hash not in (await api.audit()).model_dump_json()


async def test_filters_select_a_time_and_a_person(api: Api) -> None:
    run = await decide(api)
    times = [entry.at for entry in await entries(api, run=run)]
    assert len(await entries(api, run=run, since=times[1].isoformat())) == 3
    assert len(await entries(api, run=run, until=times[1].isoformat())) == 2
    assert await entries(api, until="1d") == []
    assert [entry.action for entry in await entries(api, run=run, person="ann")] == ["vote"]
    plain = await api.start(workflow="plain", wait=True)
    await api.as_caller(Caller("unix:ada", "cli")).answer(run=plain.run_id, answer="approve")
    assert ("answer", "unix:ada") in await actions(api, person="ann")
    error = await refusal(api.audit(until="soon"))
    assert error.code == "bad_request"
    assert error.message == "until must be a period or a date, got 'soon'"


async def test_pages_give_what_one_page_gives(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        await decide(api)
    whole = await Client(api).all_audit_entries()
    monkeypatch.setattr("nerve.api.audit.RUNS_PER_PAGE", 2)
    assert await Client(api).all_audit_entries() == whole
    monkeypatch.setattr("nerve.api.audit.RUNS_PER_PAGE", 500)
    monkeypatch.setattr("nerve.api.audit.EVENTS_PER_PAGE", 3)
    assert await Client(api).all_audit_entries() == whole
    assert (whole.runs, whole.changes) == (5, 2)


async def test_only_an_administrator_reads_the_audit(api: Api) -> None:
    error = await refusal(as_person(api, "ann").audit())
    assert error.code == "forbidden"


# -- broken chains -------------------------------------------------------------------------------------

Damage = Callable[[str], Awaitable[None]]
SWAP = "UPDATE {0} SET seq = CASE seq WHEN 2 THEN 13 WHEN 3 THEN 12 END WHERE seq IN (2, 3) AND {1}"
DAMAGES: Mapping[str, tuple[list[str], int]] = {
    "changed answer": (["UPDATE {0} SET data = replace(data, 'approve', 'reject') WHERE seq = 3 AND {1}"], 3),
    "removed event": (["DELETE FROM {0} WHERE seq = 3 AND {1}"], 3),
    "removed end": (["DELETE FROM {0} WHERE seq > 3 AND {1}"], 4),
    "swapped events": ([SWAP, "UPDATE {0} SET seq = seq - 10 WHERE seq > 10 AND {1}"], 2),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_changed_journal_is_one_error_that_names_the_run_and_the_event(
    tmp_path: Path, damage: str
) -> None:
    file = tmp_path / "nerve.db"
    async with Session(store=file) as session:
        api = await with_people(session)
        run = await decide(api)
        await until(lambda: len(session.engine.store.events(run)) == 5)
        statements, seq = DAMAGES[damage]
        with sqlite3.connect(file) as db:
            place = f"journal = (SELECT id FROM journals WHERE run = '{run}')"
            for statement in statements:
                db.execute(statement.format("events", place))
        db.close()
        await assert_broken(api, run, seq)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_changed_journal_in_postgresql_is_the_same_error(postgresql_url: str, damage: str) -> None:
    store = PostgresStore(postgresql_url)
    async with Session(store=store) as session:
        api = await with_people(session)
        run = await decide(api)
        assert [name for name, _ in await actions(api, run=run)] == ["start", "vote", "vote", "answer"]
        statements, seq = DAMAGES[damage]
        with psycopg.connect(postgresql_url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement.format("nerve.events", f"run = '{run}'"))  # type: ignore[call-overload]
        await assert_broken(api, run, seq)
    store.close()


async def assert_broken(api: Api, run: str, seq: int) -> None:
    for filters in ({}, {"run": run}, {"person": "ann"}):
        error = await refusal(api.audit(**filters))
        assert error.message in (
            f"The hash chain of run '{run}' is broken at event {seq}",
            f"The hash chain of run '{run}' is broken at event {seq - 1}",  # two events are one row
        )
        assert error.details["run"] == run


PEOPLE_DAMAGES = {
    "UPDATE people SET data = replace(data, 'lead', 'boss') WHERE number = 2": 2,
    "DELETE FROM people WHERE number = 1": 1,
    "DELETE FROM people WHERE number = 3": 3,
    "UPDATE people SET number = CASE number WHEN 1 THEN -2 WHEN 2 THEN -1 ELSE number END": 1,
}


@pytest.mark.parametrize("statement", PEOPLE_DAMAGES)
async def test_a_changed_table_of_people_is_detected_by_a_server_that_has_read_it(
    tmp_path: Path, statement: str
) -> None:
    file = tmp_path / "nerve.db"
    async with Session(store=file) as session:
        api = await with_people(session)
        await api.add_person(person="cay")
        with sqlite3.connect(file) as db:
            db.execute(statement)
            db.execute("UPDATE people SET number = -number WHERE number < 0")
        db.close()
        error = await refusal(api.audit())
        number = PEOPLE_DAMAGES[statement]
        assert error.message.startswith(f"The changes of people in the store are damaged at number {number}.")


async def test_an_encrypted_store_has_the_same_audit(tmp_path: Path) -> None:
    codec = AesGcmCodec({"one": b"k" * KEY_BYTES})
    async with Session(store=tmp_path / "nerve.db", codec=codec) as session:
        api = await with_people(session)
        run = await decide(api)
        assert [name for name, _ in await actions(api, run=run)] == ["start", "vote", "vote", "answer"]
        with sqlite3.connect(tmp_path / "nerve.db") as db:
            db.execute("UPDATE events SET at = at + 1 WHERE seq = 3")
        db.close()
        error = await refusal(api.audit())
        assert f"The hash chain of run '{run}' is broken at event" in error.message


async def test_a_deletion_by_age_is_recorded_and_a_dry_run_is_not(api: Api, tmp_path: Path) -> None:
    run = await decide(api)
    with sqlite3.connect(tmp_path / "nerve.db") as db:
        db.execute("UPDATE runs SET ended = ended - 1000000")
    db.close()
    assert (await api.collect(older_than=1, dry_run=True)).runs == 1
    assert "delete" not in dict(await actions(api))
    assert (await api.collect(older_than=1, dry_run=False)).runs == 1
    [deletion] = [entry for entry in await entries(api) if entry.action == "delete"]
    assert deletion.details == {"runs": {run: "ship"}}
