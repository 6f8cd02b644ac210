"""The run a conversation is about, in every store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nerve.store.conversations import active_run
from nerve.store.memory import MemoryStore
from nerve.store.port import RunRow, Store
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append


@pytest.fixture(params=[MemoryStore, SqliteStore])
def store(request: pytest.FixtureRequest, file: Path) -> Iterator[Store]:
    store = request.param(*([file] if request.param is SqliteStore else []))
    yield store
    store.close()


def keep(
    store: Store, run: str, started: float, ended: float | None = None, conversation: str = "c"
) -> RunRow:
    state = "completed" if ended else "waiting"
    row = RunRow(run, "default", "review", state, started, ended, conversation=conversation)
    assert store.append([append(run, len(store.events(run)), 1, row)]) == [None]
    return row


@pytest.mark.requirement("S3-11")
def test_the_active_run_is_the_latest_that_has_not_ended(store: Store) -> None:
    assert active_run(store, "c") is None
    first = keep(store, "b", 1.0)
    second = keep(store, "a", 2.0)
    keep(store, "d", 3.0, 4.0)
    keep(store, "e", 5.0, conversation="other")
    assert active_run(store, "c") == second
    keep(store, "a", 2.0, 6.0)
    assert active_run(store, "c") == first
    keep(store, "b", 1.0, 7.0)
    assert active_run(store, "c") is None
