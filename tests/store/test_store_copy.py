"""A copy of a store has all its rows, or does not exist."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.crypto import AesGcmCodec
from nerve.errors import JournalBroken, StoreError, StoreFailed, StoreFull, StoreInUse
from nerve.store import sqlite_copy
from nerve.store.encoded_store import EncodedStore, refuse_encoded
from nerve.store.port import Append
from nerve.store.portable_rows import TABLES, Row, copy_rows
from nerve.store.sqlite import SqliteStore
from nerve.store.sqlite_copy import copy_file, read_file, write_file
from nerve.store.store_copy import copy_store
from nerve.testing.store_contract import append, event, run_row
from store import processes
from store.random_project import fill_store
from store.test_migrations import KEPT, restored

BIG_RUNS = 200


def rows_of(file: Path) -> dict[str, list[Row]]:
    """Return all rows of a store."""
    with read_file(file) as rows:
        return {table.name: list(rows.read(table)) for table in TABLES}


def fill_file(file: Path, seed: int) -> None:
    store = SqliteStore(file)
    try:
        fill_store(store, Random(seed))
    finally:
        store.close()


@pytest.fixture
def big(file: Path) -> Path:
    """A store that takes some time to copy."""
    store = SqliteStore(file)
    for number in range(0, BIG_RUNS, 50):
        store.append([append(f"r{n}", 0, 100, run_row(f"r{n}")) for n in range(number, number + 50)])
    store.close()
    return file


def files_beside(file: Path) -> set[str]:
    return {path.name for path in file.parent.iterdir() if path.name.startswith(file.name)}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_rows_that_are_copied_there_and_back_are_equal(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("copies")
    source, there, back, whole = (folder / name for name in ("source.db", "there.db", "back.db", "whole.db"))
    fill_file(source, seed)
    for original, copy in ((source, there), (there, back)):
        with read_file(original) as rows, write_file(copy) as new_rows:
            copy_rows(rows, new_rows)
    copy_file(source, whole)
    assert rows_of(source) == rows_of(there) == rows_of(back) == rows_of(whole)
    with_source, with_copy = SqliteStore(source), SqliteStore(back)
    try:
        assert with_copy.runs() == with_source.runs()
        for session in ("default", "other"):
            assert with_copy.count_runs(session) == with_source.count_runs(session)
            assert with_copy.daily_usage(session, "", "9") == with_source.daily_usage(session, "", "9")
        for row in with_source.runs():
            assert with_copy.events(row.run) == with_source.events(row.run)
            last = with_source.last_event(row.run)
            after = 0 if last is None else last.seq
            assert with_copy.append([append(row.run, after, 2)]) == [None]
    finally:
        with_source.close()
        with_copy.close()


def test_no_table_is_left_out(file: Path) -> None:
    SqliteStore(file).close()
    db = apsw.Connection(str(file))
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    db.close()
    computed = {"journals", "event_types", "blobs", "run_counts", "deletions"}
    assert tables - computed == {table.name for table in TABLES}


def test_a_copy_is_one_private_file_that_this_user_owns(file: Path, tmp_path: Path) -> None:
    fill_file(file, 1)
    target = tmp_path / "copy.db"
    copy_store(str(file), str(target))
    assert files_beside(target) == {"copy.db", "copy.db.signature"}
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.stat().st_nlink == 1


def test_a_store_that_a_process_owns_is_copied_only_as_it_is(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0, 3, run_row("r"))])
    try:
        with pytest.raises(StoreInUse, match="in use by this process"):
            copy_store(str(file), str(tmp_path / "moved.db"))
        copied = copy_store(str(file), str(tmp_path / "copy.db"), while_owned=True)
    finally:
        store.close()
    assert copied == (1, 3)
    assert not (tmp_path / "moved.db").exists()


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal", ".mark"])
def test_a_target_that_exists_is_refused(file: Path, tmp_path: Path, suffix: str) -> None:
    fill_file(file, 1)
    target = tmp_path / f"copy.db{suffix}"
    target.write_bytes(b"mine")
    with pytest.raises(StoreError, match="exists already"):
        copy_store(str(file), str(tmp_path / "copy.db"))
    assert target.read_bytes() == b"mine"
    assert files_beside(tmp_path / "copy.db") == {target.name}


def test_two_copies_to_one_target_do_not_mix(file: Path, tmp_path: Path) -> None:
    fill_file(file, 1)
    target = tmp_path / "copy.db"
    with sqlite_copy.new_store_file(target) as partial:
        with pytest.raises(StoreError, match=r"Another process writes .*copy.db now"):
            copy_store(str(file), str(target))
        assert partial.exists()
        sqlite_copy.copy_pages(file, partial, target)
    assert rows_of(target) == rows_of(file)


def test_a_damaged_run_is_not_copied(file: Path, tmp_path: Path) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0, 3, run_row("r"))])
    store.close()
    db = apsw.Connection(str(file))
    db.execute("UPDATE events SET path = '/other' WHERE seq = 3")
    db.close()
    with pytest.raises(JournalBroken, match="Run r: event"):
        copy_store(str(file), str(tmp_path / "whole.db"))
    with (
        pytest.raises(JournalBroken, match="Run r: event"),
        read_file(file) as rows,
        write_file(tmp_path / "rows.db") as new_rows,
    ):
        copy_rows(rows, new_rows)
    assert not list(tmp_path.glob("*.db*")) or files_beside(file) == {p.name for p in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "File not found: "),
        (b"", "is empty"),
        (b"no database, but long enough to be one" * 100, "is not a store of Nerve"),
    ],
)
def test_a_wrong_source_is_one_clear_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    source, target = tmp_path / "source.db", tmp_path / "copy.db"
    if content is not None:
        source.write_bytes(content)
    for while_owned in (True, False):
        with pytest.raises(StoreError, match=message):
            copy_store(str(source), str(target), while_owned=while_owned)
    assert not files_beside(target)


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "other.db"))
    db.execute("CREATE TABLE t (i)")
    db.close()
    with pytest.raises(StoreError, match="is the database of another program"):
        copy_store(str(tmp_path / "other.db"), str(tmp_path / "copy.db"))
    assert not files_beside(tmp_path / "copy.db")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.99])
def test_a_truncated_source_is_one_clear_error(big: Path, tmp_path: Path, share: float) -> None:
    os.truncate(big, int(big.stat().st_size * share))
    with pytest.raises(StoreFailed, match="is damaged or not complete"):
        copy_store(str(big), str(tmp_path / "copy.db"))
    assert not files_beside(tmp_path / "copy.db")


def test_encoded_payloads_stay_encoded(file: Path, tmp_path: Path) -> None:
    codec = AesGcmCodec({"k1": bytes(32)}, "keys")
    store = EncodedStore(SqliteStore(file), codec)
    store.append([Append("r", 0, [event(1, data='"secret words"')], run_row("r"))])
    store.add_message("c", "user", "secret words")
    store.close()
    with read_file(file) as rows, write_file(tmp_path / "rows.db") as new_rows:
        copy_rows(rows, new_rows)
    copy_file(file, tmp_path / "whole.db")
    for name in ("rows.db", "whole.db"):
        assert b"secret words" not in (tmp_path / name).read_bytes()
        plain = SqliteStore(tmp_path / name)
        with pytest.raises(StoreError, match="The store is encrypted"):
            refuse_encoded(plain)
        copy = EncodedStore(plain, codec)
        assert [row.data for row in copy.events("r")] == ['"secret words"']
        assert [row.text for row in copy.messages("c")] == ["secret words"]
        copy.close()


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """Let writes beyond a size of a file fail, as on a full disk."""
    previous, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, previous[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_target_that_cannot_grow_is_one_clear_error(big: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with limited_file_size(100_000):
        with pytest.raises((StoreFailed, StoreFull), match=r"copy\.db cannot be written"):
            copy_store(str(big), str(target))
        with (
            pytest.raises((StoreFailed, StoreFull), match=r"copy\.db cannot be written"),
            read_file(big) as rows,
            write_file(target) as new_rows,
        ):
            copy_rows(rows, new_rows)
    assert not files_beside(target)
    copy_store(str(big), str(target))


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_version_is_copied_as_one_of_the_newest(
    kept: Path, file: Path, tmp_path: Path
) -> None:
    kept_file = restored(kept, file)
    before = kept_file.read_bytes()
    with read_file(kept_file) as rows, write_file(tmp_path / "rows.db") as new_rows:
        counts = copy_rows(rows, new_rows)
    assert copy_store(str(kept_file), str(tmp_path / "whole.db"), while_owned=True).runs == counts["runs"] > 0
    rows, whole = rows_of(tmp_path / "rows.db"), rows_of(tmp_path / "whole.db")
    # A migration notes its time there.
    assert rows.pop("properties")
    assert whole.pop("properties")
    assert rows == whole
    assert kept_file.read_bytes() == before


KILLED_COPY = """
import sys
from pathlib import Path
from nerve.store.portable_rows import copy_rows
from nerve.store.sqlite_copy import copy_file, read_file, write_file
how, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
print("begins", flush=True)
while True:  # until it is killed
    if how == "whole":
        copy_file(source, target)
    else:
        with read_file(source) as rows, write_file(target) as new_rows:
            copy_rows(rows, new_rows)
    target.unlink()
"""


@pytest.mark.parametrize("how", ["whole", "rows"])
def test_a_killed_copy_leaves_no_target_and_can_be_repeated(big: Path, tmp_path: Path, how: str) -> None:
    target = tmp_path / "copy.db"
    partial = Path(f"{target}{sqlite_copy.PARTIAL_SUFFIX}")
    random = Random(4)
    for _ in range(3):
        process = processes.start(KILLED_COPY, how, big, target)
        assert processes.news(process).readline() == "begins\n"
        deadline = time.monotonic() + 60
        size = random.randrange(200_000)
        while not (partial.exists() and partial.stat().st_size > size):
            assert time.monotonic() < deadline
        processes.kill(process)
        if target.exists():  # it was killed between two copies
            assert rows_of(target) == rows_of(big)
            target.unlink()
        assert copy_store(str(big), str(target)) == (BIG_RUNS, 100 * BIG_RUNS)
        assert rows_of(target) == rows_of(big)
        target.unlink()
