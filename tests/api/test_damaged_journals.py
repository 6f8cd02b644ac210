"""A run with a damaged journal is shown as unreadable; every other run works as before."""

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from api.support import refusal, with_workflows
from nerve import Session
from nerve.api import Api, conversation
from nerve.core.workflow import WorkflowState
from nerve.errors import JournalBroken, RunHeld

EVENTS = ("min", "max")


@contextmanager
def opened(file: Path) -> Iterator[apsw.Connection]:
    db = apsw.Connection(str(file))
    yield db
    db.close()


def damage(file: Path, run: str, which: str = "max") -> None:
    """Change one character of the first or the last event of a run."""
    with opened(file) as db:
        rows = "FROM events JOIN journals ON journals.id = journal WHERE run = ?"
        id = db.execute(f"SELECT {which}(events.id) {rows}", (run,)).get
        data = db.execute("SELECT data FROM events WHERE id = ?", (id,)).get
        changed = data[:-2] + chr(ord(data[-2]) ^ 1) + data[-1]
        db.execute("UPDATE events SET data = ? WHERE id = ?", (changed, id))


def zero_page(file: Path) -> None:
    """Overwrite a page in the middle of the table of events."""
    with opened(file) as db:
        size = db.pragma("page_size")
        leaves = "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path"
        pages = [page for (page,) in db.execute(leaves)]
    assert len(pages) > 2
    content = bytearray(file.read_bytes())
    start = (pages[1] - 1) * size
    content[start : start + size] = bytes(size)
    file.write_bytes(content)


async def started(file: Path) -> dict[str, str]:
    """Return runs of every kind by name, in a closed store."""
    async with Session(store=file) as session:
        api = with_workflows(session)
        runs = {
            "whole": await api.start(workflow="ask", label="whole"),
            "open": await api.start(workflow="ask", label="open", conversation="talk"),
            "over": await api.start(workflow="hello", input="you", wait=True, conversation="talk"),
            "parent": await api.start(workflow="nested"),
        }
        parent = session.get_workflow_run(runs["parent"].run_id)
        assert parent is not None
        await parent.next_gate()
        for name in ("whole", "open"):
            run = session.get_workflow_run(runs[name].run_id)
            assert run is not None
            await run.next_gate()
        child = next(row.run for row in session.engine.store.runs() if row.parent == parent.run_id)
        return {name: reply.run_id for name, reply in runs.items()} | {"child": child}


@pytest.mark.parametrize("which", EVENTS)
@pytest.mark.parametrize("name", ["open", "over", "child"])
async def test_a_damaged_journal_does_not_break_a_list(file: Path, name: str, which: str) -> None:
    runs = await started(file)
    damage(file, runs[name], which)
    async with Session(store=file, budget={"tokens": 1000}) as session:
        api = with_workflows(session)
        await session.recover()
        infos = {info.run_id: info for info in session.list_workflow_runs()}
        assert set(infos) == set(runs.values())
        assert infos[runs[name]].held is not None
        assert infos[runs[name]].held["reason"] == "unreadable"
        assert infos[runs[name]].state is WorkflowState.HELD
        assert infos[runs["whole"]].state is WorkflowState.WAITING
        listed = {run.run_id: run for run in (await api.runs()).runs}
        assert set(listed) == set(runs.values())
        assert runs["whole"] in {gate.run_id for gate in (await api.gates()).gates}
        assert (await api.usage()).today == {}
        await api.threads()
        await api.facts()
        await api.collect(older_than=1, dry_run=True)
        assert session.provider_slots.rate_limits.limited == {}
        conversation.conversation_messages(api, "talk")
        conversation.conversation_gates(api, "talk")
        assert (await refusal(api.answer(gate="none", answer="yes"))).code == "not_found"
        await api.answer(gate=infos[runs["whole"]].pending_gates[0]["gate_id"], answer="yes")
        whole = session.get_workflow_run(runs["whole"])
        assert whole is not None
        assert await whole.wait() == "yes"


