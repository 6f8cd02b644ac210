"""In PostgreSQL, too, every change of a row of a journal is detected, and named."""

import secrets
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.errors import JournalBroken
from nerve.store.port import Append, EventRow
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import append, event, run_row
from postgresql_server import PostgresqlServer

CHANGES = {
    "at": "at + 1e-6",
    "type": "type || 'x'",
    "path": "'/'",
    "settles": "coalesce(settles, '') || 'x'",
    "data": "data || ' '",
    "hash": "decode(repeat('00', 32), 'hex')",
}
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


class Journals:
    """A store, and a connection that changes its rows."""

    def __init__(self, store: PostgresStore, db: psycopg.Connection[tuple[object, ...]]) -> None:
        self.store, self.db = store, db

    def damaged_event(self, run: str) -> int | None:
        """Return the number of the event at which the journal of a run is found damaged."""
        try:
            self.store.events(run)
        except JournalBroken as error:
            return error.seq if error.run == run else -1
        return None


@pytest.fixture(scope="module")
def journals(postgresql_server: PostgresqlServer) -> Iterator[Journals]:
    url = postgresql_server.create_database()
    with closing(PostgresStore(url)) as store, psycopg.connect(url, autocommit=True) as db:
        yield Journals(store, db)
    postgresql_server.drop_database(url)


@pytest.mark.parametrize("seq", [1, 3, 5])
@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_column_is_detected(journals: Journals, column: str, seq: int) -> None:
    run, other = f"{column}-{seq}", f"{column}-{seq}-other"
    journals.store.append([append(run, 0, 5), append(other, 0, 5)])
    change = f"UPDATE nerve.events SET {column} = {CHANGES[column]} WHERE run = %s AND seq = %s"
    journals.db.execute(change, (run, seq))
    assert journals.damaged_event(run) == seq
    assert len(journals.store.events(other)) == 5


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    journal=st.lists(st.tuples(st.floats(0, 2e9), texts, texts, texts), min_size=1, max_size=6),
    data=st.data(),
)
def test_any_changed_value_is_detected(
    journals: Journals, journal: list[tuple[float, str, str, str]], data: st.DataObject
) -> None:
    run = secrets.token_hex(8)
    rows = [EventRow(n, at, type, path, None, text) for n, (at, type, path, text) in enumerate(journal, 1)]
    journals.store.append([Append(run, 0, rows)])
    place = data.draw(st.sampled_from(rows))
    column = data.draw(st.sampled_from(["at", "type", "path", "settles", "data"]))
    value = data.draw(st.floats(0, 2e9) if column == "at" else texts)
    change = f"UPDATE nerve.events SET {column} = %s WHERE run = %s AND seq = %s"
    journals.db.execute(change, (value, run, place.seq))
    if getattr(place, column) == value:
        assert journals.store.events(run) == rows
    else:
        assert journals.damaged_event(run) == place.seq


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        ("DELETE FROM nerve.events WHERE run = %s AND seq = 1", 1),
        ("DELETE FROM nerve.events WHERE run = %s AND seq = 3", 3),
        ("UPDATE nerve.events SET seq = 9 WHERE run = %s AND seq = 5", 5),
        ("UPDATE nerve.events SET run = 'elsewhere' WHERE run = %s AND seq = 2", 2),
        ("UPDATE nerve.events SET hash = '' WHERE run = %s AND seq = 5", 5),
        ("DELETE FROM nerve.events WHERE run = %s AND seq > 3", 4),
    ],
)
def test_a_missing_or_moved_row_is_detected(journals: Journals, change: str, seq: int) -> None:
    run = secrets.token_hex(8)
    journals.store.append([append(run, 0, 5, run_row(run))])
    journals.db.execute(change, (run,))
    assert journals.damaged_event(run) == seq
    journals.db.execute("DELETE FROM nerve.events WHERE run = 'elsewhere'")


def test_two_swapped_rows_and_a_row_of_another_journal_are_detected(journals: Journals) -> None:
    for run in ("swapped", "exchanged", "source"):
        journals.store.append([append(run, 0, 5)])
    swap = "UPDATE nerve.events SET seq = %s WHERE run = 'swapped' AND seq = %s"
    for numbers in ((99, 2), (2, 3), (3, 99)):
        journals.db.execute(swap, numbers)
    assert journals.damaged_event("swapped") == 2
    journals.db.execute("DELETE FROM nerve.events WHERE run = 'exchanged' AND seq = 4")
    journals.db.execute("UPDATE nerve.events SET run = 'exchanged' WHERE run = 'source' AND seq = 4")
    assert journals.damaged_event("exchanged") == 4


@pytest.mark.parametrize("type", ["workflow_started", "gate_answered", "node_completed", "output_chunk"])
def test_only_the_data_of_output_may_be_missing(journals: Journals, type: str) -> None:
    run = secrets.token_hex(8)
    rows = [event(n, data=f'"{n}"')._replace(type=type) for n in (1, 2, 3)]
    journals.store.append([Append(run, 0, rows)])
    journals.db.execute(
        "UPDATE nerve.events SET emptied = sha256(convert_to(data, 'UTF8')), data = '{}'"
        " WHERE run = %s AND seq = 2",
        (run,),
    )
    if type == "output_chunk":
        assert journals.store.events(run)[1].data == "{}"
        journals.db.execute("UPDATE nerve.events SET data = '\"x\"' WHERE run = %s AND seq = 2", (run,))
    assert journals.damaged_event(run) == 2
