"""Old runs are listed by a dry run, then deleted with their files, while other runs continue."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal, with_workflows
from nerve import Session
from nerve.api import Api, delete_runs
from nerve.core.json_codec import encode_json
from nerve.store.port import Append, EventRow, RunRow, Store

DAY = 86_400.0


def add(store: Store, *given: Any, **options: Any) -> None:
    """Add a run that ended some days ago."""
    for part in parts(*given, **options):
        store.append([part])


def parts(
    run: str,
    days: float,
    state: str = "completed",
    events: int = 3,
    parent: str | None = None,
    text: str = "x",
) -> Iterator[Append]:
    at = time.time() - days * DAY
    data = encode_json({"stream": "assistant", "text": text})
    rows = [EventRow(n, at, "output_chunk", "/a", None, data) for n in range(1, events + 1)]
    ended = at if state == "completed" else None
    row = RunRow(run, "default", "hello", state, at, ended, None, parent)
    for start in range(0, events, 5000):
        yield Append(run, start, rows[start : start + 5000], row)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Api]:
    async with Session(store=folder / "nerve.db", project=folder) as session:
        yield with_workflows(session)


async def test_a_dry_run_lists_what_would_be_deleted_and_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        store = api.session.engine.store
        add(store, "older-run", 60)
        add(store, "old-run-2", 40)
        add(store, "young-run", 20)
        reply = await api.collect()
        assert (reply.dry_run, reply.runs, reply.events) == (True, 2, 6)
        assert [each.run_id for each in reply.oldest] == ["older-run", "old-run-2"]
        assert len(store.runs()) == 3
        done = await api.collect(dry_run=False)
        assert done.model_dump(exclude={"dry_run"}) == reply.model_dump(exclude={"dry_run"})
        assert [row.run for row in store.runs()] == ["young-run"]
        assert (await api.collect(dry_run=False)).runs == 0


async def test_open_runs_stay_and_keys_are_valid_for_a_day(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        run = await api.start(workflow="hello", key="k", wait=True)
        store = api.session.engine.store
        add(store, "waits-still", 400, "waiting")
        add(store, "its-child-1", 400, parent="waits-still")
        assert (await api.collect(older_than=1, dry_run=False)).runs == 0
        assert (await refusal(api.collect(older_than=0.5))).code == "bad_request"
        assert (await api.start(workflow="hello", key="k")).run_id == run.run_id


async def test_logs_and_artifacts_are_deleted_with_their_runs_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept.txt").write_text("kept")
    project = tmp_path / "project"
    places = [project / ".nerve" / name for name in ("logs", "artifacts")]
    for place in places:
        place.mkdir(parents=True)
    (project / ".archon").symlink_to(precious)
    for run in ("old-run-1", "young-run"):
        (places[0] / f"{run}.jsonl").write_text("{}\n")
        (places[1] / run).mkdir()
        (places[1] / run / "plan.md").write_text("plan")
    (places[1] / "old-run-2").symlink_to(precious)
    (precious / "logs").mkdir()
    (precious / "logs" / "old-run-1.jsonl").write_text("kept")
    async with opened(project) as api:
        store = api.session.engine.store
        for run, days in (("old-run-1", 40), ("old-run-2", 40), ("young-run", 1.5)):
            add(store, run, days)
        assert (await api.collect()).files == 3
        assert (await api.collect(dry_run=False)).files == 3
    assert sorted(path.name for place in places for path in place.iterdir()) == [
        "young-run",
        "young-run.jsonl",
    ]
    assert {path.name for path in precious.rglob("*")} == {"kept.txt", "logs", "old-run-1.jsonl"}


async def test_old_output_is_emptied_and_numbers_and_hash_chain_stay_valid(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        store = api.session.engine.store
        add(store, "waits-still", 10, "waiting", events=5)
        reply = await api.collect(output_older_than=7, dry_run=False)
        assert (reply.chunks, reply.runs) == (5, 0)
        assert [(row.seq, row.data) for row in store.events("waits-still")] == [
            (n, "{}") for n in range(1, 6)
        ]


async def test_a_stream_of_all_runs_continues_when_one_of_them_is_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        watching = api.hub.watch_all()
        mark, _ = await anext(watching)
        gone = await api.start(workflow="hello", wait=True)
        kept = await api.start(workflow="hello", wait=True)
        await watching.aclose()
        api.session.engine.store.delete_runs([gone.run_id])
        again = api.hub.watch_all(mark)
        assert (await anext(again))[1].run_id == kept.run_id  # type: ignore[union-attr]
        await again.aclose()


@pytest.mark.parametrize(
    ("runs", "events", "seconds"),
    # The quick test shares the machine with other tests.
    [(1000, 10_000, 1.5), pytest.param(10_000, 50_000, 0.25, marks=pytest.mark.full)],
)
async def test_a_running_engine_is_not_blocked_by_a_deletion(
    tmp_path: Path, runs: int, events: int, seconds: float
) -> None:
    """Compare starts during a deletion of many old runs and a very long one with starts without it."""
    async with opened(tmp_path) as api:
        alone = await slowest(api, asyncio.ensure_future(asyncio.sleep(0.3)))
        for attempt in range(3):  # a busy machine gets several attempts
            fill(api.session.engine.store, attempt, runs, events)
            collecting = asyncio.ensure_future(api.collect(older_than=30, output_older_than=1, dry_run=False))
            worst = await slowest(api, collecting)
            reply = collecting.result()
            assert (reply.runs, reply.chunks) == (runs + 1, events)
            if worst < max(seconds, 3 * alone):
                return
        pytest.fail(f"a start took {worst:.3f} s while runs were deleted, and {alone:.3f} s before")


def fill(store: Store, attempt: int, runs: int, events: int) -> None:
    add(store, f"long-{attempt}-old", 40, events=events, text="x" * 300)
    add(store, f"long-{attempt}-open", 20, "waiting", events=events, text="x" * 300)
    for first in range(0, runs, 500):
        each = range(first, min(first + 500, runs))
        store.append([part for n in each for part in parts(f"old-{attempt}-{n:06}", 40)])


async def slowest(api: Api, meanwhile: "asyncio.Future[Any]") -> float:
    """Return the longest time that a durable start took during another task."""
    worst = 0.0
    while not meanwhile.done() or not worst:
        began = time.perf_counter()
        await api.start(workflow="hello", wait=True)
        worst = max(worst, time.perf_counter() - began)
    return worst


async def test_a_deletion_interrupted_between_files_and_runs_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as api:
        store = api.session.engine.store
        add(store, "older-run", 60)
        folder = tmp_path / ".nerve" / "artifacts" / "older-run"
        folder.mkdir(parents=True)

        def fails(*_: Any) -> None:
            raise OSError("as if it was killed here")

        for place, name in ((delete_runs, "delete_files"), (store, "delete_runs")):
            with monkeypatch.context() as patched:
                patched.setattr(place, name, fails)
                await refusal(api.collect(dry_run=False))
            assert store.run("older-run") is not None
        done = await api.collect(dry_run=False)
        assert (done.runs, store.run("older-run"), folder.exists()) == (1, None, False)
