"""Every change to a journal is detected, and the event is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.errors import JournalBroken
from nerve.store.hash_chain import FIRST_HASH, hash_data, hash_row
from nerve.store.port import Append, EventRow
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, event, run_row

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
events = st.builds(
    EventRow, st.integers(1, 2**62), st.floats(allow_nan=False), texts, texts, st.none() | texts, texts
)


@contextmanager
def tampering(file: Path) -> Iterator[apsw.Connection]:
    raw = apsw.Connection(str(file))
    yield raw
    raw.close()


def broken_at(store: SqliteStore, run: str, after: int = 0) -> int:
    with pytest.raises(JournalBroken) as caught:
        store.events(run, after)
    assert caught.value.run == run
    return caught.value.seq


@given(a=st.tuples(texts, events), b=st.tuples(texts, events))
def test_different_rows_have_different_hashes(a: tuple[str, EventRow], b: tuple[str, EventRow]) -> None:
    hashes = {hash_row(FIRST_HASH, run, row, hash_data(row.data.encode())) for run, row in (a, b)}
    assert len(hashes) == (1 if a == b else 2)


def test_text_cannot_move_from_one_column_to_the_next() -> None:
    row = EventRow(1, 1.0, "ab", "c", "d", "e")
    shifted = [
        ("r", row),
        ("ra", row._replace(type="b")),
        ("r", row._replace(type="a", path="bc")),
        ("r", row._replace(path="cd", settles="")),
        ("r", row._replace(path="cd", settles=None)),
        ("r", row._replace(settles="de", data="")),
    ]
    assert len({hash_row(FIRST_HASH, run, row, hash_data(row.data.encode())) for run, row in shifted}) == len(
        shifted
    )


changes = {
    "at": "at + 1e-6",
    "type": "type || 'x'",
    "path": "'/'",
    "settles": "ifnull(settles, '') || 'x'",
    "data": "data || ' '",
    "hash": "zeroblob(32)",
}


@pytest.mark.parametrize("seq", [1, 3, 5])
@pytest.mark.parametrize("column", changes)
def test_a_changed_column_is_detected(store: SqliteStore, file: Path, column: str, seq: int) -> None:
    store.append([append("r", 0, 5), append("q", 0, 5)])
    with tampering(file) as raw:
        raw.execute(f"UPDATE events SET {column} = {changes[column]} WHERE journal = 1 AND seq = ?", (seq,))
    assert broken_at(store, "r") == seq
    assert len(store.events("q")) == 5


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    journal=st.lists(st.tuples(st.floats(0, 2e9), texts, texts, texts), min_size=1, max_size=6),
    data=st.data(),
)
def test_any_changed_value_is_detected(
    tmp_path_factory: pytest.TempPathFactory, journal: list[tuple[float, str, str, str]], data: st.DataObject
) -> None:
    rows = [EventRow(n, at, type, path, None, text) for n, (at, type, path, text) in enumerate(journal, 1)]
    file = tmp_path_factory.mktemp("tamper") / "nerve.db"
    store = SqliteStore(file)
    store.append([Append("r", row.seq - 1, [row]) for row in rows])  # each in a row of its own
    place = data.draw(st.sampled_from(rows))
    column = data.draw(st.sampled_from(["at", "type", "path", "settles", "data"]))
    value = data.draw(st.floats(0, 2e9) if column == "at" else texts)
    with tampering(file) as raw:
        raw.execute(f"UPDATE events SET {column} = ? WHERE seq = ?", (value, place.seq))
    if getattr(place, column) == value:
        assert store.events("r") == rows
    else:
        assert broken_at(store, "r") == place.seq
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        *(f"{column} = {value}" for column, value in changes.items() if column != "settles"),
        "settles = NULL",
        "settles = 2",
        "type = 99",
        "first_at = first_at + 1e-6",
        "first_type = 3",
        "first_path = '/b'",
        "first_settles = 1",
        "first_settles = '/b'",
        "first_data = first_data || ' '",
        "first_type = NULL",
        "first_data = NULL",
        "first_at = NULL",
    ],
)
def test_a_change_of_two_events_in_one_row_is_detected(store: SqliteStore, file: Path, change: str) -> None:
    started = EventRow(2, 1.5, "node_started", "/a", None, '{"node_id":"a"}')
    ended = EventRow(3, 2.5, "node_completed", "/a", "/a", '{"node_id":"a","success":true,"duration_ms":1}')
    rows = [event(1), started, ended, event(4)]
    store.append([Append("r", 0, rows, run_row("r"))])
    with tampering(file) as raw:
        assert raw.execute("SELECT count(*) FROM events").get == 3
        for after in range(5):
            assert store.events("r", after) == rows[after:]
            for limit in range(5):
                assert store.events("r", after, limit) == rows[after : after + limit]
        assert [store.last_event("r", row.type) for row in rows[1:3]] == rows[1:3]
        raw.execute(f"UPDATE events SET {change} WHERE seq = 3")
    assert broken_at(store, "r") == 2
    assert broken_at(store, "r", 2) in (2, 3)
    assert store.events("r", 0, 1) == rows[:1]


@pytest.mark.parametrize(("statement", "seq"), [
    ("DELETE FROM events WHERE seq = 1", 1),
    ("DELETE FROM events WHERE seq = 3", 3),
    ("UPDATE events SET seq = 9 WHERE seq = 5", 5),
    ("UPDATE events SET journal = 99 WHERE seq = 2", 2),
    ("UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE seq = 2", 2),
    ("UPDATE events SET type = CAST(x'c328' AS TEXT) WHERE seq = 4", 4),
    ("UPDATE events SET data = 7 WHERE seq = 2", 2),
    ("UPDATE events SET data = x'00' WHERE seq = 2", 2),
    ("UPDATE events SET hash = x'00' WHERE seq = 5", 5),
])  # fmt: skip
def test_a_missing_moved_or_unreadable_row_is_detected(
    store: SqliteStore, file: Path, statement: str, seq: int
) -> None:
    store.append([append("r", 0, 5)])
    with tampering(file) as raw:
        raw.execute(statement)
    assert broken_at(store, "r") == seq


@pytest.mark.parametrize("type", ["workflow_started", "gate_answered", "node_completed", "output_chunk"])
def test_only_the_data_of_output_may_be_missing(store: SqliteStore, file: Path, type: str) -> None:
    rows = [event(n, data=f'"{n}"')._replace(type=type) for n in (1, 2, 3)]
    store.append([Append("r", row.seq - 1, [row]) for row in rows])
    with tampering(file) as raw:
        raw.execute("UPDATE events SET data = ? WHERE seq = 2", (b"\0" + hash_data(b'"2"'),))
    if type == "output_chunk":
        assert store.events("r")[1].data == "{}"
    else:
        assert broken_at(store, "r") == 2


@pytest.mark.parametrize(("kept", "after"), [(0, 0), (3, 0), (3, 3), (3, 4)])
def test_a_missing_end_is_detected_up_to_the_last_row_of_the_run(
    store: SqliteStore, file: Path, kept: int, after: int
) -> None:
    store.append([append("r", 0, 4), append("r", 4, 1, run_row("r"))])
    with tampering(file) as raw:
        raw.execute("DELETE FROM events WHERE seq > ?", (kept,))
    assert broken_at(store, "r", after) == kept + 1


def test_events_before_a_damaged_one_can_be_read(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0, 5, run_row("r"))])
    with tampering(file) as raw:
        raw.execute("UPDATE events SET data = '1' WHERE seq = 3")
    assert [row.seq for row in store.events("r", 0, 2)] == [1, 2]
    assert broken_at(store, "r") == 3


def test_two_swapped_rows_are_detected(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0, 5)])
    with tampering(file) as raw:
        raw.execute("UPDATE events SET seq = CASE seq WHEN 2 THEN 13 WHEN 3 THEN 12 END WHERE seq IN (2, 3)")
        raw.execute("UPDATE events SET seq = seq - 10 WHERE seq > 10")
    assert broken_at(store, "r") == 2


def test_a_row_from_another_journal_is_detected(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0, 2), append("q", 0, 3)])
    with tampering(file) as raw:
        raw.execute("UPDATE events SET journal = 1 WHERE journal = 2 AND seq = 3")
    assert broken_at(store, "r") == 3


@pytest.mark.parametrize("statement", ["UPDATE blobs SET data = x'00'", "DELETE FROM blobs"])
def test_a_changed_or_missing_blob_is_detected(store: SqliteStore, file: Path, statement: str) -> None:
    store.append([Append("r", 0, [event(1), event(2, data="x" * 300_000)])])
    with tampering(file) as raw:
        raw.execute(statement)
    assert broken_at(store, "r") == 2


def test_rows_after_a_number_are_linked_to_the_row_before_them(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0, 5)])
    with tampering(file) as raw:
        raw.execute("UPDATE events SET data = '1' WHERE seq = 2")
        assert [row.seq for row in store.events("r", 2)] == [3, 4, 5]
        raw.execute("UPDATE events SET hash = zeroblob(32) WHERE seq = 3")
        assert broken_at(store, "r", 3) == 4
        raw.execute("DELETE FROM events WHERE seq = 4")
        assert broken_at(store, "r", 4) == 4
