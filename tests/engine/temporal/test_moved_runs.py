"""Open runs of the local engine are moved to Temporal, and are in one engine only, whatever happens."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.temporal import moving_project
from engine.temporal.api_servers import (
    open_body_worker,
    open_leaf_worker,
    open_server,
    open_servers,
    wait_for_run,
)
from engine.temporal.moving_project import EFFECTS_VARIABLE, register
from nerve import Session
from nerve.api import Api, ApiError
from nerve.engine.temporal.carried_runs import MAX_CARRIED_EVENTS, JournalsTooLong
from nerve.errors import StoreInUse
from nerve.project.engine_url import parse_engine_url
from nerve.session.moved_runs import FilesOfRuns, move_runs
from nerve.store.port import EventRow
from nerve.store.postgres import PostgresStore
from nerve.store.sqlite import SqliteStore
from workspaces.repositories import make_repository

RESULT = [[0, 1, 2, 3], ["c1", "yes", "c2"], "slept", "yes", "end"]
STEPS = 7


@pytest.fixture(autouse=True)
def effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which every step adds its path."""
    file = tmp_path / "effects"
    file.touch()
    monkeypatch.setenv(EFFECTS_VARIABLE, str(file))
    return file


@pytest.fixture
async def server(temporal_url: str, postgresql_url: str, tmp_path: Path, effects: Path) -> AsyncIterator[Api]:
    """The API of a server of the cluster, with workers."""
    async with open_servers(temporal_url, postgresql_url, tmp_path, register, count=1) as [api]:
        yield api


def source_url(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}schema=local"


async def begin_runs(store: str | Path, events: list[int]) -> list[str]:
    """Start runs with the local engine, and close it when each has about a number of events."""
    ids = []
    async with Session(store=store) as session:
        register(session)
        for number in events:
            reached = asyncio.Event()

            def watch(run: Any, rows: list[EventRow], number: int = number, reached: Any = reached) -> None:
                if run.workflow_id == "tour" and rows[-1].seq >= number:
                    reached.set()

            session.engine.watchers[:] = [watch]
            run = await session.start("tour", params={"seconds": 0.5})
            ids.append(run.run_id)
            await asyncio.wait_for(reached.wait(), 20)
    return ids


async def move_all(source: str | Path, temporal_url: str, store: str) -> list[str]:
    engine = parse_engine_url(temporal_url)
    return [row.run async for row in move_runs(source, lambda _: None, engine, store)]


async def answer_all(api: Api, run_id: str) -> Any:
    """Answer the gates of a run and of its child until it ends; return its result."""

    def is_ready(run: Any) -> bool:
        return bool(run.gates) or run.ended_at is not None

    while (run := await wait_for_run(api, run_id, is_ready)).ended_at is None:
        for gate in run.gates:
            # A body worker that is still reading a long journal has not begun the answer: it is sent again.
            with suppress_busy():
                await api.answer(run=gate.run_id, gate=gate.gate_id, answer="yes", key=gate.gate_id)
    assert run.state == "completed", run
    return run.result


@contextmanager
def suppress_busy() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code != "busy":
            raise


def read_lines(effects: Path) -> list[str]:
    return effects.read_text().splitlines()


def check_steps(effects: Path, ids: list[str], local: set[str]) -> None:
    """Check that every step ran once; one that was interrupted locally may have run twice."""
    counts = Counter(read_lines(effects))
    for path, count in counts.items():
        assert count == 1 or (count == 2 and path in local), path
    assert len(counts) == STEPS * len(ids)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
async def test_runs_that_were_stopped_at_random_points_are_continued(
    kind: str, server: Api, temporal_url: str, postgresql_url: str, tmp_path: Path, effects: Path
) -> None:
    random = Random(7)
    source = tmp_path / "local.db" if kind == "sqlite" else source_url(postgresql_url)
    ids = await begin_runs(source, [random.randint(1, 13) for _ in range(6)])
    local = set(read_lines(effects))
    assert sorted(await move_all(source, temporal_url, postgresql_url)) == sorted(ids)
    for id in ids:
        assert await answer_all(server, id) == RESULT
    check_steps(effects, ids, local)
    assert await move_all(source, temporal_url, postgresql_url) == []


