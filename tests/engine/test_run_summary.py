"""What lists show of a run is stored with its events, and is what its journal says."""

from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.workflow.support import at_gate, until, within
from nerve import Session
from nerve.core.json_codec import encode_json
from nerve.core.result import Result
from nerve.engine import recovery
from nerve.engine.run_summary import RunSummary, StoredSummary
from nerve.journal.events import EmittedEvent, decode_event
from nerve.journal.index import JournalIndex, is_guard, read_events
from nerve.store.port import EventRow, WaitRow

pytestmark = pytest.mark.local("looks at summaries in the store")

STEPS = ("/a", "/b", "/a/c", "/b[2]")


@st.composite
def journals(draw: st.DrawFn) -> list[EventRow]:
    """Return the events of a run that opens, settles and resets waits and steps."""
    rows = [EventRow(1, 1.0, "workflow_started", "", None, encode_json({"run_id": "r"}))]
    unsettled: dict[str, str] = {}

    def add(type: str, path: str, settles: str | None = None, **data: Any) -> None:
        rows.append(EventRow(len(rows) + 1, 1.0, type, path, settles, encode_json(data)))

    for _ in range(draw(st.integers(0, 12))):
        path = draw(st.sampled_from(STEPS))
        if path in unsettled and draw(st.booleans()):
            kind = unsettled.pop(path)
            ends = {"gate": "gate_answered", "timer": "timer_fired", "signal": "signal_received"}
            add(ends[kind], path, f"{path}#{len(rows)}", gate_id="g")
        elif path not in unsettled and draw(st.booleans()):
            kind = unsettled[path] = draw(st.sampled_from(("gate", "timer", "signal")))
            guard = {"guard": True} if kind == "timer" and draw(st.booleans()) else {}
            type = "timer_started" if kind == "timer" else f"{kind}_waiting"
            add(type, path, gate_id="g", prompt="?", label="l", deadline=2.0, **guard)
        elif draw(st.integers(0, 3)) == 0:
            add("path_reset", path, because="changed")
            unsettled = {
                p: kind for p, kind in unsettled.items() if p != path and not p.startswith(f"{path}/")
            }
    return rows


@given(journals(), st.lists(st.integers(1, 4), max_size=8))
def test_stored_waits_are_the_open_waits_of_the_journal(rows: list[EventRow], sizes: list[int]) -> None:
    stored: dict[str, WaitRow] = {}
    summary, written = RunSummary("r"), 0
    for size in (*sizes, len(rows)):
        batch, written = rows[written : written + size], written + size
        for recorded in read_events(batch):
            summary.add(*recorded)
        for wait in summary.take_changes("s", "w").waits:
            stored.pop(wait.path, None)
            if wait.data is not None:
                stored[wait.path] = wait
    open_waits = JournalIndex(rows).open_waits
    expected = {path: opened.at for path, opened in open_waits.items() if not is_guard(opened.event)}
    assert {path: wait.since for path, wait in stored.items()} == expected
    assert not RunSummary("r", read_events(rows)).has_changes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nerve.db"


def opened(file: Path) -> Session:
    session = Session("test", file)

    async def spend(context: Any) -> Result:
        return Result.ok("", {"usage": {"tokens": 7, "turns": 1, "model": "m"}})

    session.node(spend)

    @session.workflow
    async def asks(ctx: Any) -> Any:
        await ctx.run("spend")
        return await ctx.gate("Go on?")

    @session.workflow
    async def listens(ctx: Any) -> Any:
        return await ctx.wait_signal("go")

    return session


async def test_the_row_of_a_run_has_its_step_its_usage_and_why_it_is_held(file: Path) -> None:
    async with opened(file) as session:
        run = await session.start("asks")
        await at_gate(run)
        [wait] = session.engine.store.waits_of_run(run.run_id)
        assert (wait.kind, wait.path) == ("gate", "/gate")
    async with opened(file) as session:
        again = session.get_workflow_run(run.run_id)
        assert again is not None
        await session.engine.commands.hold(again, "quarantine", "for the test")
        row = session.engine.store.run(run.run_id)
        assert row is not None
        summary = StoredSummary.of_row(row)
        assert summary is not None
        assert (summary.step, summary.usage) == ("gate", {"tokens": 7, "turns": 1})
        assert (summary.hold or {})["message"] == "for the test"
        await again.stop("enough")
        assert session.engine.store.waits_of_run(run.run_id) == []
        assert session.engine.models_used_today()["m"]["tokens"] == 7
        assert session.engine.usage_today().tokens == 7


