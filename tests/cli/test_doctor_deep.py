"""`nerve doctor --deep` checks everything in the store, and names the runs that are affected."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest


@pytest.fixture
def store(do, project: Path) -> Path:
    """A store with a finished run, one that waits, and a parent with its child."""
    assert do("run", "shout").code == 0
    assert do("run", "asking").code == 4
    assert do("run", "parent", "--label", "mine").code == 4
    return project / ".nerve/nerve.db"


def change(store: Path, statement: str) -> None:
    with closing(apsw.Connection(str(store))) as db:
        db.execute(statement)


def test_an_intact_store_passes(do, store: Path) -> None:
    done = do("doctor", "--deep")
    assert done.code == 0
    assert "✓ store (deep check): 4 runs with " in done.out
    assert "store (deep check)" not in do("doctor").out
    assert do("doctor", "--deep", "--quiet").out == "No problems found.\n"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE events SET data = '{}' WHERE journal = {id} AND seq = 2", "event 2 is not what was written"),
        ("UPDATE runs SET state = 'completed' WHERE id = {id}", "but its journal has 'open'"),
        ("UPDATE runs SET workflow = 'other' WHERE id = {id}", "but its journal has 'asking'"),
        ("UPDATE runs SET parent = 'other' WHERE id = {id}", "parent 'other', but its journal has None"),
        ("DELETE FROM runs WHERE id = {id}", "missing from the runs table"),
    ],
)  # fmt: skip
def test_the_affected_run_is_named_with_a_fix(do, store: Path, statement: str, told: str) -> None:
    [run] = [each["run_id"] for each in do("runs", "--json").json if each["workflow"] == "asking"]
    id = f"(SELECT id FROM journals WHERE run = '{run}')"
    change(store, statement.replace("{id}", id))
    done = do("doctor", "--deep", "--json")
    assert done.code == 1
    wrong = [each for each in done.json["findings"] if each["state"] == "wrong"]
    assert [each["name"] for each in wrong] == [f"run {run}"]
    assert told in wrong[0]["told"]
    assert wrong[0]["fix"] == "Restore the file from a backup."
    assert do("doctor", "--quiet").out == "No problems found.\n"


def test_a_finished_run_that_is_listed_as_open_is_named(do, store: Path) -> None:
    change(store, "UPDATE runs SET state = 'running', ended = NULL WHERE state = 'completed'")
    done = do("doctor", "--deep", "--quiet")
    assert done.code == 1
    assert "has state 'running', but its journal has 'completed'" in done.out


def test_an_older_store_version_must_be_migrated_first(do, store: Path) -> None:
    change(store, "PRAGMA user_version = 5")
    done = do("doctor", "--deep")
    assert "○ store (deep check): store version 5 is too old for a deep check" in done.out


def test_the_check_works_while_another_process_owns_the_store(do, store: Path, project: Path) -> None:
    code = (
        "import sys; from nerve.store.sqlite import SqliteStore\n"
        "store = SqliteStore('.nerve/nerve.db'); print('open', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=project
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        assert "✓ store (deep check): 4 runs" in do("doctor", "--deep").out
    finally:
        owner.kill()
        owner.communicate()


def test_lost_events_are_reported_until_the_loss_file_is_removed(do, store: Path, project: Path) -> None:
    code = (
        "import os; from nerve.store.sqlite import SqliteStore\n"
        "from nerve.testing.store_contract import append\n"
        "store = SqliteStore('.nerve/nerve.db')\n"
        "for n in range(9): store.append([append(f'run-{n}', 0, 3)])\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=project)
    log = project / ".nerve/nerve.db-wal"
    os.truncate(log, log.stat().st_size - 10)
    assert do("runs").code == 0
    done = do("doctor", "--quiet")
    assert done.code == 1
    assert "has lost writes that were acknowledged" in done.out
    assert "event 3 of run run-8" in done.out
    (project / ".nerve/nerve.db.losses").unlink()
    assert do("doctor", "--quiet").code == 0
