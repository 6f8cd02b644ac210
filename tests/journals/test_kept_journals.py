"""Journals of every earlier version can still be replayed, decision for decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from journals.keep import HERE, play
from journals.workflows import NAMES, register
from nerve import Session
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, RunRow

KEPT = sorted(HERE.glob("*/*.json"))


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def loaded(kept: dict[str, Any], upto: int | None) -> MemoryStore:
    """Return a store as it was after the first `upto` events of the run, its child runs as they ended."""
    store = MemoryStore()
    for row in (RunRow(*row) for row in kept["rows"]):
        events = [EventRow._make(event) for event in kept["journals"][row.run]]
        if row.run == kept["run"]:
            store.append([Append(row.run, 0, events[:upto], row._replace(state="running", ended=None))])
        else:
            store.append([Append(row.run, 0, events, row)])
    return store


def test_every_version_kept_a_journal_of_every_workflow() -> None:
    assert {file.stem for file in KEPT} == set(NAMES)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_a_stored_journal_replays_to_its_end_and_runs_nothing_again(file: Path) -> None:
    kept = read(file)
    done: list[str] = []
    session = Session(store=loaded(kept, -1))
    register(session, done)
    runs = await session.recover()
    (run,) = [run for run in runs if run.run_id == kept["run"]]
    assert await run.wait() == kept["result"]
    assert done == []


@pytest.mark.parametrize("file", KEPT, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_a_stored_journal_resumes_from_its_middle(file: Path) -> None:
    kept = read(file)
    events = kept["journals"][kept["run"]]
    for upto in range(1, len(events), 4):
        done: list[str] = []
        session = Session(store=loaded(kept, upto))
        register(session, done)
        runs = {run.run_id: run for run in await session.recover()}
        await play(runs[kept["run"]])
        settled = {event[3] for event in events[:upto] if event[4]}
        assert not settled & set(done)
