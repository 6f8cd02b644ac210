"""Acknowledged writes are on disk, and a failing disk holds the run."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from engine.conftest import register, until
from nerve import Session, WorkflowState
from nerve.errors import RunHeld, StoreFull, StoreInUse
from nerve.store.sqlite import SqliteStore
from store.vfs import Disk, io_error

pytestmark = pytest.mark.local("breaks the disk of the store")


def unsynced(disk: Disk) -> list[str]:
    """Files that were written to after their last sync."""
    last = {file: operation for operation, file in disk.operations if operation in ("write", "sync")}
    return [file for file, operation in last.items() if operation == "write" and file.endswith("-wal")]


async def acknowledge_everything(session: Session, disk: Disk) -> int:
    """Start, answer, pause, resume and stop; nothing may be unsynced when one of them returns."""
    acknowledged = 0
    run = await session.start("asking")
    assert not unsynced(disk)
    await until(lambda: run.pending_gate)
    for act in (run.pause, run.resume):
        await act()
        assert not unsynced(disk)
        acknowledged += 1
    await run.answer("yes")
    assert not unsynced(disk)
    await run.wait()
    assert not unsynced(disk)
    other = await session.start("asking")
    await other.stop()
    assert not unsynced(disk)
    return acknowledged + 5


async def acknowledged(file: Path, disk: Disk, times: int) -> int:
    total = 0
    async with Session(store=SqliteStore(file, vfs=disk.name)) as session:
        register(session, [])
        while total < times:
            total += await acknowledge_everything(session, disk)
    return total


async def test_acknowledged_writes_were_synced_first(file: Path, disk: Disk) -> None:
    assert await acknowledged(file, disk, 60) >= 60


@pytest.mark.full
async def test_a_thousand_acknowledged_writes_were_synced_first(file: Path, disk: Disk) -> None:
    assert await acknowledged(file, disk, 1000) >= 1000


async def test_a_step_is_returned_to_its_body_only_after_its_sync(file: Path, disk: Disk) -> None:
    seen = []
    async with Session(store=SqliteStore(file, vfs=disk.name)) as session:
        register(session, [])

        @session.workflow
        async def watched(ctx):
            for number in range(20):
                await ctx.run("work", number)
                seen.append(unsynced(disk))

        await (await session.start("watched")).wait()
    assert seen == [[]] * 20


async def test_a_failed_sync_holds_the_run_until_it_is_resumed(file: Path, disk: Disk) -> None:
    done: list[str] = []
    async with Session(store=SqliteStore(file, vfs=disk.name)) as session:
        register(session, done)
        run = await session.start("asking")
        await until(lambda: run.pending_gate)

        def fail(operation: str, name: str) -> None:
            if operation == "sync":
                disk.before = lambda operation, name: None
                raise io_error("sync")

        disk.before = fail
        run.answer_gate("lost")
        with pytest.raises(RunHeld, match="storage"):
            await run.wait()
        await run.resume()
        await until(lambda: run.pending_gate)
        await run.answer("kept")
        assert await run.wait() == [1, "kept", 2]
    assert done == ["/work", "/work[2]"]


async def test_a_full_disk_holds_the_run_until_space_is_free(file: Path) -> None:
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    async with Session(store=file) as session:
        apsw.connection_hooks.remove(opened.append)
        register(session, [])
        run = await session.start("asking")
        await until(lambda: run.pending_gate)
        writer = opened[0]
        writer.pragma("max_page_count", writer.pragma("page_count"))
        with pytest.raises(StoreFull):
            await run.answer("x" * 200_000)
        assert run.state is WorkflowState.HELD
        assert run.to_info().held["reason"] == "storage_full"
        writer.pragma("max_page_count", 1_000_000)
        await run.resume()
        await until(lambda: run.pending_gate)
        await run.answer("yes")
        assert await run.wait() == [1, "yes", 2]


async def test_a_second_session_on_the_same_file_is_rejected(file: Path) -> None:
    async with Session(store=file):
        with pytest.raises(StoreInUse, match=r"nerve\.db is in use by this process. Close the session"):
            async with Session(store=file):
                pass


async def test_a_changed_record_prevents_the_run_from_resuming(file: Path) -> None:
    async with Session(store=file) as session:
        register(session, [])
        run = await session.start("asking")
        await until(lambda: run.pending_gate)
    connection = apsw.Connection(str(file))
    # The character stands for the text before an output.
    columns = (f"{each} = replace({each}, char(4) || '1', char(4) || '7')" for each in ("data", "first_data"))
    connection.execute(f"update events set {', '.join(columns)} where 3 in (seq, seq - 1)")
    assert '"output":7' in connection.execute("select data from journal where seq = 3").get
    connection.close()
    async with Session(store=file) as session:
        done: list[str] = []
        register(session, done)
        other = await session.start("asking")
        runs = {run.run_id: run for run in await session.recover()}
        assert run.run_id not in runs
        assert [row.run for row in session.engine.skipped_runs] == [run.run_id]
        await until(lambda: other.pending_gate)
        await other.answer("fine")
        assert await other.wait() == [1, "fine", 2]
