"""One process owns a file; others get an error that names the owner."""

import errno
import os
import time
from pathlib import Path

import pytest

from nerve.errors import StoreDenied, StoreFailed, StoreFull, StoreInUse
from nerve.store.owner_lock import make_open_error
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append
from store.processes import kill, news, start

OWNER = """
import sys
from nerve.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_rejected_at_once_with_the_owner(file: Path) -> None:
    owner = start(OWNER, file)
    assert news(owner).readline() == "ready\n"
    begun = time.monotonic()
    with pytest.raises(StoreInUse) as caught:
        SqliteStore(file)
    assert time.monotonic() - begun < 10
    assert str(file) in str(caught.value)
    assert str(owner.pid) in str(caught.value)
    kill(owner)


def test_the_file_is_free_after_its_owner_was_killed(file: Path) -> None:
    owner = start(OWNER, file)
    assert news(owner).readline() == "ready\n"
    kill(owner)
    store = SqliteStore(file)
    assert store.append([append("r", 0)]) == [None]
    store.close()


def test_a_second_store_in_the_same_process_is_rejected(store: SqliteStore, file: Path) -> None:
    with pytest.raises(StoreInUse, match="in use by this process"):
        SqliteStore(file)
    assert store.append([append("r", 0)]) == [None]


def test_another_name_for_the_file_is_rejected_too(store: SqliteStore, file: Path) -> None:
    other = file.with_name("other.db")
    other.symlink_to(file)
    with pytest.raises(StoreInUse):
        SqliteStore(other)


def test_closing_releases_the_file(store: SqliteStore, file: Path) -> None:
    store.close()
    SqliteStore(file).close()


def test_a_file_that_could_not_be_opened_is_released(file: Path) -> None:
    file.write_text("not a database, but long enough to be read as the header of one " * 20)
    for _ in range(2):
        with pytest.raises(Exception, match="not a database"):
            SqliteStore(file)


@pytest.mark.parametrize(
    ("number", "error", "fix"),
    [
        (errno.EACCES, StoreDenied, "Change its permissions, or use another store."),
        (errno.EROFS, StoreDenied, "Change its permissions, or use another store."),
        (errno.ENOSPC, StoreFull, "Free some space, then try again."),
        (errno.EMFILE, StoreFailed, "To diagnose: nerve doctor"),
    ],
)
def test_a_file_that_cannot_be_opened_is_reported_with_a_fix(
    number: int, error: type[StoreFailed], fix: str, file: Path
) -> None:
    made = make_open_error("lock", file, OSError(number, os.strerror(number)))
    assert (type(made), made.fix) == (error, fix)
    assert str(made).startswith(f"Cannot lock {file}: ")
