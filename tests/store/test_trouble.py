"""A full disk or a busy file is reported, loses nothing that was written, and is temporary."""

import threading
from itertools import count
from pathlib import Path

import apsw
import pytest

from nerve.errors import StoreBusy, StoreFailed, StoreFull
from nerve.store.port import Append
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, event, run_row
from store.processes import news, start

HOLDER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
"""


def test_a_full_disk_is_reported_and_is_temporary(
    connections: list[apsw.Connection], store: SqliteStore
) -> None:
    writer = connections[0]
    store.append([append("r", 0, 2, run_row("r"))])
    writer.pragma("max_page_count", writer.pragma("page_count") + 4)
    large = [event(3, data="x" * 200_000)]
    for _ in range(2):
        with pytest.raises(StoreFull):
            store.append([append("q", 0), Append("r", 2, large, run_row("r", "failed"))])
        assert len(store.events("r")) == 2
        assert store.events("q") == []
        assert store.run("r") == run_row("r")
    assert store.append([append("r", 2)]) == [None]
    writer.pragma("max_page_count", 1_000_000)
    assert store.append([Append("r", 3, [event(4, data="x" * 200_000)])]) == [None]
    assert len(store.events("r")) == 4
    assert writer.pragma("integrity_check") == "ok"


def test_a_row_alone_is_written_or_not_when_the_disk_is_full(
    connections: list[apsw.Connection], store: SqliteStore
) -> None:
    writer, data = connections[0], "x" * 2000
    store.append([append("r", 0)])
    writer.pragma("max_page_count", writer.pragma("page_count") + 1)
    parts = (Append("r", seq - 1, [event(seq, data=data)]) for seq in count(2))
    written: list[Append] = []

    def fill_disk() -> None:
        for part in parts:
            store.append([part])
            written.append(part)

    with pytest.raises(StoreFull):
        fill_disk()
    assert not writer.in_transaction
    assert [row.seq for row in store.events("r")] == list(range(1, len(written) + 2))
    writer.pragma("max_page_count", 1_000_000)
    assert store.append([append("r", len(written) + 1)]) == [None]
    assert writer.pragma("integrity_check") == "ok"


def test_without_patience_a_busy_file_is_reported_at_once(store: SqliteStore, file: Path) -> None:
    store.append([append("r", 0)])
    holder = start(HOLDER, file)
    assert news(holder).readline() == "held\n"
    with pytest.raises(StoreBusy, match=str(file)):
        store.append([append("r", 1)], patience=0)
    assert len(store.events("r")) == 1
    holder.communicate("\n")
    assert store.append([append("r", 1)], patience=0) == [None]


@pytest.mark.parametrize("after", [0, 1], ids=["with a new journal", "of one row"])
def test_with_patience_an_append_waits_for_the_file(store: SqliteStore, file: Path, after: int) -> None:
    if after:
        store.append([append("r", 0)])
    other = apsw.Connection(str(file))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.append([append("r", after)], patience=0.01)
    outcomes: list[object] = []
    waiting = threading.Thread(
        target=lambda: outcomes.extend(store.append([append("r", after)], patience=30))
    )
    waiting.start()
    assert len(store.events("r")) == after
    other.execute("ROLLBACK")
    waiting.join()
    assert outcomes == [None]
    assert len(store.events("r")) == after + 1
    other.close()


def test_the_log_shrinks_after_a_reader_held_it(store: SqliteStore, file: Path) -> None:
    reader = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM events")
    log = file.with_name("nerve.db-wal")
    for n in range(100):
        store.append([Append("r", n, [event(n + 1, data="x" * 250_000)])])
    assert log.stat().st_size > 20_000_000
    reader.execute("COMMIT")
    reader.close()
    for n in range(100, 103):
        store.append([Append("r", n, [event(n + 1)])])
    assert log.stat().st_size < 17_000_000


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    store: SqliteStore, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.append([append(run, 0, 1, run_row(run)) for run in "abc"])
    raw = apsw.Connection(str(file))
    raw.execute("UPDATE runs SET workflow = CAST(x'ff' AS TEXT) WHERE id = 2")
    raw.close()
    assert [row.run for row in store.runs()] == ["a", "c"]
    assert "unreadable row" in caplog.text
    with pytest.raises(StoreFailed, match="unreadable row"):
        store.run("b")
    assert store.events("b") == append("b", 0).rows


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_a_deleted_file_rejects_writes_with_a_reason(
    store: SqliteStore, file: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerve.store.sqlite_connection.FILE_CHECK_INTERVAL_S", 0)
    store.append([append("r", 0)])
    kept = file.rename(file.with_name("kept"))
    if change == "replaced":
        file.write_bytes(b"")
    for write in (
        lambda: store.append([append("r", 1)]),
        lambda: store.delete_runs(["r"]),
    ):
        with pytest.raises(StoreFailed, match=f"{file} was deleted or replaced .* Restore it"):
            write()
    kept.rename(file)
    assert store.append([append("r", 1)]) == [None]
    assert len(store.events("r")) == 2
