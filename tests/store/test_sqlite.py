"""The SQLite store fulfils the contract on a private file, and reports why it cannot use another."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.errors import Conflict, StoreBusy, StoreError, StoreFailed
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, FactRow, RunRow
from nerve.store.sqlite import SqliteStore
from nerve.store.sqlite_writer import MAX_CACHED_ENDS
from nerve.store.statements import SQL, statement_for_rows
from nerve.testing.store_contract import StoreContract, append, event, fact_row, retracted_fact_row, run_row
from nerve.testing.store_contract import append_facts as facts_of


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, file: Path) -> Iterator[SqliteStore]:
        store = SqliteStore(file)
        yield store
        store.close()


@pytest.mark.requirement("S4-14")
def test_everything_survives_reopening_the_file(file: Path) -> None:
    first = SqliteStore(file)
    assert first.durable
    first.append([append("r", 0, 3, run_row("r", key="k")), Append("q", 0, [event(1, data="x" * 300_000)])])
    first.append(
        [
            facts_of(fact_row("a", 1), fact_row("b", 2), fact_row("c", 3)),
            facts_of(retracted_fact_row("c", 4), fact_row("a", 5)),
        ]
    )
    first.append([facts_of(retracted_fact_row("b", 6))])
    said = first.add_message("c", "user", "hello")
    first.close()
    second = SqliteStore(file)
    assert second.events("r") == append("r", 0, 3).rows
    assert second.events("q") == [event(1, data="x" * 300_000)]
    assert second.run_by_key("default", "k") == run_row("r", key="k")
    assert second.append([append("r", 3)]) == [None]
    assert second.facts("default") == [fact_row("a", 5)]
    assert second.fact_version("default") == 6
    assert second.messages("c") == [said]
    assert second.add_message("c", "user", "again").seq == 2
    second.close()


def test_the_file_and_its_companions_are_private(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0)])
    modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    ends = ("", "-wal", "-shm", ".lock", ".mark", ".signature", "-wal.signature")
    assert modes == dict.fromkeys((f"nerve.db{end}" for end in ends), 0o600)


def test_closing_leaves_one_complete_file_and_can_be_repeated(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0)])
    store.close()
    store.close()
    left = sorted(path.name for path in file.parent.iterdir())
    assert left == ["nerve.db", "nerve.db.lock", "nerve.db.signature"]


def test_the_file_is_opened_with_the_documented_pragmas(
    connections: list[apsw.Connection], store: SqliteStore
) -> None:
    writer, reader = connections
    assert writer.pragma("journal_mode") == "wal"
    assert writer.pragma("synchronous") == 2
    assert writer.pragma("foreign_keys") == 1
    assert writer.pragma("trusted_schema") == 0
    assert writer.pragma("mmap_size") == 0
    assert reader.readonly("main")


def test_writes_are_in_immediate_transactions_or_of_one_row(file: Path) -> None:
    begun: list[str] = []
    loose: list[str] = []

    def trace(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        if sql.startswith("BEGIN"):
            begun.append(sql)
        elif not (
            cursor.is_readonly
            or cursor.connection.in_transaction
            or "journal_mode" in sql
            or "auto_vacuum" in sql
        ):
            loose.append(sql)
        return True

    def hook(db: apsw.Connection) -> None:
        db.set_exec_trace(trace)

    apsw.connection_hooks.append(hook)
    try:
        store = SqliteStore(file)
        store.append([append("r", 0, 2, run_row("r")), Append("q", 0, [event(1, "/a", "x" * 300_000)])])
        store.append([Append("q", 1, [event(2, "/a")]), append("r", 2, 3)])
        store.append([Append("", 0, [], facts=[fact_row("a", 1)])])
        store.add_message("c", "user", "hello")
        assert loose == []
        store.append([append("r", 5)])
        row = statement_for_rows("insert_events", 13, 1)
        assert loose == [row]  # atomic without a transaction
        store.append([append("r", 6, 1, run_row("r"))])
        store.append([append("r", 7, 3)])
        store.append([Append("r", 10, [event(11, data="x" * 300_000)])])
        store.close()
    finally:
        apsw.connection_hooks.remove(hook)
    assert set(begun) == {"BEGIN IMMEDIATE"}
    assert len(begun) == 1 + 4 + 3  # the layout of the new file, and the writes
    assert loose == [row]


def test_a_row_alone_that_another_writer_has_written_is_a_conflict(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0)])
    raw = apsw.Connection(str(file))
    columns = "at, type, path, data, hash"
    raw.execute(f"INSERT INTO events (journal, seq, {columns}) SELECT journal, 2, {columns} FROM events")
    raw.close()
    [outcome] = store.append([append("r", 1)])
    assert isinstance(outcome, Conflict)
    assert store.append([append("r", 2)]) == [None]


def test_a_large_value_is_kept_once_and_by_its_hash(store: SqliteStore, file: Path) -> None:
    data = "x" * 300_000
    store.append([Append(run, 0, [event(1, data=data)]) for run in "abc"])
    raw = apsw.Connection(str(file))
    digest = hashlib.sha256(data.encode()).digest()
    assert raw.execute("SELECT hash, data FROM blobs").fetchall() == [(digest, data.encode())]
    assert raw.execute("SELECT DISTINCT data FROM events").fetchall() == [(digest,)]
    raw.close()


def test_reading_does_not_wait_for_a_writer(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0, 2, run_row("r"))])
    other = apsw.Connection(str(file))
    other.execute("BEGIN EXCLUSIVE; DELETE FROM events; DELETE FROM runs")
    assert len(store.events("r")) == 2
    assert len(store.runs()) == 1
    other.execute("ROLLBACK")
    other.close()


def test_one_thread_may_append_while_another_reads(store: SqliteStore) -> None:
    def write() -> None:
        for n in range(200):
            store.append([append("r", n)])

    thread = threading.Thread(target=write)
    thread.start()
    seen = 0
    while thread.is_alive():
        rows = store.events("r", seen)
        assert [row.seq for row in rows] == list(range(seen + 1, seen + len(rows) + 1))
        seen += len(rows)
    thread.join()
    assert len(store.events("r")) == 200


def test_without_patience_an_append_does_not_wait_for_a_writing_thread(
    monkeypatch: pytest.MonkeyPatch, store: SqliteStore
) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def slowly(*_: object) -> None:
        writing.set()
        go_on.wait()

    with monkeypatch.context() as patched:
        patched.setattr(store._writer, "add_message", slowly)
        thread = threading.Thread(target=store.add_message, args=["c", "user", "hello"])
        thread.start()
        writing.wait()
        with pytest.raises(StoreBusy, match="another thread"):
            store.append([append("r", 0)], patience=0)
        go_on.set()
        thread.join()
    assert store.append([append("r", 0)], patience=0) == [None]


def test_more_journals_than_are_cached_can_be_continued(store: SqliteStore) -> None:
    runs = [f"run-{n}" for n in range(MAX_CACHED_ENDS + 100)]
    assert not any(store.append([append(run, 0) for run in runs]))
    assert not any(store.append([append(run, 1) for run in runs[:200]]))
    assert all(len(store.events(run)) == 2 for run in runs[:200])


def test_rows_written_by_another_connection_conflict_once(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0)])
    other = apsw.Connection(str(file))
    columns = "at, type, path, settles, data, hash"
    other.execute(f"INSERT INTO events (journal, seq, {columns}) SELECT journal, 2, {columns} FROM events")
    other.close()
    assert "event 2 exists" in str(store.append([append("r", 1)])[0])
    assert store.append([append("r", 2)]) == [None]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=str(tmp_path / "none")):
        SqliteStore(tmp_path / "none" / "nerve.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_a_database_is_named_and_left_unchanged(file: Path) -> None:
    file.write_text("Dear diary, today I did not write a database. " * 100)
    before = file.read_bytes()
    with pytest.raises(StoreFailed, match=str(file)):
        SqliteStore(file)
    assert file.read_bytes() == before


def test_a_directory_in_place_of_the_file_is_named(file: Path) -> None:
    file.mkdir()
    with pytest.raises(StoreFailed, match=str(file)):
        SqliteStore(file)


def test_the_database_of_another_program_is_left_unchanged(file: Path) -> None:
    other = apsw.Connection(str(file))
    other.execute("CREATE TABLE notes (text)")
    other.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(file)
    assert file.read_bytes() == before


names = st.sampled_from(["a", "b", "c"])
rows = st.builds(
    RunRow,
    run=names,
    session=st.sampled_from(["s", "t"]),
    workflow=st.just("w"),
    state=st.sampled_from(["running", "completed"]),
    started=st.floats(0, 3),
    wake=st.none() | st.floats(0, 2e9),
    ended=st.none() | st.floats(0, 3),
    conversation=st.none() | st.sampled_from(["x", "y"]),
    label=st.none() | st.sampled_from(["x", "y"]),
    key=st.none() | st.sampled_from(["k", "l"]),
)

facts = st.builds(
    FactRow,
    session=st.sampled_from(["s", "t"]),
    id=names,
    version=st.integers(1, 50),
    at=st.floats(0, 2e9),
    by=names,
    record=st.none() | st.sampled_from(['["note"]', '["signal",{}]']),
)


@st.composite
def parts(draw: st.DrawFn) -> Append:
    run, after, count = draw(names), draw(st.integers(0, 6)), draw(st.integers(0, 3))
    settles = st.none() | st.sampled_from(["/1", "/2", "/3", "/4"])
    events = [
        EventRow(after + n, draw(st.floats(0, 2e9)), "t", "/", draw(settles), "{}")
        for n in range(1, count + 1)
    ]
    row = draw(st.none() | rows)
    row = None if row is None else row._replace(run=run)
    return Append(run, after, events, row, facts=draw(st.lists(facts, max_size=3)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(st.lists(parts(), max_size=5), max_size=6))
def test_it_behaves_like_the_memory_store(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Append]]
) -> None:
    store, model = SqliteStore(tmp_path_factory.mktemp("model") / "nerve.db"), MemoryStore()
    try:
        for batch in batches:
            assert list(map(str, store.append(batch))) == list(map(str, model.append(batch)))
        assert store.runs() == model.runs()
        for session in "st":
            assert store.fact_version(session) == model.fact_version(session)
            for label in (None, "note"):
                assert sorted(store.facts(session, label)) == sorted(model.facts(session, label))
        assert [store.events(run) for run in "abc"] == [model.events(run) for run in "abc"]
    finally:
        store.close()


def test_a_part_without_rows_for_an_existing_journal_conflicts(file: Path) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0)])
    store.close()
    store = SqliteStore(file)
    assert [type(outcome) for outcome in store.append([Append("r", 0, [], run_row("r"))])] == [Conflict]
    store.close()


def test_an_interrupted_deletion_continues(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append([append("long", 0, 7000, run_row("long"))])
    with monkeypatch.context() as patched:
        patched.setattr(store._writer, "delete_more", lambda: False)
        store.delete_runs(["long"])
    assert store.run("long") is None
    assert store.journal_size("long")[0] == 7000
    assert store._writer.delete_more()
    assert store.journal_size("long")[0] == 5000
    store.delete_runs([])
    assert store.journal_size("long")[0] == 0
    assert not store._writer.delete_more()


def test_a_run_that_is_being_deleted_can_be_neither_read_nor_extended(store: SqliteStore) -> None:
    store.append([append("long", 0, 7000, run_row("long"))])
    store._writer.delete_runs(["long"])
    store._writer.delete_more()
    assert store.events("long") == []
    for part in (append("long", 0, 1, run_row("long")), append("long", 5000, 1), append("long", 7000, 1)):
        outcomes = store.append([part, append(f"other {part.after}", 0)])
        assert [type(outcome) for outcome in outcomes] == [Conflict, type(None)]
        assert "is being deleted" in str(outcomes[0])
    store.delete_runs([])
    assert store.append([append("long", 0, 1, run_row("long"))]) == [None]
    assert len(store.events("long")) == 1


@pytest.mark.parametrize("length", [5, 7000])
def test_a_journal_is_read_in_one_snapshot_while_its_run_is_deleted(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    reader = store._reader

    class Reader:
        """Deletes the run before its events are read."""

        def execute(self, text: str, values: tuple[object, ...]) -> apsw.Cursor:
            if text == SQL["select_events"]:
                store._writer.delete_runs(["r"])
            return reader.execute(text, values)

        def __enter__(self) -> None:
            reader.__enter__()

        def __exit__(self, *error: object) -> None:
            reader.__exit__(*error)  # type: ignore[arg-type]

    store.append([append("r", 0, length, run_row("r"))])
    with monkeypatch.context() as patched:
        patched.setattr(store, "_reader", Reader())
        assert len(store.events("r")) == length
    assert store.events("r") == []


@pytest.mark.parametrize(
    "filters",
    [{}, {"states": ["completed"]}, {"workflow": "review"}, {"label": "l"}, {"conversation": "c"}],
    ids=str,
)
def test_the_newest_runs_are_found_by_an_index_and_not_sorted(file: Path, filters: dict[str, object]) -> None:
    store = SqliteStore(file)
    asked: list[tuple[str, object]] = []
    store._reader.set_exec_trace(lambda _, sql, values: asked.append((sql, values)) or True)
    store.runs(session="default", newest=50, before=run_row("r"), **filters)  # type: ignore[arg-type]
    store._reader.set_exec_trace(None)
    [(sql, values)] = asked
    plan = [row[3] for row in store._reader.execute(f"EXPLAIN QUERY PLAN {sql}", values)]  # type: ignore[arg-type]
    assert plan[0].startswith("SEARCH runs USING INDEX")
    # Only runs that were started at the same time are sorted.
    assert "FOR ORDER BY" not in " ".join(plan)
    store.close()
