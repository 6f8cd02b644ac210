"""`nerve backup`, `nerve restore` and `nerve store copy`: the copy is complete, and its runs resume."""

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from nerve.project.ownership import is_own_store, signature_file
from nerve.store.inspection import StoreInspection
from nerve.store.sqlite import SqliteStore
from store import processes

WRITER = """
import itertools, sys
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, run_row
store = SqliteStore(sys.argv[1])
for number in itertools.count():
    store.append([append(f"r{number}", 0, 7, run_row(f"r{number}"))])
    print(number, flush=True)
"""


@pytest.fixture
def store(project: Path) -> Path:
    return project / ".nerve/nerve.db"


@pytest.fixture
def open_run(do: Callable[..., Any]) -> str:
    """A run that waits at a gate."""
    done = do("run", "asking", "--json")
    assert done.code == 4
    run: str = done.json["run_id"]
    return run


def set_store_aside(store: Path) -> None:
    aside = store.parent / "aside"
    aside.mkdir()
    for file in store.parent.glob("nerve.db*"):
        file.rename(aside / file.name)


def test_a_restored_run_goes_on_without_a_question(do, store: Path, open_run: str, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    done = do("backup", str(backup))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Backed up 1 run with ")
    assert done.out.endswith(f" events into {backup}. All hash chains are intact.\n")
    set_store_aside(store)
    assert do("restore", str(backup)).code == 0
    assert [run["run_id"] for run in do("runs", "--json").json] == [open_run]
    assert do("doctor", "--deep", "--quiet").out == "No problems found.\n"
    assert do("answer", open_run, "red").code == 0


def test_the_report_is_one_json_value(do, store: Path, open_run: str, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    report = do("backup", str(backup), "--json").json
    assert report == {"runs": 1, "events": report["events"], "from": ".nerve/nerve.db", "to": str(backup)}
    set_store_aside(store)
    assert do("restore", str(backup), "--json").json == {
        **report,
        "from": str(backup),
        "to": ".nerve/nerve.db",
    }
    assert do("backup", str(tmp_path / "quiet.db"), "--quiet").out == ""


def test_a_backup_under_load_has_everything_acknowledged_before_it_began(
    do, store: Path, tmp_path: Path
) -> None:
    store.parent.mkdir(exist_ok=True)
    writer = processes.start(WRITER, store)
    try:
        for number in range(5):
            acknowledged = int(processes.news(writer).readline())
            backup = tmp_path / f"{number}.db"
            assert do("backup", str(backup)).code == 0
            with closing(SqliteStore(backup)) as copy:
                runs = {row.run for row in copy.runs()}
                assert {f"r{each}" for each in range(acknowledged + 1)} <= runs
                assert all(len(copy.events(run)) == 7 for run in runs)
            assert list(StoreInspection(backup, lambda row, first, last: []).find_damage()) == []
            assert writer.poll() is None
    finally:
        processes.kill(writer)


def test_a_project_is_moved_with_its_open_runs(
    do, store: Path, open_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "moved"
    (other / ".nerve").mkdir(parents=True)
    shutil.copytree(store.parent / "workflows", other / ".nerve/workflows")
    done = do("store", "copy", str(store), str(other / ".nerve/nerve.db"))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Copied 1 run with ")
    monkeypatch.chdir(other)
    assert do("answer", open_run, "red").code == 0
    monkeypatch.chdir(store.parents[1])
    [left] = do("runs", "--json").json
    assert left["state"] == "waiting"


def test_a_store_in_use_is_backed_up_but_not_moved(do, store: Path, open_run: str, tmp_path: Path) -> None:
    with closing(SqliteStore(store)):
        done = do("store", "copy", str(store), str(tmp_path / "moved.db"))
        assert done.code != 0
        assert "is in use by this process" in done.err
        assert do("backup", str(tmp_path / "backup.db")).code == 0
    assert not (tmp_path / "moved.db").exists()


def test_nothing_is_overwritten(do, store: Path, open_run: str, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    do("backup", str(backup))
    before = backup.read_bytes(), store.read_bytes()
    for command in (
        ("backup", str(backup)),
        ("restore", str(backup)),
        ("store", "copy", str(backup), str(store)),
    ):
        done = do(*command, "--json")
        assert done.code != 0
        assert "exists already" in done.json["error"]["message"]
    assert (backup.read_bytes(), store.read_bytes()) == before


def test_what_is_left_of_an_old_store_is_not_mixed_with_the_restored_one(
    do, store: Path, open_run: str, tmp_path: Path
) -> None:
    backup = tmp_path / "monday.db"
    do("backup", str(backup))
    set_store_aside(store)
    store.with_name("nerve.db-wal").write_bytes(b"the log of another file")
    done = do("restore", str(backup))
    assert done.code != 0
    assert "nerve.db-wal exists already. Move it away" in done.err
    assert not store.exists()


@pytest.mark.parametrize("content", [None, b"", b"text" * 1000])
def test_a_wrong_backup_is_refused_and_nothing_is_left(
    do, store: Path, tmp_path: Path, content: bytes | None
) -> None:
    backup = tmp_path / "wrong.db"
    if content is not None:
        backup.write_bytes(content)
    done = do("restore", str(backup))
    assert done.code != 0
    assert len(done.err.strip().splitlines()) <= 2
    assert not list(store.parent.glob("nerve.db*"))


def test_there_is_nothing_to_back_up_in_a_new_project(do, tmp_path: Path) -> None:
    done = do("backup", str(tmp_path / "monday.db"))
    assert done.code == 2
    assert "No store to back up" in done.err


def test_runs_from_elsewhere_stay_from_elsewhere(do, store: Path, open_run: str, tmp_path: Path) -> None:
    backup, again = tmp_path / "monday.db", tmp_path / "tuesday.db"
    do("backup", str(backup))
    assert is_own_store(backup)
    signature_file(backup).unlink()  # as on another machine
    set_store_aside(store)
    assert do("restore", str(backup)).code == 0
    assert not is_own_store(store)
    assert "nerve trust" in do("answer", open_run, "red").err
    assert do("backup", str(again)).code == 0
    assert not is_own_store(again)
    assert do("trust").code == 0
    assert do("answer", open_run, "red").code == 0


def test_a_full_disk_leaves_no_file(do, store: Path, open_run: str, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(store))) as db:
        db.execute("INSERT INTO blobs VALUES (x'00', zeroblob(1000000))")
    folder = tmp_path / "small"
    folder.mkdir()
    # A write beyond the limit fails as on a full disk.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        done = do("backup", str(folder / "backup.db"), "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert done.code != 0
    assert "backup.db cannot be written" in json.loads(done.out)["error"]["message"]
    assert os.listdir(folder) == []


DATABASE_WRITER = """
import itertools, os
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import append, run_row
store = PostgresStore(os.environ["NERVE_STORE"])
for number in itertools.count():
    store.append([append(f"r{number}", 0, 7, run_row(f"r{number}"))])
    print(number, flush=True)
"""


@pytest.fixture
def database(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The database that NERVE_STORE names."""
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    return postgresql_url


def test_a_backup_of_a_database_under_load_has_everything_acknowledged_before_it_began(
    do, project: Path, database: str, tmp_path: Path
) -> None:
    writer = processes.start(DATABASE_WRITER)
    try:
        for number in range(3):
            acknowledged = int(processes.news(writer).readline())
            backup = tmp_path / f"{number}.db"
            done = do("backup", str(backup))
            assert (done.code, done.err) == (0, "")
            with closing(SqliteStore(backup)) as copy:
                runs = {row.run for row in copy.runs()}
                assert {f"r{each}" for each in range(acknowledged + 1)} <= runs
                assert all(len(copy.events(run)) == 7 for run in runs)
            assert list(StoreInspection(backup, lambda row, first, last: []).find_damage()) == []
            assert writer.poll() is None
    finally:
        processes.kill(writer)


def test_a_run_is_restored_into_a_database_and_from_there_into_a_file(
    do, store: Path, open_run: str, tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    do("backup", str(first))
    set_store_aside(store)
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    done = do("restore", str(first))
    assert (done.code, done.err) == (0, "")
    assert "into postgresql://nerve@127.0.0.1:" in done.out
    assert postgresql_url.split(":")[2].split("@")[0] not in done.out
    assert "has a store already" in do("restore", str(first)).err
    assert [run["run_id"] for run in do("runs", "--json").json] == [open_run]
    assert do("backup", str(second)).code == 0
    monkeypatch.delenv("NERVE_STORE")
    assert do("restore", str(second)).code == 0
    assert do("answer", open_run, "red").code == 0


def test_a_project_is_moved_into_a_database_and_back(
    do, store: Path, open_run: str, tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, _, end = postgresql_url.partition("@")
    user, _, password = start.rpartition(":")
    url, back = f"{user}@{end}", tmp_path / "back.db"
    monkeypatch.setenv("PGPASSWORD", password)
    report = do("store", "copy", str(store), url, "--json").json
    assert (report["runs"], report["to"]) == (1, url)
    assert do("store", "copy", url, str(back), "--json").json == {**report, "from": url, "to": str(back)}
    assert do("answer", open_run, "red", "--store", url).code == 0
    assert do("answer", open_run, "red", "--store", str(back)).code == 0


def test_a_password_in_an_argument_is_refused(do, store: Path, open_run: str) -> None:
    done = do("store", "copy", str(store), "postgresql://me:secret@127.0.0.1:9/db")
    assert done.code == 2
    assert "must not have a password" in done.err
    assert "secret" not in done.err


def test_runs_from_elsewhere_need_trust_before_they_are_in_a_database(
    do, store: Path, open_run: str, tmp_path: Path, database: str
) -> None:
    foreign = tmp_path / "foreign.db"
    shutil.copy(store, foreign)
    done = do("restore", str(foreign))
    assert done.code != 0
    assert f"nerve trust {foreign}" in done.err
    assert do("trust", str(foreign)).code == 0
    assert do("restore", str(foreign)).code == 0
