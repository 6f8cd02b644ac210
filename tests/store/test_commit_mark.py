"""Acknowledged commits that are missing at the next start are reported, and nothing else is."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import apsw
import pytest

from nerve.errors import StoreError
from nerve.store import commit_mark, sqlite_writer
from nerve.store.port import Append, FactRow
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, append_facts, fact_row, run_row
from store.vfs import Disk, io_error

COMMITS = 30


def fill(store: SqliteStore, commits: int = COMMITS, start: int = 0) -> None:
    for number in range(start, start + commits):
        store.append([append(f"run-{number}", 0, 3, run_row(f"run-{number}"))])


def copied(file: Path, onto: Path) -> Path:
    """Copy the files as a killed process leaves them, without those that SQLite creates again."""
    onto.mkdir()
    for each in file.parent.glob(f"{file.name}*"):
        if not each.name.endswith(("-shm", ".lock")):
            shutil.copy(each, onto / each.name)
    return onto / file.name


def loss(file: Path) -> str | None:
    store = SqliteStore(file)
    try:
        return store.loss
    finally:
        store.close()


def flip(log: bytearray, random: Random) -> None:
    log[random.randrange(32, len(log))] ^= 1 << random.randrange(8)


def cut(log: bytearray, random: Random) -> None:
    del log[random.randrange(32, len(log)) :]


def zero(log: bytearray, random: Random) -> None:
    start = random.randrange(32, len(log))
    log[start : start + 4096] = bytes(len(log[start : start + 4096]))


def break_header(log: bytearray, random: Random) -> None:
    log[random.randrange(32)] ^= 1 << random.randrange(8)


def remove(log: bytearray, random: Random) -> None:
    log.clear()


@pytest.mark.parametrize("damage", [flip, cut, zero, break_header, remove])
@pytest.mark.parametrize("times", [4, pytest.param(100, marks=pytest.mark.full)])
def test_log_damage_that_loses_commits_is_reported(
    file: Path, tmp_path: Path, damage: Callable[[bytearray, Random], None], times: int
) -> None:
    store, random = SqliteStore(file), Random(times)
    fill(store)
    for number in range(times):
        copy_of_file = copied(file, tmp_path / f"{number}")
        log = copy_of_file.with_name(f"{copy_of_file.name}-wal")
        content = bytearray(log.read_bytes())
        damage(content, random)
        log.write_bytes(content)
        opened = SqliteStore(copy_of_file)
        missing = COMMITS - len(opened.runs())
        assert bool(missing) == bool(opened.loss), (missing, opened.loss)
        opened.close()
        assert loss(copy_of_file) is None  # only the start that finds it reports it
    store.close()


def test_a_killed_process_has_lost_nothing(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    for number in range(40):
        fill(store, 1, number)
        assert loss(copied(file, tmp_path / f"{number}")) is None
    store.close()


def test_a_process_that_is_really_killed_has_lost_nothing(file: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from nerve.store.sqlite import SqliteStore\n"
        "from nerve.testing.store_contract import append\n"
        "store = SqliteStore(Path(sys.argv[1]))\n"
        "for n in range(50): store.append([append(f'run-{n}', 0, 3)])\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    assert file.with_name("nerve.db.mark").exists()
    store = SqliteStore(file)
    assert store.loss is None
    assert len(store.events("run-49")) == 3
    store.close()


def test_nothing_is_reported_after_the_log_was_restarted(
    file: Path, tmp_path: Path, eager_checkpoints: None
) -> None:
    store = SqliteStore(file)
    for number in range(60):
        fill(store, 1, number)
        assert loss(copied(file, tmp_path / f"{number}")) is None
    store.close()


def test_a_lost_fact_is_reported_too(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store, 2)
    for version in range(1, 4):
        store.append([append_facts(fact_row("a", version, "note", version))])
    copy_of_file = copied(file, tmp_path / "left")
    log = copy_of_file.with_name(f"{copy_of_file.name}-wal")
    log.write_bytes(log.read_bytes()[:-5000])
    assert loss(copy_of_file) is not None
    store.close()


def test_a_lost_fact_is_reported_where_the_header_of_the_log_is_damaged(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    store.append([append_facts(fact_row("a", 1, "note", 1))])
    random = Random(1)
    for number in range(20):
        copy_of_file = copied(file, tmp_path / f"{number}")
        log = copy_of_file.with_name(f"{copy_of_file.name}-wal")
        content = bytearray(log.read_bytes())
        break_header(content, random)
        log.write_bytes(content)
        assert loss(copy_of_file) is not None
    store.close()


def test_a_closed_store_has_no_mark_and_can_be_replaced_by_a_backup(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store, 2)
    store.close()
    backup = file.read_bytes()
    store = SqliteStore(file)
    fill(store, 2, 2)
    store.close()
    assert not file.with_name("nerve.db.mark").exists()
    file.write_bytes(backup)
    assert loss(file) is None


def test_a_log_checkpointed_by_another_program_is_not_a_loss(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store)
    copy_of_file = copied(file, tmp_path / "left")
    store.close()
    other = apsw.Connection(str(copy_of_file))
    assert other.execute("SELECT count(*) FROM runs").get == COMMITS
    other.close()
    assert not copy_of_file.with_name(f"{copy_of_file.name}-wal").exists()
    assert loss(copy_of_file) is None


def test_a_deleted_run_is_not_a_loss(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store, 3)
    store.delete_runs(["run-0", "run-1", "run-2"])
    copy_of_file = copied(file, tmp_path / "left")
    store.close()
    other = apsw.Connection(str(copy_of_file))
    other.execute("SELECT 1 FROM runs")
    other.close()
    assert loss(copy_of_file) is None


def test_a_lost_log_is_reported_although_the_last_run_was_deleted(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store, 3)
    store.delete_runs(["run-2"])
    copy_of_file = copied(file, tmp_path / "left")
    store.close()
    copy_of_file.with_name(f"{copy_of_file.name}-wal").unlink()
    assert loss(copy_of_file) is not None


def test_a_failed_commit_is_not_a_loss(file: Path, disk: Disk, tmp_path: Path) -> None:
    store = SqliteStore(file, vfs=disk.name)
    fill(store, 5)

    def fail(operation: str, name: str) -> None:
        if operation == "sync" and name.endswith("-wal"):
            raise io_error("sync")

    disk.before = fail
    with pytest.raises(StoreError):
        store.append([append("lost", 0, 3)])
    assert loss(copied(file, tmp_path / "failed")) is None
    disk.before = lambda operation, name: None
    fill(store, 1, 5)
    assert loss(copied(file, tmp_path / "after")) is None
    store.close()


def test_a_store_without_a_mark_opens(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store, 3)
    copy_of_file = copied(file, tmp_path / "left")
    copy_of_file.with_name("nerve.db.mark").unlink()
    assert loss(copy_of_file) is None
    store.close()


@pytest.mark.parametrize("content", [b"", b"junk", b"\xff" * 600])
def test_an_unreadable_mark_is_ignored(file: Path, tmp_path: Path, content: bytes) -> None:
    store = SqliteStore(file)
    fill(store, 3)
    copy_of_file = copied(file, tmp_path / "left")
    copy_of_file.with_name("nerve.db.mark").write_bytes(content)
    assert loss(copy_of_file) is None
    store.close()


def test_a_hole_in_the_log_is_reported_without_a_mark(file: Path, tmp_path: Path) -> None:
    """A commit after the hole was written once those before it were on disk."""
    store = SqliteStore(file)
    fill(store)
    copy_of_file = copied(file, tmp_path / "left")
    copy_of_file.with_name("nerve.db.mark").unlink()
    log = copy_of_file.with_name(f"{copy_of_file.name}-wal")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    assert loss(copy_of_file) is not None
    store.close()


def test_a_loss_is_recorded_and_the_damaged_log_is_kept(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    fill(store)
    copy_of_file = copied(file, tmp_path / "left")
    store.close()
    log = copy_of_file.with_name(f"{copy_of_file.name}-wal")
    damaged = log.read_bytes()[:20_000]
    log.write_bytes(damaged)
    assert loss(copy_of_file) is not None
    [written] = commit_mark.read_losses(copy_of_file)
    assert "run-29" in written["message"]
    assert Path(written["log"]).read_bytes() == damaged
    assert Path(written["log"]).stat().st_mode & 0o777 == 0o600


def test_an_unwritable_mark_does_not_fail_a_commit(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(file)

    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(commit_mark.os, "pwrite", full)
    fill(store, 3)
    assert len(store.runs()) == 3
    assert caplog.text.count("No space left on device") == 1
    monkeypatch.undo()
    store.close()


def test_long_logs_and_names_of_any_length_have_a_mark(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    name = "é" * 3000
    row: list[FactRow] = []
    store.append([Append(name, 0, append(name, 0, 3).rows, run_row(name), facts=row)])
    copy_of_file = copied(file, tmp_path / "left")
    assert loss(copy_of_file) is None
    log = copied(file, tmp_path / "cut").with_name("nerve.db-wal")
    log.write_bytes(log.read_bytes()[:-100])
    assert loss(log.with_name("nerve.db")) is not None
    store.close()
    assert sqlite_writer.CHECKPOINT_PAGES > 0