async def test_the_journal_of_the_source_says_where_a_run_went_and_its_engine_does_not_continue_it(
    server: Api, temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    source = tmp_path / "local.db"
    [id] = await begin_runs(source, [12])
    await move_all(source, temporal_url, postgresql_url)
    async with Session(store=source) as session:
        register(session)
        assert list(await session.recover()) == []
        run = session.get_workflow_run(id)
        assert run is not None
        assert (run.state.value, run.error) == ("cancelled", f"moved to {parse_engine_url(temporal_url)}")
        moved_to = run.events[-1].data["moved_to"]
        assert moved_to["engine"] == str(parse_engine_url(temporal_url))
        rows = session.engine.store.events(id)
        assert session.engine.store.count_waits("default") == {}
    with closing(PostgresStore(postgresql_url, None)) as store:
        assert store.events(id)[: len(rows) - 1] == rows[:-1]
    assert await answer_all(server, id) == RESULT


async def test_all_runs_of_a_database_go_over_with_its_assignment(
    temporal_url: str, postgresql_url: str, tmp_path: Path, effects: Path
) -> None:
    ids = await begin_runs(postgresql_url, [3, 9, 12, 13])
    local = set(read_lines(effects))
    assert sorted(await move_all(postgresql_url, temporal_url, postgresql_url)) == sorted(ids)
    with pytest.raises(StoreInUse, match="temporal://"):
        PostgresStore(postgresql_url)
    assert await move_all(postgresql_url, temporal_url, postgresql_url) == []
    async with open_servers(temporal_url, postgresql_url, tmp_path, register, count=1) as [api]:
        for id in ids:
            assert await answer_all(api, id) == RESULT
    check_steps(effects, ids, local)


async def test_a_run_with_too_many_events_stays_where_it_is(
    temporal_url: str, postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerve.engine.temporal.carried_runs.MAX_CARRIED_EVENTS", 12)
    source = tmp_path / "local.db"
    [id] = await begin_runs(source, [12])
    with pytest.raises(JournalsTooLong, match=f"Run '{id}' has 1[3-9] events .* at most 12"):
        await move_all(source, temporal_url, postgresql_url)
    with closing(SqliteStore(source)) as store:
        row = store.run(id)
        assert row is not None
        assert row.ended is None


@pytest.mark.full
async def test_a_run_with_nearly_as_many_events_as_allowed_is_continued(
    server: Api, temporal_url: str, postgresql_url: str, tmp_path: Path, effects: Path
) -> None:
    source, steps = tmp_path / "local.db", 12_400
    async with Session(store=source) as session:
        register(session)
        run = await session.start("long", steps)
        assert await run.next_gate() is not None
        assert len(session.engine.store.events(run.run_id)) > MAX_CARRIED_EVENTS - 500
    await move_all(source, temporal_url, postgresql_url)
    assert await answer_all(server, run.run_id) == ["yes", steps]
    assert len(read_lines(effects)) == steps + 1


async def test_a_run_that_was_started_with_a_key_is_found_by_it(
    server: Api, temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    source = tmp_path / "local.db"
    async with Session(store=source) as session:
        register(session)
        run = await session.start("tour", key="k")
    await move_all(source, temporal_url, postgresql_url)
    assert (await server.start(workflow="tour", key="k")).run_id == run.run_id


IN_WORKSPACE = """
name: change
body:
  kind: sequence
  workspace: {merge: none}
  steps:
    - {kind: bash, id: write, command: "echo mine > new.txt"}
    - {kind: gate, id: right, prompt: "Right?"}
    - {kind: bash, id: read, command: "cat new.txt"}
"""


async def test_a_run_with_a_workspace_continues_on_the_machine_that_has_it(
    temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    def load(session: Session) -> None:
        session.load(IN_WORKSPACE, "yaml")

    project, source = make_repository(tmp_path / "project"), tmp_path / "local.db"
    async with Session(store=source, project=project) as session:
        load(session)
        run = await session.start("change")
        assert await run.next_gate() is not None
    files, engine = FilesOfRuns(project, "here"), parse_engine_url(temporal_url)
    moved = [row async for row in move_runs(source, lambda _: None, engine, postgresql_url, files=files)]
    assert [row.run for row in moved] == [run.run_id]
    other = make_repository(tmp_path / "other")
    async with (
        open_body_worker(temporal_url, postgresql_url, load, project=project),
        open_leaf_worker(temporal_url, postgresql_url, load, other, "elsewhere"),
        open_leaf_worker(temporal_url, postgresql_url, load, project, "here"),
        open_server(temporal_url, postgresql_url, project, load) as api,
    ):
        assert await answer_all(api, run.run_id) == "mine\n"


async def test_a_paused_run_is_paused_after_its_move(
    server: Api, temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    source = tmp_path / "local.db"
    async with Session(store=source) as session:
        register(session)
        run = await session.start("child", None)
        await run.next_gate()
        await run.pause()
    await move_all(source, temporal_url, postgresql_url)
    assert (await server.run(run=run.run_id)).state == "paused"
    await server.resume(run=run.run_id)
    assert await answer_all(server, run.run_id) == ["c1", "yes", "c2"]


async def test_a_mover_that_is_killed_leaves_each_run_in_one_engine(
    server: Api, temporal_url: str, postgresql_url: str, tmp_path: Path, effects: Path
) -> None:
    source = tmp_path / "local.db"
    ids = await begin_runs(source, [12, 12])
    local = set(read_lines(effects))
    for point in range(12):
        command = [sys.executable, moving_project.__file__]
        arguments = [str(point), "move", str(source), temporal_url, postgresql_url]
        process = await asyncio.to_thread(
            subprocess.run, [*command, *arguments], capture_output=True, text=True, env=os.environ
        )
        await check_engines(server, source, ids)
        if process.returncode == 0:
            break
        assert process.returncode == -9, process.stderr
    else:
        raise AssertionError("the runs were never moved")
    assert point >= 3
    for id in ids:
        assert await answer_all(server, id) == RESULT
    check_steps(effects, ids, local)


async def check_engines(server: Api, source: Path, ids: list[str]) -> None:
    """Check that no run is executed by both engines."""
    with closing(SqliteStore(source)) as store:
        for id in ids:
            row = store.run(id)
            assert row is not None
            is_in_temporal = any(run.run_id == id for run in (await server.runs()).runs)
            assert row.ended is not None or not is_in_temporal
