"""The inspection of a store names the damage and the affected runs."""

import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from nerve.store.inspection import StoreDamage, StoreInspection
from nerve.store.port import MAX_INLINE_BYTES, Append, Definition, EventRow, RunRow
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, event, output, run_row


def compare_nothing(row: RunRow, first: EventRow, last: EventRow) -> list[str]:
    return []


def damages(file: Path) -> list[StoreDamage]:
    return list(StoreInspection(file, compare_nothing).find_damage())


@contextmanager
def without_index(file: Path, index: str) -> Iterator[apsw.Connection]:
    """A connection that does not know an index, which therefore keeps its old content."""
    with closing(apsw.Connection(str(file))) as db:
        db.pragma("writable_schema", True)
        row = db.execute("SELECT * FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        db.execute("DELETE FROM sqlite_schema WHERE name = ?", (index,))
    with closing(apsw.Connection(str(file))) as db:
        yield db
    with closing(apsw.Connection(str(file))) as db:
        db.pragma("writable_schema", True)
        db.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)


@pytest.fixture
def filled(file: Path) -> Path:
    store = SqliteStore(file)
    row = run_row("labelled", key="k")._replace(label="l", conversation="c", definition="h")
    pinned = Definition("h", "review", "yaml", "", "")
    large = event(2, data="x" * (MAX_INLINE_BYTES + 1))
    store.append([append(f"run-{n}", 0, 5, run_row(f"run-{n}")) for n in range(20)])
    store.append([Append("labelled", 0, [event(1, "/a"), large, output(3, '"o"')], row, pinned)])
    store.empty_events("labelled", [3])
    store.close()
    return file


def test_an_intact_store_has_no_damage(filled: Path) -> None:
    inspection = StoreInspection(filled, compare_nothing)
    assert list(inspection.find_damage()) == []
    assert (inspection.run_count, inspection.event_count) == (21, 103)


@pytest.mark.parametrize(
    ("statement", "run", "message_part"),
    [
        ("UPDATE events SET data = '[]' WHERE journal = 4 AND seq = 2", "run-3", "event 2 is not what"),
        ("DELETE FROM events WHERE journal = 4 AND seq > 3", "run-3", "event 4 is not what"),
        ("DELETE FROM events WHERE journal = 4", "run-3", "event 1 is not what"),
        ("DELETE FROM runs WHERE id = 4", "run-3", "missing from the runs table"),
        ("DELETE FROM blobs", "labelled", "event 2 is not what"),
        ("DELETE FROM definitions", "labelled", "its definition h is missing"),
        ("UPDATE events SET type = CAST(x'ff' AS TEXT) WHERE journal = 4 AND seq = 1", "run-3", "event 1"),
    ],
)
def test_the_damaged_run_is_named(filled: Path, statement: str, run: str, message_part: str) -> None:
    with closing(apsw.Connection(str(filled))) as db:
        db.execute(statement)
    [damage] = damages(filled)
    assert damage.run == run
    assert message_part in damage.message
    assert damage.fix == "Restore the file from a backup."


@pytest.mark.parametrize(
    ("index", "statement"),
    [
        ("runs_by_state", "UPDATE runs SET state = 'waiting' WHERE id = 8"),
        ("runs_by_start", "UPDATE runs SET started = 5.0 WHERE id = 8"),
        ("runs_by_key", "UPDATE runs SET key = 'x' WHERE id = 8"),
        ("runs_by_label", "UPDATE runs SET label = 'x' WHERE id = 8"),
        ("runs_by_conversation", "UPDATE runs SET conversation = 'x' WHERE id = 8"),
    ],
)
def test_a_run_missing_from_an_index_is_named(filled: Path, index: str, statement: str) -> None:
    with without_index(filled, index) as db:
        db.execute(statement)
    named = [damage for damage in damages(filled) if damage.run == "run-7"]
    assert [damage.message.split(",")[0] for damage in named] == [f"it is missing from the index {index}"]
    assert named[0].fix.endswith("nerve.db REINDEX")
    with closing(apsw.Connection(str(filled))) as db:
        db.execute("REINDEX")
    assert damages(filled) == []


def test_a_path_that_is_settled_twice_is_named(filled: Path) -> None:
    store = SqliteStore(filled)
    store.append([Append("run-7", 5, [event(6, "/a"), event(7)])])
    store._writer._ends["run-7"].settled_paths = {}
    store.append([Append("run-7", 7, [event(8, "/a")])])
    store.close()
    [damage] = damages(filled)
    assert damage.run == "run-7"
    assert damage.message == "events 6 and 8 both settle /a"


def test_damaged_pages_are_reported_and_do_not_end_the_check(filled: Path) -> None:
    with closing(apsw.Connection(str(filled))) as db:
        size = db.pragma("page_size")
        leaves = "SELECT pageno FROM dbstat WHERE name = 'events' AND pagetype = 'leaf' ORDER BY path"
        pages = [page for (page,) in db.execute(leaves)]
    content = bytearray(filled.read_bytes())
    start = (pages[1] - 1) * size
    content[start : start + size] = bytes(size)
    filled.write_bytes(content)
    found = damages(filled)
    assert None in {damage.run for damage in found}
    affected = {damage.run for damage in found} - {None}
    assert affected
    assert len(affected) < 21


def test_a_store_is_checked_while_it_is_written_to(file: Path) -> None:
    store = SqliteStore(file)
    inspection = StoreInspection(file, compare_nothing)
    for number in range(30):
        store.append([append(f"run-{number}", 0, 3, run_row(f"run-{number}"))])
    found = inspection.find_damage()
    assert next(found, None) is None
    store.append([append("run-0", 3, 3, run_row("run-0"))])
    assert list(StoreInspection(file, compare_nothing).find_damage()) == []
    store.close()


def test_a_long_journal_is_checked_event_by_event(file: Path) -> None:
    store = SqliteStore(file)
    data = f'"{"x" * 20_000}"'
    for start in range(0, 1000, 100):
        rows = [event(start + n, data=data) for n in range(1, 101)]
        store.append([Append("long", start, rows, run_row("long"))])
    store.close()
    tracemalloc.start()
    assert damages(file) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_run_that_is_being_deleted_is_not_reported(filled: Path) -> None:
    with closing(apsw.Connection(str(filled))) as db:
        db.execute("INSERT INTO deletions VALUES (3)")
        db.execute("DELETE FROM runs WHERE id = 3")
    assert damages(filled) == []
