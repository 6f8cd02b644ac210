"""Replay of defined workflows: after a crash at any commit, the result is the same."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve.store.sqlite import SqliteStore
from spec.durable.flows import flows
from spec.durable.world import Filmed, World, finish, session_on, settled

DELAYS = st.lists(st.integers(0, 12), min_size=1, max_size=4)
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FULL = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))


async def check_every_take(data: dict[str, Any], delays: list[int], folder: Path, step: int) -> None:
    (folder / "there.txt").write_text("x")
    store, world = Filmed(folder), World(delays)
    async with session_on(store, world, folder) as session:
        session.load(json.dumps(data), "json")
        run = await session.start("main", 1, label="feature")
        ended = await finish(session, run)
        rows = store.events(run.run_id)
    for number in sorted({*range(0, len(store.takes), step), len(store.takes) - 1}):
        await check_take(store.takes[number], delays[::-1], folder, run.run_id, rows, ended)


async def check_take(
    take: Path, delays: list[int], folder: Path, run_id: str, rows: list[Any], ended: tuple[str, Any]
) -> None:
    store, world = SqliteStore(take), World(delays)
    before = {row.run: store.events(row.run) for row in store.runs()}
    async with session_on(store, world, folder) as session:
        await session.recover()
        run = session.get_workflow_run(run_id)
        if not before:
            return
        assert run is not None
        assert but_usage(await finish(session, run)) == but_usage(ended)
        after = {row.run: store.events(row.run) for row in store.runs()}
    for id, past in before.items():
        assert after[id][: len(past)] == past
        assert [row.seq for row in after[id]] == list(range(1, len(after[id]) + 1))
        over = settled(past)
        assert not over & {path for of, path in world.done if of == id}, "a settled leaf ran again"
        said = {row.path for row in after[id][len(past) :] if row.type == "output_chunk"}
        assert not over & said, "a settled prompt was asked again"
        assert not [row for row in after[id] if row.type == "workflow_held"]


def but_usage(value: Any) -> Any:
    """The result of a run without its usage, because an interrupted turn counts as well."""
    if isinstance(value, dict):
        return {name: but_usage(part) for name, part in value.items() if name != "usage"}
    return list(map(but_usage, value)) if isinstance(value, list | tuple) else value


def check(data: dict[str, Any], delays: list[int], step: int) -> None:
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        asyncio.run(check_every_take(data, delays, Path(folder), step))


ROOM = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Memory where there is some: what is tested here is no disk."""


@pytest.mark.requirement("S4-01")
@QUICK
@given(flows(), DELAYS)
def test_a_defined_workflow_that_crashes_after_any_commit_has_the_same_result(
    data: dict[str, Any], delays: list[int]
) -> None:
    check(data, delays, step=3)


@pytest.mark.full
@FULL
@given(flows(), DELAYS)
def test_many_defined_workflows_that_crash_after_every_commit_have_the_same_result(
    data: dict[str, Any], delays: list[int]
) -> None:
    check(data, delays, step=1)
