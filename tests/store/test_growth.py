"""What is finished costs nothing: no list reads more than it shows, and deleting gives space back."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from nerve.store.port import TAG_KIND, Append, RunRow, TagRow
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import event, run_row, wait_row

OPEN_STATES = ["pending", "running", "waiting", "paused", "held"]
BEFORE = run_row("r", started=5.0)

LISTS: dict[str, Callable[[SqliteStore], object]] = {
    "open runs": lambda store: store.runs(states=OPEN_STATES),
    "open runs of a session": lambda store: store.runs(session="default", states=OPEN_STATES),
    "held runs": lambda store: store.runs(session="default", states=["held"]),
    "a page": lambda store: store.runs(session="default", newest=50),
    "the next page": lambda store: store.runs(session="default", newest=50, before=BEFORE),
    "a page of failed runs": lambda store: store.runs(session="default", states=["failed"], newest=50),
    "a page of a workflow": lambda store: store.runs(session="default", workflow="w", newest=50),
    "a page of a label": lambda store: store.runs(session="default", label="l", newest=50),
    "a page of a conversation": lambda store: store.runs(session="default", conversation="c", newest=50),
    "a page of a tag": lambda store: store.runs(session="default", tags={"customer": "42"}, newest=50),
    "a page of held runs with a tag": lambda store: store.runs(
        session="default", tags={"customer": "42"}, states=["held"], newest=50
    ),
    "a page since a time": lambda store: store.runs(session="default", since=9e9, newest=50),
    "open runs that need an old branch": lambda store: store.runs(
        session="default", states=OPEN_STATES, patch="fraud-check"
    ),
    "names of tags": lambda store: store.tag_names("default", TAG_KIND),
    "runs with a prefix": lambda store: store.runs(session="default", prefix="0190", newest=2),
    "one run": lambda store: store.run("r"),
    "a run by key": lambda store: store.run_by_key("default", "k"),
    "counts": lambda store: store.count_runs("default"),
    "counts of definitions": lambda store: store.count_definitions("default"),
    "sessions": lambda store: store.sessions(),
    "labels": lambda store: store.labels("default", "l", 9),
    "gates": lambda store: store.open_waits("default", "gate", limit=50),
    "the next gates": lambda store: store.open_waits("default", "gate", wait_row("r"), 50),
    "waits of a run": lambda store: store.waits_of_run("r"),
    "counts of waits": lambda store: store.count_waits("default"),
    "usage of a day": lambda store: store.daily_usage("default", "2025-11-15", "2025-11-15"),
    "the last event": lambda store: store.last_event("r"),
    "a page of events": lambda store: store.events("r", 5, 50),
    "runs written last": lambda store: store.last_written_runs(50),
    "recovery attempts": lambda store: store.resume_counts(),
}

BOUNDED_SCANS = {"runs written last": ("SCAN events", "SCAN last")}
"""Scans from the end of a table that a LIMIT ends."""

SMALL_TABLES = ("run_counts", "resumes", "json_each", "properties", "deletions", "SCAN names")
"""Their size does not depend on the number of finished runs."""


@pytest.mark.parametrize("name", LISTS)
def test_every_list_is_found_by_an_index(store: SqliteStore, name: str) -> None:
    store.append([Append("r", 0, [event(1)], run_row("r"), waits=[wait_row("r")])])
    asked: list[tuple[str, object]] = []
    store._reader.set_exec_trace(lambda _, sql, values: asked.append((sql, values)) or True)
    LISTS[name](store)
    store._reader.set_exec_trace(None)
    plans = [
        row[3]
        for sql, values in asked
        if sql.startswith(("SELECT", "WITH"))
        for row in store._reader.execute(f"EXPLAIN QUERY PLAN {sql}", values)  # type: ignore[arg-type]
    ]
    assert plans
    scans = [plan for plan in plans if plan.startswith("SCAN") and plan not in BOUNDED_SCANS.get(name, ())]
    assert [plan for plan in scans if not any(table in plan for table in SMALL_TABLES)] == []


def steps_of(store: SqliteStore, read: Callable[[SqliteStore], object]) -> int:
    """Return the number of steps of SQLite's virtual machine, in tens."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    store._reader.set_progress_handler(count, 10)
    read(store)
    store._reader.set_progress_handler(None)
    return steps


def finished_runs(start: int, count: int) -> Iterator[Append]:
    for number in range(start, start + count):
        row = RunRow(f"run-{number:06}", "default", "w", "completed", float(number), number + 0.5)
        yield Append(row.run, 0, [event(1)], row, tags=[TagRow(TAG_KIND, "customer", "42", row.started)])


@pytest.mark.parametrize("name", [name for name in LISTS if name not in ("a page of a workflow", "labels")])
def test_the_cost_of_a_list_does_not_depend_on_finished_runs(file: Path, name: str) -> None:
    store = SqliteStore(file)
    store.append([Append("r", 0, [event(1)], run_row("r"), waits=[wait_row("r")])])
    store.append(list(finished_runs(0, 200)))
    before = steps_of(store, LISTS[name])
    store.append(list(finished_runs(200, 3000)))
    assert steps_of(store, LISTS[name]) <= before + 20
    store.close()


def test_deleting_runs_gives_space_back(file: Path) -> None:
    store = SqliteStore(file)
    for start in range(0, 2000, 500):
        store.append(list(finished_runs(start, 500)))
    store.append([Append("large", 0, [event(1, data="x" * 5_000_000)], run_row("large"))])
    store.close()
    full = file.stat().st_size
    store = SqliteStore(file)
    store.delete_runs(["large", *(f"run-{number:06}" for number in range(1990))])
    assert len(store.events("run-001995")) == 1
    store.close()
    assert file.stat().st_size < full / 20
    with closing(apsw.Connection(str(file))) as raw:
        assert raw.pragma("freelist_count") == 0
        assert raw.pragma("integrity_check") == "ok"


def test_space_is_given_back_in_small_transactions(
    store: SqliteStore, connections: list[apsw.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([Append("large", 0, [event(1, data="x" * 9_000_000)], run_row("large"))])
    freed: list[bool] = []
    free_pages = store._writer.free_pages
    monkeypatch.setattr(store._writer, "free_pages", lambda: freed.append(free_pages()) or freed[-1])
    store.delete_runs(["large"])
    assert freed == [*[True] * (len(freed) - 1), False]
    assert len(freed) > 4