def step_usage(session: Session) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the stored usage of all days by workflow, step and model."""
    rows = session.engine.store.daily_step_usage("test", "", "9")
    return {
        (row.workflow, row.step, row.model): {
            name: amount for name, amount in row.amounts.items() if not name.startswith("turns_without")
        }
        for row in rows
    }


async def test_usage_is_stored_by_workflow_and_step_and_counted_once(file: Path) -> None:
    async with opened(file) as session:

        @session.workflow
        async def twice(ctx: Any) -> Any:
            for _ in range(2):
                await ctx.run("spend")
            await ctx.run_workflow("asks")

        run = await session.start("twice")
        await until(lambda: bool(session.engine.store.open_waits("test", "gate")))
        used = {
            ("twice", "", ""): {"runs": 1},
            ("twice", "/spend", "m"): {"runs": 1, "tokens": 14, "turns": 2},
            ("asks", "", ""): {"runs": 1},
            ("asks", "/spend", "m"): {"runs": 1, "tokens": 7, "turns": 1},
        }
        assert step_usage(session) == used
        assert session.engine.models_used_today()["m"]["tokens"] == 21
        [child] = [row.run for row in session.engine.store.runs(session="test") if row.parent == run.run_id]
    async with opened(file) as session:
        fork = await session.fork(child, at="/gate")
        await at_gate(fork)
        assert step_usage(session) == used  # neither the restart nor the copied step has used anything
        whole_fork = await session.fork(child, at="/spend")
        await at_gate(whole_fork)
        used["asks", "", ""] = {"runs": 2}
        used["asks", "/spend", "m"] = {"runs": 2, "tokens": 14, "turns": 2}
        assert step_usage(session) == used


async def test_steps_without_usage_write_no_usage(file: Path) -> None:
    async with opened(file) as session:
        run = await session.start("listens")
        await until(lambda: run.state.value == "waiting")
        await session.signal("go", value="now")
        await within(run.wait())
        assert step_usage(session) == {}


async def test_recovery_does_not_read_the_journals_of_waiting_runs(file: Path) -> None:
    async with opened(file) as session:
        runs = [await session.start("asks") for _ in range(3)]
        for run in runs:
            await at_gate(run)
    async with opened(file) as session:
        read: list[tuple[str, int, int | None]] = []
        events = session.engine.store.events
        session.engine.store.events = (  # type: ignore[method-assign]
            lambda run, after=0, limit=None: read.append((run, after, limit)) or events(run, after, limit)
        )
        recovered = await session.recover()
        assert len(recovered) == 3
        assert (read, session.engine.executors) == ([], {})
        for run in recovered:
            await run.answer("yes")
            assert await within(run.wait()) == "yes"


async def test_open_runs_beyond_the_first_are_resumed_in_the_background(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "MAX_RECOVERY_CPU_S", 0.0)
    monkeypatch.setattr(recovery, "RUNS_PER_BATCH", 1)
    monkeypatch.setattr(recovery, "MAX_ORDERED_RUNS", 1)
    monkeypatch.setattr(recovery, "RUNS_PER_PAGE", 2)
    async with opened(file) as session:
        waiting = [await session.start("listens") for _ in range(5)]
        for run in waiting:
            await until(lambda run=run: run.state.value == "waiting")
    async with opened(file) as session:
        await session.recover()
        await until(lambda: len(session.engine.dataspace._watches) == 5)
        await session.signal("go", value="now")
        for run in waiting:
            again = session.get_workflow_run(run.run_id)
            assert again is not None
            assert await within(again.wait()) == "now"


async def test_runs_of_an_earlier_version_get_summaries_once(file: Path) -> None:
    async with opened(file) as session:
        run = await session.start("asks")
        await at_gate(run)
        ended = await session.start("asks")
        await at_gate(ended)
        await ended.answer("yes")
        await within(ended.wait())
    db = apsw.Connection(str(file))
    db.execute("UPDATE runs SET summary = NULL; DELETE FROM waits; DELETE FROM usage; DELETE FROM step_usage")
    db.execute("UPDATE properties SET value = unixepoch('subsec') WHERE name = 'summarized_since'")
    db.close()
    for _ in range(2):
        async with opened(file) as session:
            [again] = await session.recover()
            assert [gate.prompt for gate in again.pending_gates] == ["Go on?"]
            assert session.engine.usage_today().tokens == 14
            assert step_usage(session)["asks", "/spend", "m"] == {"runs": 2, "tokens": 14, "turns": 2}
            assert [wait.run for wait in session.engine.store.open_waits("test", "gate")] == [run.run_id]


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("usage", {"model": "m", "input_tokens": 3, "output_tokens": 2}),
        ("provider_limited", {"provider": "p", "until": 9.0}),
        ("provider_open", {"provider": "p", "over": True}),
        ("state_entered", {"state": "draft"}),
    ],
)
def test_emitted_events_count_as_they_are_read_back(type: str, data: dict[str, Any]) -> None:
    emitted, read = RunSummary("r"), RunSummary("r")
    emitted.add(2, 1.0, "/a", None, EmittedEvent(type, data))
    read.add(2, 1.0, "/a", None, decode_event(EventRow(2, 1.0, type, "/a", None, encode_json(data))))
    assert emitted.encode() == read.encode()
    assert emitted.has_changes == read.has_changes
    assert emitted.take_changes("s", "w") == read.take_changes("s", "w")
    assert not emitted.has_changes
