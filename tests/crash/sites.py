"""Kills a process at every commit of a scene, recovers in another, and compares.

Run as a program it does so for the scenes given and prints one line of JSON. It forks, so that a
killed process costs milliseconds; each child gets an event loop and threads of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from crash.scenes import Log, play, register
from nerve import Session
from nerve.store.sqlite import SqliteStore

MOMENTS = ("before", "during", "committed", "acknowledged")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(SqliteStore):
    """Kills its process at one point of its n-th commit."""

    def __init__(self, path: Path, number: int, moment: str) -> None:
        super().__init__(path)
        self._number, self._moment = number, moment
        self.commits = 0

    def append(self, batch: Any, patience: float = 30.0) -> Any:
        self.commits += 1
        if self.commits != self._number:
            return super().append(batch, patience)
        if self._moment == "before":
            die()
        if self._moment == "during":
            COMMITTING.append(die)
        outcome = super().append(batch, patience)
        if self._moment == "committed":
            die()
        asyncio.get_event_loop_policy().get_event_loop().call_soon_threadsafe(lambda: LOOP[0].call_soon(die))
        return outcome


COMMITTING: list[Callable[[], None]] = []
LOOP: list[asyncio.AbstractEventLoop] = []


def commit_hook() -> bool:
    for deadly in COMMITTING:
        deadly()
    return False


async def drive(folder: Path, scene: str, store: SqliteStore) -> Any:
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


def child(folder: Path, scene: str, make: Callable[[], SqliteStore]) -> int:
    """Run a scene in a forked process; return its status as os.waitpid gives it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        store = make()
        asyncio.run(asyncio.wait_for(drive(folder, scene, store), 30))
        if isinstance(store, Deadly):
            (folder / "commits").write_text(str(store.commits))
        code = 0
    except BaseException as error:
        (folder / "error").write_text(repr(error))
    finally:
        os._exit(code)


def settled(file: Path) -> dict[tuple[str, str], int]:
    """Return the settled paths of all runs, and how often each is settled."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    found: dict[tuple[str, str], int] = {}
    if connection.execute("select 1 from sqlite_schema where name = 'journal'").get:
        for run, path in connection.execute("select run, path from journal where settles is not null"):
            found[(run, path)] = found.get((run, path), 0) + 1
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    return found


def events(file: Path) -> list[tuple[str, str]]:
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    rows = list(connection.execute("select type, data from journal"))
    connection.close()
    return rows


def problems(
    folder: Path, file: Path, before: dict[tuple[str, str], int], dead: int, expected: Any
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
    journal = events(file)
    answered = {json.loads(data)["gate_id"] for type, data in journal if type == "gate_answered"}
    found += [
        f"answer of {line[2]} lost" for line in log if line[1] == "answered" and line[2] not in answered
    ]
    found += [f"{key} settled {times} times" for key, times in settled(file).items() if times > 1]
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
    acknowledged = [line for line in Log(folder).read() if line[1] in ("started", "answered")]
    if not (folder / "commits").exists():
        return [f"{scene} {moment}: the surviving process did not end: {(folder / 'error').read_text()}"]
    commits = int((folder / "commits").read_text())
    if commits <= deaths >= len(acknowledged):
        return []
    counted = f"{deaths} crashes, {commits} commits, {len(acknowledged)} acknowledged writes"
    return [f"{scene} {moment}: not every commit was a crash: {counted}"]


def kill_everywhere(scene: str) -> tuple[int, list[str]]:
    """Return the number of crashes tried, and everything that was wrong after one of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert child(folder, scene, lambda: SqliteStore(folder / "nerve.db")) == 0, (
            folder / "error"
        ).read_text()
        expected = json.loads((folder / "result").read_text())
    deaths, wrong = 0, []
    for moment in MOMENTS:
        number = 0
        while True:
            number += 1
            with tempfile.TemporaryDirectory() as name:
                folder, file = Path(name), Path(name) / "nerve.db"
                status = child(folder, scene, lambda n=number, f=file, m=moment: Deadly(f, n, m))  # type: ignore[misc]
                if not os.WIFSIGNALED(status):
                    wrong += missed_commits(folder, scene, moment, number - 1)
                    break
                deaths += 1
                dead = next((int(line[0]) for line in Log(folder).read()), -1)
                before = settled(file)
                child(folder, scene, lambda f=file: SqliteStore(f))  # type: ignore[misc]
                wrong += [
                    f"{scene} {moment} {number}: {p}" for p in problems(folder, file, before, dead, expected)
                ]
    return deaths, wrong


def warm_up() -> None:
    """Import the modules the children need, so that they do not have to."""
    import nerve.engine.local_engine  # noqa: F401

    with tempfile.TemporaryDirectory() as name:
        register(Session(), Log(Path(name)))


if __name__ == "__main__":
    warm_up()
    apsw.connection_hooks.append(lambda connection: connection.set_commit_hook(commit_hook))
    results = [kill_everywhere(scene) for scene in sys.argv[1:]]
    report = {"deaths": sum(d for d, _ in results), "wrong": [w for _, found in results for w in found]}
    sys.stdout.write(json.dumps(report))
