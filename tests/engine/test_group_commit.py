"""Every commit source gets its outcome, whatever the others do."""

from __future__ import annotations

import asyncio

import pytest

from nerve.engine.group_commit import CommitOutcome, GroupCommitter
from nerve.errors import StoreFailed
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow

pytestmark = pytest.mark.local("looks at the commits of the store")


class Author:
    """Writes one event of its own run."""

    def __init__(self, name: str, fails: str = "") -> None:
        self.name, self.fails = name, fails
        self.told: list[CommitOutcome] = []
        self.is_told = asyncio.Event()

    def drain(self) -> Append | None:
        if self.fails == "take":
            raise TypeError("nothing can be made of it")
        return Append(self.name, 0, [EventRow(1, 0.0, "workflow_started", "", None, "{}")])

    def on_commit(self, error: CommitOutcome) -> None:
        self.told.append(error)
        self.is_told.set()
        if self.fails == "written":
            raise TypeError("it cannot be taken in")


@pytest.mark.parametrize("fails", ["take", "written"])
async def test_a_failing_commit_source_does_not_affect_the_others(fails: str) -> None:
    writer = GroupCommitter(MemoryStore())
    wrong, right = Author("wrong", fails), Author("right")
    for author in (wrong, right):
        writer.flush_soon(author)
    async with asyncio.timeout(60):
        await right.is_told.wait()
        await writer.wait_drained()
    assert right.told == [None]
    assert [type(each) for each in wrong.told] == [StoreFailed if fails == "take" else type(None)]
    later = Author("later")
    writer.flush_soon(later)
    async with asyncio.timeout(60):
        await later.is_told.wait()
