"""Kills a process at every commit of a scene, recovers in another, and compares.

Run as a program it does so for the scenes given, in SQLite or in the database of a URL given first, and
prints one line of JSON. It forks, so that a killed process costs milliseconds; each child gets an event loop
and threads of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import psycopg

from crash.scenes import Log, play, register
from nerve import Session
from nerve.engine.group_commit import GroupCommitter
from nerve.errors import StoreInUse
from nerve.project.store_url import is_store_url
from nerve.store import postgres_ownership
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_writer import AppendGroup
from nerve.store.sqlite import SqliteStore

MOMENTS = ("before", "during", "committed", "acknowledged")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyCommits:
    """Kills the process at one point of the n-th commit of a store."""

    def __init__(self, store: Any, number: int, moment: str) -> None:
        self._store, self._number, self._moment = store, number, moment
        self.commits = 0

    def append(self, batch: Any, patience: float = 30.0) -> Any:
        if patience <= 0 and isinstance(self._store, PostgresStore):
            return self._store.append(batch, patience)  # it refuses: the commit follows in the thread
        self.commits += 1
        if self.commits != self._number:
            return self._store.append(batch, patience)
        if self._moment == "before":
            die()
        if self._moment == "during":
            COMMITTING.append(die)
        outcome = self._store.append(batch, patience)
        if self._moment == "committed":
            die()
        if isinstance(self._store, PostgresStore):
            ACKNOWLEDGING.append(die)  # the thread of the commit reports to the loop after this
        else:
            LOOP[0].call_soon_threadsafe(lambda: LOOP[0].call_soon(die))
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class SqlitePlace:
    """A store file in a folder, and what it has after a crash."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "nerve.db"

    def open(self) -> Any:
        return SqliteStore(self._file)

    def settled_paths(self) -> list[tuple[str, str]]:
        with closing(apsw.Connection(str(self._file), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
            assert db.pragma("integrity_check") == "ok"
            if db.execute("select 1 from sqlite_schema where name = 'journal'").get:
                return list(db.execute("select run, path from journal where settles is not null"))
        return []

    def events(self) -> list[tuple[str, str]]:
        with closing(apsw.Connection(str(self._file), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
            return list(db.execute("select type, data from journal"))


class PostgresPlace:
    """A schema of a database, and what it has after a crash."""

    def __init__(self, url: str) -> None:
        self._url, self._schema = url, f"crash_{secrets.token_hex(8)}"

    def open(self) -> Any:
        # The owner that was killed is not waited for.
        postgres_ownership.LEASE_S, postgres_ownership.RENEWAL_INTERVAL_S = 0.3, 0.05
        deadline = time.monotonic() + 20
        while True:
            try:
                return PostgresStore(f"{self._url}?schema={self._schema}")
            except StoreInUse:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def settled_paths(self) -> list[tuple[str, str]]:
        return self._select("SELECT run, path FROM {}.events WHERE settles IS NOT NULL")

    def events(self) -> list[tuple[str, str]]:
        return self._select("SELECT type, data FROM {}.events")

    def _select(self, statement: str) -> list[tuple[str, str]]:
        with psycopg.connect(self._url) as db:
            has_tables = db.execute("SELECT to_regclass(%s)", (f"{self._schema}.events",)).fetchone()
            return db.execute(statement.format(self._schema)).fetchall() if has_tables != (None,) else []


Place = SqlitePlace | PostgresPlace
COMMITTING: list[Callable[[], None]] = []
ACKNOWLEDGING: list[Callable[[], None]] = []
LOOP: list[asyncio.AbstractEventLoop] = []


def commit_hook() -> bool:
    for deadly in COMMITTING:
        deadly()
    return False


def die_in_transaction(group: AppendGroup, db: Any) -> None:
    """Write the rows of a group, and kill the process before the commit if it is its turn."""
    write_group(group, db)
    commit_hook()


def die_after_acknowledgement(committer: GroupCommitter, *arguments: Any) -> None:
    """Report a commit, and kill the process when the callbacks of the report have run."""
    report_commit(committer, *arguments)
    for deadly in ACKNOWLEDGING:
        LOOP[0].call_soon(deadly)


async def drive(folder: Path, scene: str, store: Any) -> Any:
    LOOP[:] = [asyncio.get_running_loop()]
    log = Log(folder)
    async with Session(store=store) as session:
        register(session, log)
        runs = {run.run_id: run for run in await session.recover()}
        run = next((run for run in runs.values() if run.workflow_id == scene), None)
        if run is None:
            run = await session.start(scene, key="the-one")
            log.add("started", run.run_id)
        result = await play(run, log)
        (folder / "result").write_text(json.dumps(result))
        return result


def child(folder: Path, scene: str, make: Callable[[], Any]) -> int:
    """Run a scene in a forked process; return its status as os.waitpid gives it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        store = make()
        asyncio.run(asyncio.wait_for(drive(folder, scene, store), 30))
        if isinstance(store, DeadlyCommits):
            (folder / "commits").write_text(str(store.commits))
        code = 0
    except BaseException as error:
        (folder / "error").write_text(repr(error))
    finally:
        os._exit(code)


def problems(
    folder: Path, place: Place, before: list[tuple[str, str]], dead: int, expected: Any
) -> list[str]:
    """Return what is wrong after a crash and a recovery."""
    found = []
    log = Log(folder).read()
    if not (folder / "result").exists():
        error = (folder / "error").read_text() if (folder / "error").exists() else "no result"
        return [f"not finished: {error}"]
    if json.loads((folder / "result").read_text()) != expected:
        found.append(f"another result: {(folder / 'result').read_text()}")
    again = {(line[2], line[3]) for line in log if line[1] == "ran" and int(line[0]) != dead} & set(before)
    found += [f"{path} of {run} ran again" for run, path in again]
    journal = place.events()
    answered = {json.loads(data)["gate_id"] for type, data in journal if type == "gate_answered"}
    found += [
        f"answer of {line[2]} lost" for line in log if line[1] == "answered" and line[2] not in answered
    ]
    votes = [json.loads(data) for type, data in journal if type == "gate_voted"]
    decisions = [json.loads(data) for type, data in journal if type == "gate_answered"]
    given = Counter((vote["gate_id"], vote["person"]) for vote in votes)
    counted = {(each["gate_id"], vote["person"]) for each in decisions for vote in each.get("votes") or ()}
    found += [f"{each} has voted {times} times" for each, times in given.items() if times > 1]
    acknowledged = Counter((line[2], line[3]) for line in log if line[1] == "voted")
    found += [f"vote {each} lost" for each, times in acknowledged.items() if times > 1 or each not in counted]
    found += [
        f"{key} settled {times} times" for key, times in Counter(place.settled_paths()).items() if times > 1
    ]
    starts = [
        type for type, data in journal if type == "workflow_started" and "parent" not in json.loads(data)
    ]
    if len(starts) != 1:
        found.append(f"{len(starts)} runs were started")
    keys: dict[str, set[str]] = {}
    for line in log:
        if line[1] == "ran":
            keys.setdefault(line[2] + line[3], set()).add(line[4])
    found += [f"{place} had several idempotency keys" for place, some in keys.items() if len(some) > 1]
    return found


def missed_commits(folder: Path, scene: str, moment: str, deaths: int) -> list[str]:
    """Return what is wrong with a process that survived, when those before it died at every earlier commit.

    How many commits a scene takes depends on the time: the writes of one moment share a commit. But none is
    left out, and each write that was acknowledged before the next one was made has a commit of its own.
    """
    acknowledged = [line for line in Log(folder).read() if line[1] in ("started", "answered", "voted")]
    if not (folder / "commits").exists():
        return [f"{scene} {moment}: the surviving process did not end: {(folder / 'error').read_text()}"]
    commits = int((folder / "commits").read_text())
    if commits <= deaths >= len(acknowledged):
        return []
    counted = f"{deaths} crashes, {commits} commits, {len(acknowledged)} acknowledged writes"
    return [f"{scene} {moment}: not every commit was a crash: {counted}"]


def open_deadly(place: Place, number: int, moment: str) -> DeadlyCommits:
    return DeadlyCommits(place.open(), number, moment)


def kill_everywhere(scene: str, make_place: Callable[[Path], Place]) -> tuple[int, list[str]]:
    """Return the number of crashes tried, and everything that was wrong after one of them.

    The scene may have one moment after a colon: `line:during`.
    """
    scene, _, only = scene.partition(":")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert child(folder, scene, make_place(folder).open) == 0, (folder / "error").read_text()
        expected = json.loads((folder / "result").read_text())
    deaths, wrong = 0, []
    for moment in [only] if only else MOMENTS:
        number = 0
        while True:
            number += 1
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                place = make_place(folder)
                status = child(folder, scene, partial(open_deadly, place, number, moment))
                if not os.WIFSIGNALED(status):
                    wrong += missed_commits(folder, scene, moment, number - 1)
                    break
                deaths += 1
                dead = next((int(line[0]) for line in Log(folder).read()), -1)
                before = place.settled_paths()
                child(folder, scene, place.open)
                wrong += [
                    f"{scene} {moment} {number}: {p}" for p in problems(folder, place, before, dead, expected)
                ]
    return deaths, wrong


def warm_up() -> None:
    """Import the modules the children need, so that they do not have to."""
    import nerve.engine.local_engine  # noqa: F401

    with tempfile.TemporaryDirectory() as name:
        register(Session(), Log(Path(name)))


if __name__ == "__main__":
    warm_up()
    scenes, make_place = sys.argv[1:], SqlitePlace
    if is_store_url(scenes[0]):
        url = scenes.pop(0)
        make_place = lambda folder: PostgresPlace(url)  # noqa: E731
        write_group, report_commit = AppendGroup.write, GroupCommitter._on_committed
        AppendGroup.write = die_in_transaction  # type: ignore[method-assign]
        GroupCommitter._on_committed = die_after_acknowledgement  # type: ignore[method-assign]
    apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(commit_hook))
    results = [kill_everywhere(scene, make_place) for scene in scenes]
    report = {"deaths": sum(d for d, _ in results), "wrong": [w for _, found in results for w in found]}
    sys.stdout.write(json.dumps(report))
