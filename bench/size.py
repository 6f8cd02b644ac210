"""Size: with many runs in the store, a session is ready at once, and a query costs what it shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.large_store import LONG_RUN, StoreSize, build_store
from bench.measure import Line, at_most, measure_in_turns, temporary_folder
from bench.workflows import make_session
from nerve import Session
from nerve.api import Api

MAX_READY_MS, MAX_QUERY_MS = 200, 100


async def look_at_facts(session: Session) -> None:
    session.dataspace.facts(["workflow/state", {"status": "held"}])


QUERIES: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "open and recover": lambda session: session.recover(),
    "gates": lambda session: Api(session).gates(),
    "usage": lambda session: Api(session).usage(),
    "health": lambda session: Api(session).health(),
    "first look at facts": look_at_facts,
    "50 newest runs": lambda session: Api(session).runs(limit=50),
    "a run with 100,000 steps": lambda session: Api(session).run(run=LONG_RUN),
}


def measure(rounds: int, directory: Path) -> list[Line]:
    size = StoreSize()
    with temporary_folder(directory) as folder:
        file = folder / "nerve.db"
        build_store(file, size)
        subjects = [lambda query=query: asyncio.run(measure_query(file, query)) for query in QUERIES.values()]
        figures = measure_in_turns(min(rounds, 5), *subjects)
    runs = f"{size.finished:,} finished, {size.running:,} open and {size.at_gates:,} runs at gates"
    return [make_line(f"{name}; {runs}", durations) for name, durations in zip(QUERIES, figures, strict=True)]


def make_line(what: str, durations: list[float]) -> Line:
    bound = MAX_READY_MS if what.startswith("open") else MAX_QUERY_MS
    return Line("size", what, "ms of CPU", median(durations), target=at_most(durations, bound, "ms"))


async def measure_query(file: Path, query: Callable[[Session], Awaitable[Any]]) -> float:
    """Return the CPU time of opening a session and one query."""
    began = time.process_time()
    async with make_session(file) as session:
        await query(session)
        return (time.process_time() - began) * 1000
