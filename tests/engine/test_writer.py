"""Everybody who has something to write is told what became of it, whatever the others do."""

from __future__ import annotations

import asyncio

import pytest

from nerve.engine.writer import Outcome, Writer
from nerve.errors import StoreFailed
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, Row


class Author:
    """Writes one event of a run of its own."""

    def __init__(self, name: str, fails: str = "") -> None:
        self.name, self.fails = name, fails
        self.told: list[Outcome] = []
        self.is_told = asyncio.Event()

    def take(self) -> Append | None:
        if self.fails == "take":
            raise TypeError("nothing can be made of it")
        return Append(self.name, 0, [Row(1, 0.0, "workflow_started", "", None, "{}")])

    def written(self, error: Outcome) -> None:
        self.told.append(error)
        self.is_told.set()
        if self.fails == "written":
            raise TypeError("it cannot be taken in")


@pytest.mark.parametrize("fails", ["take", "written"])
async def test_an_author_that_fails_keeps_no_other_from_being_told(fails: str) -> None:
    writer = Writer(MemoryStore())
    wrong, right = Author("wrong", fails), Author("right")
    for author in (wrong, right):
        writer.now(author)
    async with asyncio.timeout(10):
        await right.is_told.wait()
        await writer.drained()
    assert right.told == [None]
    assert [type(each) for each in wrong.told] == [StoreFailed if fails == "take" else type(None)]
    later = Author("later")
    writer.now(later)
    async with asyncio.timeout(10):
        await later.is_told.wait()
