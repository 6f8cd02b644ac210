"""A file has the layout of one version or of the next, never something in between."""

import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from nerve.errors import JournalBroken, StoreError, StoreFailed
from nerve.store import migrations, sqlite_connection
from nerve.store.commit_mark import CommitMark, LastEvent
from nerve.store.inspection import StoreInspection
from nerve.store.port import Append, RunRow
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, append_facts, fact_row, run_row
from store.processes import news, start

NEWEST = len(migrations.MIGRATIONS)
KEPT = sorted(Path(__file__).with_name("kept").glob("version-*.sql"))
ALL_TABLES = Path(__file__).with_name("kept") / "all-tables-6.sql"

KILLED = """
import os, signal, sys, apsw
from nerve.store.sqlite import SqliteStore
left = int(sys.argv[2])

def trace(cursor, sql, bindings):
    global left
    if cursor.connection.in_transaction:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return True

apsw.connection_hooks.append(lambda db: db.set_exec_trace(trace))
SqliteStore(sys.argv[1])
print("opened", flush=True)
"""

RACER = """
import sys
from nerve.errors import StoreInUse
from nerve.store.sqlite import SqliteStore
print("ready", flush=True)
sys.stdin.readline()
try:
    store = SqliteStore(sys.argv[1])
    print("opened", flush=True)
except StoreInUse:
    print("refused", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def first_version(file: Path) -> Path:
    """A file as the first version of the store left it."""
    return restored(KEPT[0], file)


def restored(kept: Path, file: Path) -> Path:
    db = apsw.Connection(str(file))
    db.execute(kept.read_text())
    db.close()
    return file


def layout(file: Path) -> tuple[int, list[tuple[object, ...]]]:
    db = apsw.Connection(str(file))
    schema = db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    version = db.pragma("user_version")
    db.close()
    return version, schema


def statements(version: int) -> list[str]:
    """Return the statements that migrate a version to the next."""
    db = apsw.Connection(":memory:")
    if version:
        db.execute(KEPT[version - 1].read_text())
    found: list[str] = []
    db.set_exec_trace(lambda cursor, statement, bindings: found.append(statement) or True)
    db.execute(migrations.MIGRATIONS[version])
    db.close()
    return found


def test_a_newer_file_is_rejected_and_left_unchanged(file: Path) -> None:
    SqliteStore(file).close()
    db = apsw.Connection(str(file))
    db.pragma("user_version", 99)
    db.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"nerve.db has version 99.*Update Nerve"):
        SqliteStore(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("version", "number"),
    [(version, number) for version in range(NEWEST) for number in range(len(statements(version)) + 1)],
)
def test_a_migration_that_dies_between_statements_leaves_the_old_version(
    monkeypatch: pytest.MonkeyPatch, file: Path, version: int, number: int
) -> None:
    done, script = migrations.MIGRATIONS[:version], statements(version)[:number]
    if version:
        restored(KEPT[version - 1], file)
    old = layout(file)
    file.chmod(0o600)
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", [*done, ";\n".join([*script, "SELECT * FROM nowhere"])])
        with pytest.raises(StoreFailed):
            SqliteStore(file)
    assert old[0] == version
    assert layout(file) == old
    store = SqliteStore(file)
    assert store.append([append("r", 0)]) == [None]
    store.close()
    assert layout(file)[0] == NEWEST


def test_a_process_killed_at_any_statement_of_a_migration_leaves_a_complete_version(
    first_version: Path,
) -> None:
    whole = [
        layout(first_version),
        *(layout(restored(kept, first_version.with_name(kept.stem))) for kept in KEPT[1:]),
    ]
    for number in range(100):
        process = start(KILLED, first_version, number)
        said, _ = process.communicate()
        if said == "opened\n":
            break
        assert layout(first_version) in whole
    assert number > max(len(statements(version)) for version in range(1, NEWEST))
    assert layout(first_version)[0] == NEWEST


def test_of_two_processes_that_open_an_old_file_at_once_one_migrates_it(first_version: Path) -> None:
    racers = [start(RACER, first_version) for _ in range(2)]
    assert [news(racer).readline() for racer in racers] == ["ready\n"] * 2
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(news(racer).readline() for racer in racers) == ["opened\n", "refused\n"]
    for racer in racers:
        racer.communicate("\n")
    assert layout(first_version)[0] == NEWEST


def test_a_migration_made_by_another_connection_is_not_repeated(first_version: Path) -> None:
    connections = [apsw.Connection(str(first_version)) for _ in range(2)]
    for db in connections:
        db.set_busy_timeout(30_000)
    connections[0].execute("BEGIN IMMEDIATE")
    waiting = threading.Thread(target=migrations.migrate, args=[connections[1]])
    waiting.start()
    for sql in migrations.MIGRATIONS[1:]:
        connections[0].execute(sql)
    connections[0].pragma("user_version", NEWEST)
    connections[0].execute("COMMIT")
    waiting.join()
    for db in connections:
        db.close()
    assert layout(first_version)[0] == NEWEST


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.stem)
def test_a_stored_file_of_an_earlier_version_can_be_used(kept: Path, file: Path) -> None:
    store = SqliteStore(restored(kept, file))
    runs = store.runs()
    assert {run.state for run in runs} == {"completed", "failed", "waiting", "cancelled"}
    for run in runs:
        events = store.events(run.run)
        assert events[0].type == "workflow_started"
        row = RunRow(*run[:10], conversation="c", label="feature-42")
        assert store.append([append(run.run, len(events), 1, row, [fact_row("a", 1)])]) == [None]
        assert store.run(run.run) == row
        assert run.definition is not None
        assert store.definition(run.definition) is not None
    assert store.runs(conversation="c", label="feature-42") == store.runs()
    assert store.facts("default") == [fact_row("a", 1)]
    assert store.add_message("c", "user", "hello").seq == 1
    store.close()
    assert layout(file)[0] == NEWEST


def test_nothing_of_a_stored_file_is_lost(file: Path) -> None:
    """The file was written by version 6, with rows in all tables and an interrupted deletion."""
    with closing(apsw.Connection(str(restored(ALL_TABLES, file)))) as raw:
        hashes = raw.execute(
            "SELECT run, seq, hash FROM events WHERE run <> 'going' ORDER BY run, seq"
        ).fetchall()
        assert raw.pragma("auto_vacuum") == 0
    store = SqliteStore(file)
    row = store.run("migrated")
    assert row is not None
    assert row[3:9] == ("waiting", 1794747600.25, None, "key-1", None, 1794747700.25)
    assert (row.conversation, row.label, row.summary) == ("talk", "label-1", None)
    assert store.run_by_key("default", "key-1") == row
    assert store.runs(label="label-1") == store.runs(conversation="talk") == store.runs(newest=1) == [row]
    events = store.events("migrated")
    assert [event.type for event in events[:4]] == [
        "workflow_started", "node_started", "node_completed", "output_chunk",
    ]  # fmt: skip
    assert [event.settles for event in events] == [None, None, "/add", None, None, None, None]
    assert (events[3].data, events[4].data) == ("{}", '{"text": "stays"}')
    assert "kept as a blob" in events[5].data
    settling = events[2]._replace(seq=8)
    [outcome] = store.append([Append("migrated", 7, [settling])])
    assert "/add is already settled by event 3" in str(outcome)
    assert store.count_runs("default") == {"completed": 1, "failed": 1, "waiting": 2, "cancelled": 1}
    assert list(store.count_definitions("default").values()) == [2, 1, 2]
    assert [(fact.id, fact.version) for fact in store.facts("other")] == [("f", 4)]
    assert store.stored_reply("other", "k") is not None
    assert [message.text for message in store.messages("talk")] == ["hello"]
    assert store.resume_counts() == {"migrated": 1}
    assert 0 < store.summarized_since < time.time() + 1
    assert store.journal_size("going")[0] == 3
    store.delete_runs([])
    assert store.journal_size("going") == (0, 0)
    store.close()
    with closing(apsw.Connection(str(file))) as raw:
        assert raw.pragma("auto_vacuum") == 2
        assert (
            hashes
            == raw.execute(
                "SELECT run, seq, hash FROM events JOIN journals ON journals.id = journal ORDER BY run, seq"
            ).fetchall()
        )
    assert list(StoreInspection(file, lambda row, first, last: []).find_damage()) == []


def test_a_damaged_journal_stays_damaged(file: Path) -> None:
    with closing(apsw.Connection(str(restored(ALL_TABLES, file)))) as raw:
        raw.execute("UPDATE events SET data = '{}' WHERE run = 'migrated' AND seq = 3")
    store = SqliteStore(file)
    with pytest.raises(JournalBroken, match="3"):
        store.events("migrated")
    assert all(store.events(row.run) for row in store.runs() if row.run != "migrated")
    store.close()


def test_a_file_that_its_last_process_left_open_is_migrated_without_a_loss(file: Path) -> None:
    restored(ALL_TABLES, file)
    with closing(apsw.Connection(str(file))) as raw:
        hash = raw.execute("SELECT hash FROM events WHERE run = 'migrated' AND seq = 7").get
    for known, is_lost in ((hash, False), (bytes(32), True)):
        mark = CommitMark(file)
        mark.write(0, LastEvent("migrated", 7, known))
        mark.release()
        copy = file.with_name(f"copy-{is_lost}.db")
        for end in ("", ".mark"):
            shutil.copy(f"{file}{end}", f"{copy}{end}")
        store = SqliteStore(copy)
        assert (store.loss is not None) == is_lost
        store.close()


def test_a_process_killed_before_the_file_is_rebuilt_rebuilds_it_later(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored(ALL_TABLES, file)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_connection, "rebuild_file", lambda db: None)
        SqliteStore(file).close()
    with closing(apsw.Connection(str(file))) as raw:
        assert (raw.pragma("user_version"), raw.pragma("auto_vacuum")) == (NEWEST, 0)
    store = SqliteStore(file)
    assert len(store.events("migrated")) == 7
    store.close()
    with closing(apsw.Connection(str(file))) as raw:
        assert raw.pragma("auto_vacuum") == 2


@pytest.mark.parametrize(("version", "is_set"), [(7, False), (8, True)])
def test_a_file_with_usage_says_since_when_it_is_known_by_step(
    file: Path, version: int, is_set: bool
) -> None:
    store = SqliteStore(restored(KEPT[version - 1], file))
    since = store.read_property("step_usage_since")
    assert (since is not None) == is_set
    assert time.time() - 60 < float(since or time.time()) < time.time() + 1
    assert bool(store.daily_usage("default", "", "9")) == is_set
    assert store.daily_step_usage("default", "", "9") == []
    store.close()


def test_every_earlier_version_has_a_stored_file() -> None:
    assert [kept.stem for kept in KEPT][: NEWEST - 1] == [f"version-{n}" for n in range(1, NEWEST)]


def test_a_migrated_file_has_the_layout_of_a_new_one(first_version: Path, tmp_path: Path) -> None:
    SqliteStore(first_version).close()
    SqliteStore(tmp_path / "new.db").close()
    assert layout(first_version) == layout(tmp_path / "new.db")


def test_a_later_migration_keeps_existing_data(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0, 3, run_row("r")), append_facts(fact_row("a", 1))])
    store.add_message("c", "user", "hello")
    store.close()
    old = layout(file)
    later = "CREATE TABLE notes (label TEXT) STRICT; ALTER TABLE facts ADD COLUMN note TEXT"
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, f"{later}; SELECT * FROM nowhere"])
    with pytest.raises(StoreFailed):
        SqliteStore(file)
    assert layout(file) == old
    migrations.MIGRATIONS[-1] = later
    store = SqliteStore(file)
    assert store.events("r") == append("r", 0, 3).rows
    assert store.facts("default") == [fact_row("a", 1)]
    assert len(store.messages("c")) == 1
    store.close()
    assert layout(file)[0] == NEWEST + 1
