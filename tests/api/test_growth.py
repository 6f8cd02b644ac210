"""No query reads more because more runs have finished, or because more runs wait."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.api import Api

sys.path.append(str(Path(__file__).parents[2]))
from bench.large_store import LONG_RUN, StoreSize, build_store
from bench.workflows import make_session

SMALL = StoreSize(finished=300, running=0, at_gates=300, long_steps=3000)
LARGE = StoreSize(finished=1200, running=0, at_gates=1200, long_steps=12_000)


async def look_at_facts(session: Session) -> None:
    session.dataspace.facts(["workflow/state", {"status": "held"}])


QUERIES: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "ready": lambda session: session.recover(),
    "gates": lambda session: Api(session).gates(limit=50),
    "usage": lambda session: Api(session).usage(),
    "health": lambda session: Api(session).health(),
    "runs": lambda session: Api(session).runs(limit=50),
    "waiting runs": lambda session: Api(session).runs(state="waiting", limit=50),
    "runs with a tag": lambda session: Api(session).runs(tag="tier=free", limit=50),
    "runs with tags": lambda session: Api(session).runs(tag=["customer=7", "tier=free"], limit=50),
    "held runs with a tag": lambda session: Api(session).runs(tag="tier=free", state="held", limit=50),
    "runs since a time": lambda session: Api(session).runs(since="2999-01-01", limit=50),
    "runs with a text": lambda session: Api(session).runs(search="no run has it", limit=50),
    "a long run": lambda session: Api(session).run(run=LONG_RUN),
    "facts": look_at_facts,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    files = [tmp_path_factory.mktemp(name) / "nerve.db" for name in ("small", "large")]
    for file, size in zip(files, (SMALL, LARGE), strict=True):
        build_store(file, size)
    return files


async def count_steps(file: Path, query: Callable[[Session], Awaitable[Any]]) -> int:
    """Return the number of steps of SQLite's virtual machine for a query, in hundreds."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    async with make_session(file) as session:
        reader = session.engine.store._reader  # type: ignore[attr-defined]
        reader.set_progress_handler(count, 100)
        await query(session)
        reader.set_progress_handler(None)
    return steps


@pytest.mark.parametrize("name", QUERIES)
async def test_a_query_of_a_large_store_reads_as_much_as_of_a_small_one(
    files: list[Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small enough that both stores have more than is shown of them at once.
    monkeypatch.setattr("nerve.engine.recovery.MAX_ORDERED_RUNS", 100)
    monkeypatch.setattr("nerve.engine.recovery.MAX_RECOVERY_CPU_S", 0.0)
    monkeypatch.setattr("nerve.engine.recovery.RUNS_PER_PAGE", 100)
    monkeypatch.setattr("nerve.engine.durable_dataspace.LOADED_OPEN_RUNS", 100)
    monkeypatch.setattr("nerve.engine.durable_dataspace.LOADED_ENDED_RUNS", 100)
    monkeypatch.setattr("nerve.api.queries.MAX_LISTED_RUNS", 100)
    monkeypatch.setattr("nerve.store.sqlite.MAX_SEARCHED_RUNS", 100)
    small, large = [await count_steps(file, QUERIES[name]) for file in files]
    assert large <= small * 1.25 + 20
