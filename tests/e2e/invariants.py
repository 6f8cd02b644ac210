"""What must be true of a project after every test, whatever was done to its server."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw

from e2e.world import CANARY, Acked, World
from nerve.errors import JournalBroken
from nerve.store.port import EventRow, RunRow, Store
from nerve.store.sqlite import SqliteStore

ENDS = {"workflow_completed": "completed", "workflow_failed": "failed", "workflow_cancelled": "cancelled"}


def broken(world: World) -> list[str]:
    """Everything that is not as it must be; the server is down."""
    assert world.process is None
    file = world.folder / ".nerve/nerve.db"
    tokens = [each.read_text().strip() for each in (world.folder / ".nerve/private").glob("*.token")]
    found = [*written_down(world.folder, [CANARY, *tokens]), *left_alive(world.folder)]
    if not file.exists():
        return found
    store = SqliteStore(file)
    try:
        found += [*journals(store), *lost(store, world.acked)]
    finally:
        store.close()
    db = apsw.Connection(str(file))
    if (told := db.pragma("integrity_check")) != "ok":
        found.append(f"the file is damaged: {told}")
    db.close()
    return found


def journals(store: Store) -> Iterator[str]:
    for row in store.runs():
        try:
            rows = store.events(row.run)
        except JournalBroken as error:
            yield f"{row.run}: {error}"
            continue
        yield from (f"{row.run} {row.workflow}: {each}" for each in journal(row, rows))


def journal(row: RunRow, rows: list[EventRow]) -> Iterator[str]:
    """One journal: dense, settled once, answered once, and at rest once it has ended."""
    if [each.seq for each in rows] != list(range(1, len(rows) + 1)):
        yield "the numbers have gaps"
    settled = Counter(each.path for each in rows if each.settles is not None)
    yield from (f"{path} was settled {times} times" for path, times in settled.items() if times > 1)
    answered = Counter(json.loads(each.data)["gate_id"] for each in rows if each.type == "gate_answered")
    yield from (f"gate {gate} was answered {times} times" for gate, times in answered.items() if times > 1)
    ends = [number for number, each in enumerate(rows) if each.type in ENDS]
    if len(ends) > 1 or (ends and ends[0] != len(rows) - 1):
        yield f"something happened after its end: {[each.type for each in rows[ends[0] :]]}"
    if ends and row.state != ENDS[rows[ends[0]].type]:
        yield f"the journal says {rows[ends[0]].type}, the table of runs says {row.state}"


def lost(store: Store, acked: Acked) -> Iterator[str]:
    """What was acknowledged or seen, and is not there."""
    known = {row.run for row in store.runs()}
    yield from (f"start of {run} is lost" for run in acked.starts if run not in known)
    answers: dict[str, object] = {}
    reach: dict[str, int] = {}
    for run in known:
        rows = store.events(run)
        reach[run] = len(rows)
        for each in rows:
            if each.type == "gate_answered":
                data = json.loads(each.data)
                answers[data["gate_id"]] = data["answer"]
    for told in acked.answers:
        if told["gate_id"] not in answers:
            yield f"the answer of {told['gate_id']} is lost"
        elif answers[told["gate_id"]] != told["answer"]:
            yield f"{told['gate_id']} has another answer than was acknowledged"
    yield from (f"event {n} of {run} was seen and is lost" for run, n in acked.seen if reach.get(run, 0) < n)


def left_alive(folder: Path) -> Iterator[str]:
    """Processes that a step has started, which stand in the folder of the project."""
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                if Path(os.readlink(each / "cwd")).is_relative_to(folder):
                    yield f"{(each / 'cmdline').read_bytes()!r} is still alive"
            except OSError:
                continue


def written_down(folder: Path, secrets: list[str]) -> Iterator[str]:
    """Files in which a secret stands that may not stand there."""
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix != ".token":
            data = file.read_bytes()
            if any(secret.encode() in data for secret in secrets):
                yield f"a secret stands in {file.relative_to(folder)}"
