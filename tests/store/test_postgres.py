"""The PostgreSQL store fulfils the contract, and loses nothing when its server or its process ends."""

import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from random import Random

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.crypto import AesGcmCodec
from nerve.errors import JournalBroken, StoreBusy, StoreError, StoreFailed, StoreFull
from nerve.store.encoded_store import EncodedStore
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, UsageRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_connection import connect, parse_address
from nerve.store.postgres_writer import MAX_CACHED_ENDS, PostgresWriter
from nerve.testing.store_contract import StoreContract, append, event, fact_row, output, run_row
from nerve.testing.store_contract import append_facts as facts_of
from postgresql_server import PostgresqlServer
from store.processes import kill, news, start
from store.test_encoded_store import OLD, EncodedContract, Reverser
from store.test_sqlite import parts

WRITER = """
import sys
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import append, run_row
store = PostgresStore(sys.argv[1], sys.argv[2])
seq = len(store.events("r0"))
while True:
    assert not any(store.append([append(f"r{n}", seq, 1, run_row(f"r{n}", str(seq))) for n in range(5)]))
    seq += 1
    print(seq, flush=True)
"""


@pytest.fixture(scope="module")
def database(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """The URL of a database for all tests of this file that need only an empty store."""
    url = postgresql_server.create_database()
    yield url
    postgresql_server.drop_database(url)


@pytest.fixture
def empty_store(database: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(database)) as store:
        yield store
    with psycopg.connect(database) as db:
        for (table,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'nerve'").fetchall():
            if table != "store_version":
                db.execute(f"DELETE FROM nerve.{table}")


@pytest.fixture
def store(empty_store: PostgresStore) -> PostgresStore:
    return empty_store


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A server that the test may kill."""
    with PostgresqlServer() as server:
        yield server


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def store(self, empty_store: PostgresStore) -> PostgresStore:
        return empty_store


@pytest.mark.full  # quick: the contract with PostgreSQL here, and the one with a codec in test_encoded_store
class TestEncodedPostgresStore(EncodedContract):
    @pytest.fixture
    def store(self, empty_store: PostgresStore) -> EncodedStore:
        return EncodedStore(empty_store, AesGcmCodec(OLD))


def test_everything_survives_reopening_the_store(postgresql_url: str) -> None:
    with closing(PostgresStore(postgresql_url)) as first:
        assert first.durable
        first.append(
            [append("r", 0, 3, run_row("r", key="k")), Append("q", 0, [event(1, data="x" * 300_000)])]
        )
        first.append([facts_of(fact_row("a", 1))])
        said = first.add_message("c", "user", "hello")
    with closing(PostgresStore(postgresql_url)) as second:
        assert second.events("r") == append("r", 0, 3).rows
        assert second.events("q") == [event(1, data="x" * 300_000)]
        assert second.run_by_key("default", "k") == run_row("r", key="k")
        assert second.append([append("r", 3)]) == [None]
        assert second.facts("default") == [fact_row("a", 1)]
        assert second.messages("c") == [said]
        assert second.add_message("c", "user", "again").seq == 2


def test_amounts_keep_their_type(store: PostgresStore) -> None:
    amounts = {"tokens": 3, "cost": 0.1, "time": 1.0}
    for after in range(2):
        usage = [UsageRow("default", "2025-11-15", "m", amounts)]
        store.append([append("r", after)._replace(usage=usage)])
    [row] = store.daily_usage("default", "", "9")
    assert repr(row.amounts) == "{'cost': 0.2, 'time': 2.0, 'tokens': 6}"


@pytest.mark.parametrize(
    ("setting", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")]
)
def test_a_commit_is_synchronous_and_a_stricter_setting_of_the_administrator_stays(
    postgresql_url: str, setting: str, used: str
) -> None:
    with psycopg.connect(postgresql_url, autocommit=True) as db:
        [name] = db.execute("SELECT current_database()").fetchone() or ("",)
        db.execute(f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
    with closing(connect(parse_address(postgresql_url))) as db:
        assert db.execute("SHOW synchronous_commit").fetchone() == (used,)


def test_a_batch_takes_one_round_trip(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append([append("r", 0, 2, run_row("r")), append("q", 0, 2, run_row("q"))])
    syncs: list[int] = []
    sync = psycopg.Pipeline.sync
    monkeypatch.setattr(psycopg.Pipeline, "sync", lambda pipeline: (syncs.append(1), sync(pipeline))[1])
    batch = [append("r", 2, 2, run_row("r")), append("q", 2, 2, run_row("q")), facts_of(fact_row("a", 1))]
    assert store.append(batch) == [None] * 3
    assert len(syncs) <= 1


def test_without_patience_an_append_does_not_wait_for_the_network(store: PostgresStore) -> None:
    with pytest.raises(StoreBusy, match="network"):
        store.append([append("r", 0)], patience=0)
    assert store.append([append("r", 0)]) == [None]


def test_a_text_that_postgresql_cannot_store_fails_its_own_run_only(store: PostgresStore) -> None:
    parts = [append("a", 0), append("b", 0, 1, run_row("b")._replace(label="x\0y")), append("c", 0)]
    outcomes = store.append(parts)
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreFailed, type(None)]
    assert "Run b" in str(outcomes[1])
    assert [len(store.events(run)) for run in "abc"] == [1, 0, 1]


def test_more_journals_than_are_cached_can_be_continued(store: PostgresStore) -> None:
    runs = [f"run-{n}" for n in range(MAX_CACHED_ENDS + 100)]
    assert not any(store.append([append(run, 0) for run in runs]))
    assert not any(store.append([append(run, 1) for run in runs[:200]]))
    assert all(len(store.events(run)) == 2 for run in runs[:200])


def test_one_thread_may_append_while_others_read(store: PostgresStore) -> None:
    thread = threading.Thread(target=lambda: [store.append([append("r", n)]) for n in range(50)])
    thread.start()
    seen = 0
    while thread.is_alive():
        rows = store.events("r", seen)
        assert [row.seq for row in rows] == list(range(seen + 1, seen + len(rows) + 1))
        seen += len(rows)
    thread.join()
    assert len(store.events("r")) == 50


@pytest.mark.parametrize(
    ("change", "damaged"),
    [
        ("UPDATE nerve.events SET data = '[]' WHERE seq = 2", 2),
        ("UPDATE nerve.events SET at = at + 1 WHERE seq = 3", 3),
        ("DELETE FROM nerve.events WHERE seq = 1", 1),
        ("DELETE FROM nerve.events WHERE seq >= 2", 2),
        ("DELETE FROM nerve.events", 1),
        ("UPDATE nerve.events SET emptied = sha256('') WHERE seq = 2", 2),
    ],
)
def test_a_changed_journal_is_reported_as_damaged(
    store: PostgresStore, database: str, change: str, damaged: int
) -> None:
    store.append([append("r", 0, 3, run_row("r"))])
    with psycopg.connect(database) as db:
        db.execute(change)
    with pytest.raises(JournalBroken, match=f"event {damaged} is damaged"):
        store.events("r")


def test_an_interrupted_deletion_continues_with_the_next(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([Append("long", 0, [output(n) for n in range(1, 101)], run_row("long")), append("r", 0)])
    with monkeypatch.context() as patched:
        patched.setattr(PostgresWriter, "delete_more", lambda writer: False)
        store.delete_runs(["long"])
    assert store.journal_size("long")[0] == 100
    assert store.events("long") == []
    assert store.last_event("long") is None
    assert store.last_written_runs(200) == ["r"]
    store.delete_runs([])
    assert store.journal_size("long") == (0, 0)
    assert store.append([append("long", 0)]) == [None]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(parts(), max_size=5), max_size=6))
def test_it_behaves_like_the_memory_store(database: str, batches: list[list[Append]]) -> None:
    schema, model = f"test_{secrets.token_hex(8)}", MemoryStore()
    with closing(PostgresStore(f"{database}?schema={schema}")) as store:
        for batch in batches:
            assert list(map(str, store.append(batch))) == list(map(str, model.append(batch)))
        assert store.runs() == model.runs()
        for session in "st":
            assert store.fact_version(session) == model.fact_version(session)
            for label in (None, "note"):
                assert sorted(store.facts(session, label)) == sorted(model.facts(session, label))
        for run in {part.run for batch in batches for part in batch}:
            assert store.events(run) == model.events(run)


def test_a_store_with_a_codec_keeps_encoded_payloads(store: PostgresStore, database: str) -> None:
    encoded = EncodedStore(store, Reverser())
    encoded.append([append("r", 0, 2, run_row("r"))])
    encoded.append([Append("s", 0, [event(1, data='{"input": "find me"}')], run_row("s"))])
    assert encoded.events("s") == [event(1, data='{"input": "find me"}')]
    assert [row.run for row in encoded.runs(search="find me")] == ["s"]
    with psycopg.connect(database) as db:
        assert not db.execute("SELECT 1 FROM nerve.events WHERE data LIKE '%find%'").fetchall()


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.full)])
def test_no_acknowledged_append_is_lost_to_kill_9(postgresql_url: str, kills: int) -> None:
    random, acknowledged = Random(kills), 0
    for number in range(kills):
        writer = start(WRITER, postgresql_url, f"session-{number}")
        for _ in range(random.randint(1, 50)):
            acknowledged = int(news(writer).readline())
        lines = [line for line in kill(writer) if line]
        acknowledged = int(lines[-1]) if lines else acknowledged
        with closing(PostgresStore(postgresql_url, "reader")) as store:
            [count] = {len(store.events(f"r{n}")) for n in range(5)}
            assert {row.state for row in store.runs()} == {str(count - 1)}
        assert count >= acknowledged
        acknowledged = count


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_append_waits_for_a_restart_of_the_server(
    server: PostgresqlServer, number: signal.Signals
) -> None:
    with closing(PostgresStore(server.create_database())) as store:
        store.append([append("r", 0, 1, run_row("r"))])
        server.stop(number)
        outcomes: list[object] = []
        thread = threading.Thread(target=lambda: outcomes.extend(store.append([append("r", 1)])))
        thread.start()
        server.start()
        thread.join()
        assert outcomes == [None]
        assert store.add_message("c", "user", "hello").seq == 1
        assert [row.seq for row in store.events("r")] == [1, 2]


def test_a_server_that_stays_away_fails_the_append_and_nothing_is_written(server: PostgresqlServer) -> None:
    with closing(PostgresStore(server.create_database())) as store:
        server.stop()
        with pytest.raises(StoreFailed, match="cannot be reached") as failure:
            store.append([append("r", 0)], patience=0.1)
        with pytest.raises(StoreFailed, match="cannot be reached"):
            store.events("r")
        password = parse_address(server.url("any")).options["password"]
        assert password not in str(failure.value)
        server.start()
        assert store.events("r") == []
        assert store.append([append("r", 0)]) == [None]


def test_a_full_disk_of_the_server_is_reported_and_is_temporary(store: PostgresStore, database: str) -> None:
    store.append([append("r", 0, 2, run_row("r"))])
    with psycopg.connect(database, autocommit=True) as db:
        # The server reports what it would report when its disk is full.
        db.execute(
            "CREATE FUNCTION nerve.fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END$$;"
            "CREATE TRIGGER full_disk BEFORE INSERT ON nerve.events EXECUTE FUNCTION nerve.fail()"
        )
        try:
            for _ in range(2):
                with pytest.raises(StoreFull, match="No space left on device"):
                    store.append([append("q", 0), append("r", 2, 1, run_row("r", "failed"))])
                assert len(store.events("r")) == 2
                assert store.events("q") == []
                assert store.run("r") == run_row("r")
            assert store.append([facts_of(fact_row("a", 1))]) == [None]
        finally:
            db.execute("DROP FUNCTION nerve.fail CASCADE")
    assert store.append([append("q", 0), append("r", 2)]) == [None, None]
    assert len(store.events("r")) == 3


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_commit_whose_confirmation_was_lost_takes_effect_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    store.append([append("r", 0, 1, run_row("r"))])
    transaction = psycopg.Connection.transaction
    losses = iter([True])

    class LostTransaction:
        def __init__(self, db: psycopg.Connection[object]) -> None:
            self._db, self._transaction = db, transaction(db)

        def __enter__(self) -> None:
            self._transaction.__enter__()

        def __exit__(self, *error: object) -> None:
            if next(losses, False):
                if is_committed:
                    self._transaction.__exit__(None, None, None)
                    self._db._pipeline.sync()  # type: ignore[union-attr]
                raise psycopg.OperationalError("server closed the connection unexpectedly")
            self._transaction.__exit__(*error)  # type: ignore[arg-type]

    monkeypatch.setattr(psycopg.Connection, "transaction", lambda db: LostTransaction(db))
    batch = [append("r", 1, 2, run_row("r", "waiting")), append("r", 0)]
    outcomes = store.append(batch)
    assert [outcome is None for outcome in outcomes] == [True, False]
    assert [row.seq for row in store.events("r")] == [1, 2, 3]
    assert store.append([append("r", 3)]) == [None]


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:secret%zz@h/db", "postgresql://u:secret@h/db?nothing=secret", "postgresql://[secret"],
)
def test_an_invalid_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StoreError, match=r"URL .* is not valid") as failure:
        PostgresStore(url)
    assert "secret" not in str(failure.value)
    assert failure.value.__cause__ is None


def test_an_address_is_shown_without_its_password() -> None:
    address = parse_address("postgresql://me:secret@host:1234/data?schema=team&sslmode=disable")
    assert str(address) == "postgresql://me@host:1234/data?schema=team"
    assert address.options["sslmode"] == "disable"
    assert str(parse_address("postgresql:///data")) == "postgresql:///data"


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(StoreFailed, match=r"postgresql://me@127.0.0.1:9/data cannot be reached") as failure:
        PostgresStore("postgresql://me:secret@127.0.0.1:9/data")
    assert "secret" not in str(failure.value)
