"""Stores are copied between SQLite and PostgreSQL in both directions, row for row, or not at all."""

import time
from pathlib import Path
from random import Random

import apsw
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.errors import JournalBroken, StoreError, StoreInUse
from nerve.store.portable_rows import EVENTS, TABLES, Row
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_migrations import MIGRATIONS
from nerve.store.postgres_rows import read_database
from nerve.store.sqlite import SqliteStore
from nerve.store.sqlite_copy import write_file
from nerve.store.store_copy import copy_store
from nerve.testing.store_contract import append, run_row
from postgresql_server import PostgresqlServer
from store import processes
from store.random_project import fill_store
from store.test_store_copy import files_beside, fill_file, rows_of


def rows_of_database(url: str) -> dict[str, list[Row]]:
    with read_database(url, while_owned=True) as rows:
        return {table.name: list(rows.read(table)) for table in TABLES}


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_project_that_is_moved_there_and_back_is_equal(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: PostgresqlServer, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("copies")
    source, back = folder / "source.db", folder / "back.db"
    fill_file(source, seed)
    there, other = (f"{postgresql_server.create_database()}?schema={name}" for name in ("a", "b"))
    copied = copy_store(str(source), there)
    assert copy_store(there, other) == copied
    assert copy_store(other, str(back)) == copied
    expected = rows_of(source)
    assert rows_of_database(there) == rows_of_database(other) == rows_of(back) == expected
    in_file, in_database = SqliteStore(back), PostgresStore(there)
    try:
        assert in_database.runs() == in_file.runs()
        for session in ("default", "other"):
            assert in_database.count_runs(session) == in_file.count_runs(session)
            assert in_database.facts(session) == in_file.facts(session)
            assert in_database.daily_usage(session, "", "9") == in_file.daily_usage(session, "", "9")
        parts = []
        for row in in_file.runs():
            assert in_database.events(row.run) == in_file.events(row.run)
            last = in_file.last_event(row.run)
            parts.append(append(row.run, 0 if last is None else last.seq, 2))
        assert in_database.append(parts) == in_file.append(parts) == [None] * len(parts)
    finally:
        in_file.close()
        in_database.close()
        for url in (there, other):
            postgresql_server.drop_database(url.partition("?")[0])


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_a_project_that_began_in_a_database_is_moved_into_a_file(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: PostgresqlServer, seed: int
) -> None:
    url = postgresql_server.create_database()
    file = tmp_path_factory.mktemp("copies") / "nerve.db"
    store = PostgresStore(url)
    try:
        fill_store(store, Random(seed))
    finally:
        store.close()
    copy_store(url, str(file))
    assert rows_of(file) == rows_of_database(url)
    postgresql_server.drop_database(url)


@pytest.fixture
def filled_database(postgresql_url: str) -> str:
    store = PostgresStore(postgresql_url)
    store.append([append(f"r{number}", 0, 5, run_row(f"r{number}")) for number in range(20)])
    store.close()
    return postgresql_url


def test_a_database_that_a_process_owns_is_copied_only_as_it_is(filled_database: str, tmp_path: Path) -> None:
    store = PostgresStore(filled_database)
    try:
        with pytest.raises(StoreInUse, match=r"Session 'default' in .* is in use by"):
            copy_store(filled_database, str(tmp_path / "moved.db"))
        assert copy_store(filled_database, str(tmp_path / "copy.db"), while_owned=True) == (20, 100)
        store.append([append("r0", 5)])
    finally:
        store.close()
    assert not files_beside(tmp_path / "moved.db")


def test_a_database_with_rows_or_with_an_owner_is_no_target(
    filled_database: str, file: Path, postgresql_server: PostgresqlServer
) -> None:
    fill_file(file, 1)
    before = rows_of_database(filled_database)
    with pytest.raises(StoreError, match="has a store already"):
        copy_store(str(file), filled_database)
    assert rows_of_database(filled_database) == before
    empty = f"{filled_database}?schema=empty"
    store = PostgresStore(empty)
    try:
        with pytest.raises(StoreInUse):
            copy_store(str(file), empty)
    finally:
        store.close()
    copy_store(str(file), empty)
    assert rows_of_database(empty) == rows_of(file)


def test_no_table_is_left_out(filled_database: str) -> None:
    with psycopg.connect(filled_database) as db:
        rows = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'nerve'").fetchall()
    computed = {"owners", "leases", "store_version", "run_counts", "deletions"}
    computed |= {"stream_identity", "commands"}  # of this database and its servers
    computed |= {"event_sources", "step_attempts", "payloads", "payload_uses"}  # of an engine like Temporal
    computed |= {"budget_reservations", "fact_watches", "queue_entries", "queue_starts"}
    computed |= {"provider_slots", "provider_limits"}  # of the agents that run at present
    assert {name for (name,) in rows} - computed == {table.name for table in TABLES}


@pytest.mark.parametrize("version", [0, 99])
def test_tables_of_another_version_are_not_changed_by_a_backup(
    filled_database: str, tmp_path: Path, version: int
) -> None:
    with psycopg.connect(filled_database) as db:
        db.execute(f"UPDATE nerve.store_version SET version = {version}")
    newest = len(MIGRATIONS)
    with pytest.raises(StoreError, match=f"has version {version}, but this Nerve reads version {newest}"):
        copy_store(filled_database, str(tmp_path / "copy.db"), while_owned=True)
    assert not files_beside(tmp_path / "copy.db")


def test_no_process_can_own_a_database_while_it_is_moved(filled_database: str) -> None:
    with read_database(filled_database, while_owned=False), psycopg.connect(filled_database) as other:
        other.execute("SET lock_timeout = 50; SET search_path = nerve")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute("UPDATE owners SET epoch = epoch + 1")


def test_a_damaged_run_is_not_copied(filled_database: str, tmp_path: Path) -> None:
    with psycopg.connect(filled_database) as db:
        db.execute("UPDATE nerve.events SET path = '/other' WHERE run = 'r7' AND seq = 3")
    with pytest.raises(JournalBroken, match="Run r7: event 3"):
        copy_store(filled_database, str(tmp_path / "copy.db"))
    assert not files_beside(tmp_path / "copy.db")


def test_a_damaged_file_leaves_the_database_empty(file: Path, postgresql_url: str) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0, 3, run_row("r"))])
    store.close()
    db = apsw.Connection(str(file))
    db.execute("UPDATE events SET path = '/other' WHERE seq = 3")
    db.close()
    with pytest.raises(JournalBroken, match="Run r: event"):
        copy_store(str(file), postgresql_url)
    assert rows_of_database(postgresql_url)["events"] == []


