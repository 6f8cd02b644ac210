"""The table of runs for other tools is a view of runs and their journals."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from nerve.store.port import Append, EventRow, RunRow
from nerve.store.sqlite import SqliteStore
from store.test_migrations import KEPT, restored

COLUMNS = [
    "id",
    "workflow_name",
    "conversation_id",
    "codebase_id",
    "current_step_index",
    "status",
    "user_message",
    "metadata",
    "started_at",
    "completed_at",
]
BEGAN, ENDED = 1763199999.25, 1763200000.5


@pytest.fixture
def raw(store: SqliteStore, file: Path) -> Iterator[apsw.Connection]:
    yield (raw := reader(file))
    raw.close()


def reader(file: Path) -> apsw.Connection:
    raw = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    raw.pragma("trusted_schema", False)
    return raw


def table(raw: apsw.Connection) -> list[dict[str, Any]]:
    rows = raw.execute("SELECT * FROM remote_agent_workflow_runs ORDER BY started_at, id")
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def keep(
    store: SqliteStore, *events: tuple[str, str, Any], state: str = "running", ended: float | None = None
) -> None:
    started = ("workflow_started", "", {"input": "add a button"})
    given = events if events and events[0][0] == "workflow_started" else (started, *events)
    rows = [
        EventRow(seq, BEGAN, type, path, path if type.endswith("_completed") else None, json.dumps(data))
        for seq, (type, path, data) in enumerate(given, 1)
    ]
    row = RunRow("r", "default", "feature", state, BEGAN, ended, conversation="c", label="feature-42")
    assert store.append([Append("r", 0, rows, row)]) == [None]


@pytest.mark.requirement("S3-10")
def test_a_run_is_a_row_of_the_table(store: SqliteStore, raw: apsw.Connection) -> None:
    keep(store)
    assert table(raw) == [
        {
            "id": "r",
            "workflow_name": "feature",
            "conversation_id": "c",
            "codebase_id": None,
            "current_step_index": 0,
            "status": "running",
            "user_message": "add a button",
            "metadata": "{}",
            "started_at": "2025-11-15T09:46:39.250Z",
            "completed_at": None,
        }
    ]
    names = raw.execute("SELECT name FROM pragma_table_info('remote_agent_workflow_runs')")
    assert [name for (name,) in names] == COLUMNS


@pytest.mark.requirement("S3-10")
@pytest.mark.parametrize(
    ("state", "status"),
    [
        *((state, "running") for state in ("pending", "running", "waiting", "pausing", "paused", "held")),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "failed"),
    ],
)
def test_every_state_is_one_of_three(
    store: SqliteStore, raw: apsw.Connection, state: str, status: str
) -> None:
    ended = None if status == "running" else ENDED
    keep(store, state=state, ended=ended)
    [row] = table(raw)
    assert row["status"] == status
    assert row["completed_at"] == (None if ended is None else "2025-11-15T09:46:40.500Z")


@pytest.mark.requirement("S3-10")
@pytest.mark.requirement("S3-11")
@pytest.mark.parametrize(
    ("state", "data", "error"),
    [
        ("failed", {"error": 'no "such" branch'}, 'no "such" branch'),
        ("failed", {"error": ""}, "failed"),
        ("cancelled", {"reason": "not needed"}, "not needed"),
        ("cancelled", {"reason": ""}, "cancelled"),
    ],
)
def test_the_error_is_in_the_metadata(
    store: SqliteStore, raw: apsw.Connection, state: str, data: dict[str, str], error: str
) -> None:
    earlier = ("workflow_failed", "", {"error": "before it was resumed"})
    keep(store, earlier, (f"workflow_{state}", "", data), state=state, ended=ENDED)
    [row] = table(raw)
    assert json.loads(row["metadata"]) == {"error": error}


@pytest.mark.requirement("S3-10")
def test_successful_top_level_steps_are_counted(store: SqliteStore, raw: apsw.Connection) -> None:
    keep(
        store,
        ("node_started", "/plan", {}),
        ("node_completed", "/plan", {"success": True}),
        ("node_completed", "/loop/code", {"success": True}),
        ("node_completed", "/loop/code[2]", {"success": True}),
        ("step_completed", "/loop", {"success": True}),
        ("node_completed", "/review", {"success": False}),
        ("node_completed", "/plan~expect", {"success": True}),
        ("node_completed", "/plan~again[2]", {"success": True}),
        ("node_completed", "/large", {"success": True, "output": "x" * 300_000}),
    )
    assert table(raw)[0]["current_step_index"] == 3


@pytest.mark.parametrize(
    ("input", "message"),
    [(None, None), (7, "7"), ({"a": [1]}, '{"a":[1]}'), ("x" * 300_000, "x" * 300_000)],
)
def test_the_message_is_the_input_as_text(
    store: SqliteStore, raw: apsw.Connection, input: Any, message: str | None
) -> None:
    keep(store, ("workflow_started", "", {"input": input}))
    assert table(raw)[0]["user_message"] == message


@pytest.mark.requirement("S3-10")
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.stem)
def test_the_runs_of_stored_files_are_in_the_table(kept: Path, file: Path) -> None:
    SqliteStore(restored(kept, file)).close()
    raw = reader(file)
    shown = [(row["status"], row["user_message"], row["current_step_index"]) for row in table(raw)]
    assert shown == [
        ("completed", "0", 7),
        ("failed", "add a button", 1),
        ("running", "please wait", 1),
        ("failed", "to be stopped", 1),
    ]
    assert [json.loads(row["metadata"]).get("error") for row in table(raw)] == [
        None,
        "no such branch",
        None,
        "cancelled",
    ]
    raw.close()


@pytest.mark.requirement("S3-10")
@pytest.mark.parametrize("where", ["conversation_id = ?", "id = ?"])
def test_a_conversation_and_a_run_are_looked_up_by_an_index(
    store: SqliteStore, raw: apsw.Connection, where: str
) -> None:
    plan = raw.execute(f"EXPLAIN QUERY PLAN SELECT id FROM remote_agent_workflow_runs WHERE {where}", ["c"])
    assert not any("SCAN" in row[3] for row in plan)
