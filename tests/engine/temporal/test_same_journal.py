"""Random workflows leave the same journal in Temporal as on the local engine."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine.programs import BLIND, World, build, programs
from engine.temporal.temporal_runs import open_runs
from nerve import Session, WorkflowRun
from nerve.engine.temporal.messages import COMMAND_UPDATE, RunCommand
from nerve.errors import NerveError
from nerve.store.memory import MemoryStore
from nerve.store.port import Store, WaitRow
from spec.durable import flows as specs
from spec.durable import world as spec_worlds

RUN_ID = "0a5f6d6e-0000-4000-8000-{:012d}"
KINDS = tuple(kind for kind in BLIND if kind not in ("clock", "start"))
"""Without the clock and detached runs; the outcomes of the others do not depend on time."""
EXAMPLE_TIMEOUT_S = 60
DELAYS = st.lists(st.integers(0, 12), min_size=1, max_size=5)
# An example takes seconds, so a failure is shown as it was found.
PHASES = (Phase.explicit, Phase.generate)
QUICK = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
FULL = settings(QUICK, max_examples=150)
UNEQUAL_FIELDS = frozenset(
    {"seed", "duration_s", "duration_ms", "until", "deadline", "created_at", "message", "thread"}
)
"""Times, numbers of events, and threads, which the provider numbers in the order in which agents begin: two
runs on the same engine differ in them."""

CALL_NUMBER = re.compile(r"(?<=\w)\[\d+\]")

MakeSession = Callable[[], Session]
Branches = dict[str, list[tuple[str, Any]]]
Command = Callable[..., Awaitable[Any]]


async def answer_waits(session: Session, store: Store, ending: asyncio.Future[Any], command: Command) -> None:
    """Send every answer, message and signal that a run waits for, until the run has ended."""
    handled: set[tuple[str, str]] = set()
    while not ending.done():
        for row in store.runs():
            for wait in store.waits_of_run(row.run):
                if wait.kind in ("gate", "message") and (row.run, wait.path) not in handled:
                    handled.add((row.run, wait.path))
                    await handle_wait(wait, command)
            for name in spec_worlds.wanted(store.events(row.run)):
                if (row.run, name) not in handled:
                    handled.add((row.run, name))
                    await session.signal(name, key=row.run, value=name)
        await asyncio.sleep(0.005)


async def handle_wait(wait: WaitRow, command: Command) -> None:
    if wait.kind == "gate":
        await command(wait.run, "answer", gate=wait.path, value="yes")
    else:
        await command(wait.run, "send", channel="mail", value="a letter")


async def run_locally(session: Session, run_id: str) -> tuple[Any, Store]:
    workflow = session.get_workflow("main")
    assert workflow is not None
    run = WorkflowRun(workflow, 1, run_id=run_id)
    await run.start()

    async def command(id: str, verb: str, **arguments: Any) -> None:
        other = session.get_workflow_run(id)
        assert other is not None
        if verb == "answer":
            await other.answer(arguments["value"], arguments["gate"])
        else:
            await other.send(**arguments)

    ending = asyncio.ensure_future(outcome_of(run.wait()))
    await answer_waits(session, session.engine.store, ending, command)
    return ending.result(), session.engine.store


async def run_in_temporal(url: str, session: Session, run_id: str) -> tuple[Any, Store]:
    async with open_runs(url, session) as runs:
        run = await runs.start("main", 1, run_id=run_id)

        async def command(id: str, verb: str, **arguments: Any) -> None:
            update = RunCommand(verb, id, arguments).to_data()
            await run.handle.execute_update(COMMAND_UPDATE, update)

        ending = asyncio.ensure_future(outcome_of(run.wait()))
        await answer_waits(session, runs.store, ending, command)
        return ending.result(), runs.store


async def outcome_of(waiting: Awaitable[Any]) -> Any:
    try:
        return await waiting
    except NerveError as error:
        return str(error).replace("\n", " ")


def branches_of(store: Store) -> Branches:
    """Return the events of all runs by the place at which they happened: only there, their order is fixed."""
    branches: Branches = defaultdict(list)
    for row in store.runs():
        for event in store.events(row.run):
            data = without_unequal(json.loads(event.data))
            item = f"#{data['index']}" if event.type in ("map_item_start", "map_item_complete") else ""
            branches[f"{row.run}{event.path}{item}"].append((str(event.type), data))
    return branches


def without_unequal(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_unequal(item) for name, item in value.items() if name not in UNEQUAL_FIELDS}
    return [without_unequal(item) for item in value] if isinstance(value, list) else value


def without_numbers(value: Any) -> Any:
    """Return a value in which calls of the same name have the same path.

    Functions number their calls in the order in which they make them, which depends on time in branches.
    """
    return json.loads(CALL_NUMBER.sub("", json.dumps(value, sort_keys=True)))


def calls_of(branches: Branches) -> dict[str, list[str]]:
    """Return what happened at the calls of each name, in any order of the calls."""
    calls: dict[str, list[str]] = defaultdict(list)
    for place, events in branches.items():
        calls[without_numbers(place)].append(json.dumps(without_numbers(events)))
    return {place: sorted(events) for place, events in calls.items()}


async def compare_engines(
    url: str, make_session: MakeSession, run_id: str, normalize: Callable[[Branches], Any]
) -> None:
    async with make_session() as session:
        local_result, local_store = await run_locally(session, run_id)
        local = normalize(branches_of(local_store))
    result, store = await run_in_temporal(url, make_session(), run_id)
    found = normalize(branches_of(store))
    different = [place for place in local if local[place] != found.get(place)]
    assert {place: found.get(place) for place in different} == {place: local[place] for place in different}
    assert found.keys() == local.keys()
    assert without_numbers(result) == without_numbers(local_result)


numbers = count()


@pytest.fixture
def compare(temporal_url: str) -> Callable[..., None]:
    def check(make: Callable[[str], Session], normalize: Callable[[Branches], Any]) -> None:
        number = next(numbers)

        async def check_within_time() -> None:
            async with asyncio.timeout(EXAMPLE_TIMEOUT_S):
                run_id = RUN_ID.format(number)
                await compare_engines(temporal_url, lambda: make(f"law-{number}"), run_id, normalize)

        asyncio.run(check_within_time())

    return check


def check_program(compare: Any, program: Any, delays: list[int]) -> None:
    compare(lambda name: build(program, World(delays), MemoryStore(), name=name), calls_of)


def check_spec(compare: Any, data: Any, delays: list[int], project: Path) -> None:
    def make(name: str) -> Session:
        world = spec_worlds.World(delays)
        session = spec_worlds.session_on(MemoryStore(), world, project, name)
        session.load(json.dumps(data), "json")
        return session

    (project / "there.txt").write_text("x")
    compare(make, dict)


@QUICK
@given(program=programs(KINDS), delays=DELAYS)
def test_workflow_functions_leave_the_same_journal(compare: Any, program: Any, delays: list[int]) -> None:
    check_program(compare, program, delays)


@QUICK
@given(data=specs.flows(), delays=DELAYS)
def test_workflow_files_leave_the_same_journal(
    compare: Any, tmp_path_factory: pytest.TempPathFactory, data: Any, delays: list[int]
) -> None:
    check_spec(compare, data, delays, tmp_path_factory.mktemp("project"))


@pytest.mark.full
@FULL
@given(program=programs(KINDS), delays=DELAYS)
def test_many_workflow_functions_leave_the_same_journal(
    compare: Any, program: Any, delays: list[int]
) -> None:
    check_program(compare, program, delays)


@pytest.mark.full
@FULL
@given(data=specs.flows(), delays=DELAYS)
def test_many_workflow_files_leave_the_same_journal(
    compare: Any, tmp_path_factory: pytest.TempPathFactory, data: Any, delays: list[int]
) -> None:
    check_spec(compare, data, delays, tmp_path_factory.mktemp("project"))