def test_a_text_that_postgresql_cannot_store_is_named(file: Path, postgresql_url: str) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0, 1, run_row("r")._replace(label="zero\0byte"))])
    store.close()
    with pytest.raises(StoreError, match=r"cannot store a text of the row \('r', 'default'\) of runs"):
        copy_store(str(file), postgresql_url)
    assert rows_of_database(postgresql_url)["runs"] == []


def test_a_wrong_address_is_one_error_without_the_password(file: Path, postgresql_url: str) -> None:
    fill_file(file, 1)
    password = postgresql_url.partition("@")[0].rpartition(":")[2]
    for url in (f"{postgresql_url}_missing", postgresql_url.replace(password, f"not{password}")):
        with pytest.raises(StoreError) as raised:
            copy_store(str(file), url)
        assert password not in str(raised.value)
    with pytest.raises(StoreError, match="has no store"):
        copy_store(f"{postgresql_url}?schema=nothing", str(file.with_name("copy.db")))


KILLED_COPY = """
import sys
from nerve.store.sqlite_copy import write_file
from nerve.store.store_copy import copy_store
copy_store(sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def big(file: Path) -> Path:
    store = SqliteStore(file)
    for number in range(0, 300, 50):
        store.append([append(f"r{n}", 0, 100, run_row(f"r{n}")) for n in range(number, number + 50)])
    store.close()
    return file


def has_written_events(db: psycopg.Connection[tuple[object, ...]]) -> bool:
    if db.execute("SELECT to_regclass('nerve.events')").fetchone() == (None,):
        return False
    return db.execute("SELECT pg_relation_size('nerve.events')").fetchone() != (0,)


def test_a_killed_copy_leaves_an_empty_database_and_can_be_repeated(big: Path, postgresql_url: str) -> None:
    process = processes.start(KILLED_COPY, big, postgresql_url)
    deadline = time.monotonic() + 60
    with psycopg.connect(postgresql_url, autocommit=True) as db:
        while not has_written_events(db):  # which nothing else can see
            assert time.monotonic() < deadline
            assert process.poll() is None
        processes.kill(process)
    assert rows_of_database(postgresql_url)["events"] == []
    assert copy_store(str(big), postgresql_url) == (300, 30_000)
    assert rows_of_database(postgresql_url) == rows_of(big)


def test_a_server_that_ends_during_the_copy_leaves_no_file(
    tmp_path: Path, postgresql_server: PostgresqlServer
) -> None:
    target = tmp_path / "copy.db"
    with PostgresqlServer() as server:
        url = server.create_database()
        store = PostgresStore(url)
        store.append([append(f"r{number}", 0, 50, run_row(f"r{number}")) for number in range(100)])
        store.close()
        with pytest.raises(StoreError, match="cannot be reached"):
            copy_from_killed_server(url, target, server)
        assert not files_beside(target)
        server.start()
        assert copy_store(url, str(target)) == (100, 5000)


def copy_from_killed_server(url: str, target: Path, server: PostgresqlServer) -> None:
    """Copy the events, and kill the server after the first one was read."""
    with read_database(url, while_owned=True) as rows, write_file(target) as new_rows:
        events = rows.read(EVENTS)
        new_rows.write(EVENTS, [next(events)])
        server.kill()
        new_rows.write(EVENTS, events)
