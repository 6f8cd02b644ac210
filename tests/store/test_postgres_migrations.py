"""The tables in PostgreSQL have the layout of one version or of the next, never something in between."""

import signal
from contextlib import closing

import psycopg
import pytest

from nerve.errors import StoreError, StoreFailed
from nerve.store import postgres_migrations
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import append, run_row
from store.processes import news, start

NEWEST = len(postgres_migrations.MIGRATIONS)

KILLED = """
import os, signal, sys, psycopg
from nerve.store.postgres_connection import connect, parse_address
from nerve.store.postgres_migrations import migrate
address, left, execute = parse_address(sys.argv[1]), int(sys.argv[2]), psycopg.Connection.execute
db = connect(address)

def count_down(db, *arguments, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(db, *arguments, **options)

psycopg.Connection.execute = count_down
migrate(db, address)
print("migrated", flush=True)
"""

RACER = """
import sys
from nerve.errors import StoreInUse
from nerve.store.postgres import PostgresStore
print("ready", flush=True)
sys.stdin.readline()
try:
    store = PostgresStore(sys.argv[1])
    print("opened", flush=True)
except StoreInUse:
    print("refused", flush=True)
sys.stdin.readline()
"""


def layout(url: str) -> list[tuple[object, ...]]:
    """Return the columns of all tables, the indexes and the functions, with the version of the tables."""
    with psycopg.connect(url) as db:
        columns = db.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'nerve' ORDER BY 1, 2"
        ).fetchall()
        indexes = db.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'nerve' ORDER BY 1"
        ).fetchall()
        functions = db.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace('nerve') ORDER BY 1"
        ).fetchall()
        version = db.execute("SELECT version FROM nerve.store_version").fetchall() if columns else []
    return [*columns, *indexes, *functions, *version]


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.full), 5])
def test_a_process_killed_at_any_statement_of_a_migration_leaves_a_complete_version(
    postgresql_url: str, step: int
) -> None:
    layouts = []
    for number in range(0, 100, step):
        process = start(KILLED, postgresql_url, number)
        output, _ = process.communicate()
        layouts.append(layout(postgresql_url))
        if output == "migrated\n":
            break
        assert process.returncode == -signal.SIGKILL
    assert number >= NEWEST + 6, "one for each statement"
    whole = layouts[-1]
    assert whole[-1] == (NEWEST,)
    assert all(each in ([], whole) for each in layouts)
    assert layouts[0] == []


def test_of_two_processes_that_open_an_empty_database_at_once_one_migrates_it(postgresql_url: str) -> None:
    racers = [start(RACER, postgresql_url) for _ in range(2)]
    assert [news(racer).readline() for racer in racers] == ["ready\n"] * 2
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(news(racer).readline() for racer in racers) == ["opened\n", "refused\n"]
    for racer in racers:
        racer.communicate("\n")
    assert layout(postgresql_url)[-1] == (NEWEST,)


def test_a_migration_that_fails_leaves_the_old_version(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStore(postgresql_url)) as store:
        store.append([append("r", 0, 3, run_row("r"))])
    old = layout(postgresql_url)
    later = "CREATE TABLE notes (label text); ALTER TABLE facts ADD COLUMN note text"
    migrations = [*postgres_migrations.MIGRATIONS, f"{later}; SELECT * FROM nowhere"]
    monkeypatch.setattr(postgres_migrations, "MIGRATIONS", migrations)
    with pytest.raises(StoreFailed, match="nowhere"):
        PostgresStore(postgresql_url)
    assert layout(postgresql_url) == old
    migrations[-1] = later
    with closing(PostgresStore(postgresql_url)) as store:
        assert store.events("r") == append("r", 0, 3).rows
    assert layout(postgresql_url)[-1] == (NEWEST + 1,)


def test_newer_tables_are_refused_and_left_unchanged(postgresql_url: str) -> None:
    PostgresStore(postgresql_url).close()
    with psycopg.connect(postgresql_url) as db:
        db.execute("UPDATE nerve.store_version SET version = 99")
    with pytest.raises(StoreError, match=r"has version 99.*Update Nerve"):
        PostgresStore(postgresql_url)
    assert layout(postgresql_url)[-1] == (99,)


def test_a_schema_of_another_program_is_refused(postgresql_url: str) -> None:
    with psycopg.connect(postgresql_url) as db:
        db.execute("CREATE SCHEMA nerve; CREATE TABLE nerve.invoices (number int)")
    before = layout_of_tables(postgresql_url)
    with pytest.raises(StoreError, match=r"tables of another program.*\?schema=NAME"):
        PostgresStore(postgresql_url)
    assert layout_of_tables(postgresql_url) == before
    PostgresStore(f"{postgresql_url}?schema=mine").close()


def layout_of_tables(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as db:
        return db.execute("SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'nerve'").fetchall()