async def test_an_open_run_with_a_damaged_journal_is_listed_as_held_and_unreadable(file: Path) -> None:
    runs = await started(file)
    damage(file, runs["open"])
    async with Session(store=file) as session:
        api = with_workflows(session)
        await session.recover()
        listed_run = {run.run_id: run for run in (await api.runs()).runs}[runs["open"]]
        assert (listed_run.state, listed_run.label, listed_run.held["reason"]) == (
            "held",
            "open",
            "unreadable",
        )
        assert "event 2 is damaged" in listed_run.held["message"]
        health = await api.health()
        assert health.status == "degraded"
        assert "event 2 is damaged" in health.held[runs["open"]]
        run = session.get_workflow_run(runs["open"])
        assert run is not None
        with pytest.raises(RunHeld, match="unreadable"):
            await run.wait()
        for command in (run.stop(), run.resume()):
            with pytest.raises(JournalBroken):
                await command


async def test_a_finished_run_with_a_damaged_end_is_not_shown_as_completed(file: Path) -> None:
    runs = await started(file)
    damage(file, runs["over"])
    async with Session(store=file) as session:
        api = with_workflows(session)
        listed_run = {run.run_id: run for run in (await api.runs()).runs}[runs["over"]]
        assert (listed_run.state, listed_run.held["reason"], listed_run.result) == (
            "held",
            "unreadable",
            None,
        )
        assert listed_run.ended_at is not None


async def test_a_held_run_with_a_damaged_journal_does_not_block_recovery_of_others(file: Path) -> None:
    runs = await started(file)
    async with Session(store=file) as session:
        with_workflows(session)
        run = session.get_workflow_run(runs["open"])
        assert run is not None
        await session.engine.commands.hold(run, "quarantine", "for the test")
    damage(file, runs["open"])
    async with Session(store=file) as session:
        api: Api = with_workflows(session)
        recovered = {run.run_id for run in await session.recover()}
        assert recovered == {runs["whole"], runs["parent"], runs["child"]}
        assert runs["open"] in (await api.health()).held


async def test_runs_on_a_damaged_page_are_unreadable_and_the_others_are_not(file: Path) -> None:
    async with Session(store=file) as session:
        api = with_workflows(session)
        for number in range(40):
            await api.start(workflow="hello", input=str(number), wait=True)
    zero_page(file)
    async with Session(store=file) as session:
        api = with_workflows(session)
        await session.recover()
        states = Counter(info.state for info in session.list_workflow_runs())
        assert states[WorkflowState.COMPLETED] > 0
        assert states[WorkflowState.HELD] > 0
        assert states.total() == len((await api.runs()).runs) == 40


def test_the_command_line_lists_a_damaged_run_as_held(tmp_path: Path, monkeypatch, capsys) -> None:
    from nerve.cli import execute_command_line

    monkeypatch.chdir(tmp_path)
    (tmp_path / ".nerve").mkdir()
    file = tmp_path / ".nerve/nerve.db"
    runs = asyncio.run(started(file))
    damage(file, runs["open"])
    assert execute_command_line(["runs", "--json"]) == 0
    listed = {run["run_id"]: run for run in json.loads(capsys.readouterr().out)}
    assert listed[runs["open"]]["state"] == "held"
    assert "event 2 is damaged" in listed[runs["open"]]["held"]["message"]
    assert listed[runs["whole"]]["state"] == "waiting"
    assert execute_command_line(["runs"]) == 0
    assert "unreadable" in capsys.readouterr().out
    assert execute_command_line(["status"]) == 0
    assert f"held: {runs['open']}" in capsys.readouterr().out


async def test_health_reports_what_a_damaged_log_has_lost(file: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    async with Session(store=file) as session:
        await with_workflows(session).start(workflow="ask", wait=True)
        for name in ("nerve.db", "nerve.db-wal", "nerve.db.mark"):
            shutil.copy(file.with_name(name), left / name)
    os.truncate(left / "nerve.db-wal", (left / "nerve.db-wal").stat().st_size - 100)
    async with Session(store=left / "nerve.db") as session:
        health = await with_workflows(session).health()
        assert health.status == "degraded"
        assert health.loss is not None
        assert "has lost writes that were acknowledged" in health.loss


async def test_querying_a_damaged_run_returns_one_error_and_no_traceback(file: Path, caplog) -> None:
    runs = await started(file)
    damage(file, runs["open"], "min")
    async with Session(store=file) as session:
        api = with_workflows(session)
        error = await refusal(api.run(run=runs["open"]))
    assert "is damaged" in error.message
    assert error.fix == "See the damage: nerve doctor --deep"
    assert [record for record in caplog.records if record.exc_info] == []
