"""Under random schedules of faults nothing is lost, executed again or answered twice."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from faults import flows
from faults.clients import POLL_S, Clients
from faults.invariants import (
    Disturbance,
    Execution,
    find_late_rows,
    find_repeated_effects,
    find_violations,
    is_excused,
    read_executions,
)
from faults.orders import OpenRuns, place_order
from faults.schedule import Effect, Fault, draw_schedule, play_schedule
from faults.worlds import SECONDS, World, create_owners, create_temporal_workers
from nerve import Session
from nerve.store.postgres import PostgresStore
from postgresql_server import PostgresqlServer
from temporal_server import TemporalServer

OWNER_SEEDS = 75
TEMPORAL_SEEDS = 150
STEPS_BEFORE_GATE = "/first", "/left", "/right"
OPEN_RUNS = 200
STARTS_WITHIN_S = 30.0
KILLED_FOR_S = 300.0
KILL_INTERVAL_S = 5


def test_a_seed_gives_the_same_faults_and_those_of_one_target_do_not_overlap() -> None:
    nothing = Effect(lambda: None, lambda: None)
    targets = {name: {"kill": nothing, "pause": nothing} for name in "abc"}
    drawn = [draw_schedule(seed, targets, SECONDS) for seed in range(100)]
    assert drawn == [draw_schedule(seed, targets, SECONDS) for seed in range(100)]
    assert {(fault.target, fault.name) for faults in drawn for fault in faults} == {
        (target, name) for target in targets for name in ("kill", "pause")
    }
    for faults in drawn:
        for target in targets:
            own = [fault for fault in faults if fault.target == target]
            assert all(a.at + a.seconds < b.at for a, b in itertools.pairwise(own))


def test_faults_begin_and_end_in_the_order_of_their_times() -> None:
    played: list[str] = []
    targets = {
        name: {
            "kill": Effect(lambda name=name: played.append(name), lambda name=name: played.append(f"-{name}"))
        }
        for name in "ab"
    }
    [a], [b] = (
        [fault for fault in draw_schedule(1, targets, 0.1) if fault.target == name][:1] for name in "ab"
    )
    faults = [b._replace(at=0.02, seconds=0.05), a._replace(at=0.01, seconds=0.02)]
    ended = play_schedule(faults, targets, list)
    assert played == ["a", "b", "-a", "-b"]
    assert [fault.target for fault in ended] == ["a", "b"]
    assert all(fault.began < fault.ended for fault in ended)


async def test_a_loss_a_second_answer_and_a_repeated_step_are_found(
    tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = tmp_path / "executed"
    monkeypatch.setenv("NERVE_TEST_EXECUTED", str(executed))
    clients = Clients([], executed)
    async with Session(store=postgresql_url) as session:
        flows.register(session)
        run = await session.start("order", 0)
        gate = await run.next_gate()
        await run.answer("yes")
        assert await run.wait() == flows.result_of("yes")
        waiting = await session.start("order", 1)
        await waiting.next_gate()
    clients.acked.starts += [run.run_id, waiting.run_id]
    clients.acked.answers.append({"gate_id": gate.gate_id, "answer": "yes"})

    def find() -> list[str]:
        return find_violations(postgresql_url, clients, tmp_path, executed)

    expected = [f"{waiting.run_id} is waiting"]
    assert find() == expected
    clients.acked.starts.append("lost")
    clients.acked.answers.append({"gate_id": gate.gate_id, "answer": "no"})
    clients.acked.seen.append((run.run_id, 1000))
    with executed.open("a") as file:
        # By the process that has executed it the first time, too.
        file.write(f"{run.run_id} /first test {time.time()}\n")
    (tmp_path / "log").write_text(postgresql_url)
    found = find()
    assert found.pop().startswith(f"step /first of {run.run_id} ran again in test, ")
    assert found == [
        "a secret stands in log",
        "start of lost is lost",
        f"{gate.gate_id} has another answer than was acknowledged",
        f"event 1000 of {run.run_id} was seen and is lost",
        *expected,
    ]


def test_only_a_program_that_was_cut_off_before_a_completion_may_begin_the_step_late() -> None:
    disturbed = [Disturbance("a", 10.0, 20.0)]

    def is_found(program: str, completed_at: float, begun_at: float) -> bool:
        return not is_excused(Execution("r", "/first", program, begun_at), completed_at, disturbed)

    assert not is_found("a", 15.0, 20.5)
    assert is_found("b", 15.0, 20.5)
    assert is_found("a", 9.0, 20.5)
    assert is_found("a", 15.0, 30.0)


def test_rows_of_an_attempt_after_those_of_a_later_one_are_found(postgresql_url: str) -> None:
    PostgresStore(postgresql_url).close()

    def add_row(source: str, seq: int) -> None:
        with psycopg.connect(postgresql_url) as db:
            db.execute("insert into nerve.event_sources values ('r', %s, %s, %s)", (source, seq, seq))

    for seq, source in enumerate(["", "/a#1.1", "/a#1.2", "/b#1.1", "/a#1.10", "/a#7.1", ""], 1):
        add_row(source, seq)
    assert list(find_late_rows(postgresql_url)) == []
    add_row("/a#1.2", 8)
    assert list(find_late_rows(postgresql_url)) == [
        "rows of an earlier attempt at /a of r follow those of a later one"
    ]


def test_a_step_with_an_effect_is_executed_once() -> None:
    executions = [Execution("r", path, "a", 1.0) for path in ("/first", "/first", "/charge")]
    assert list(find_repeated_effects(executions)) == []
    again = Execution("r", "/charge", "b", 2.0)
    assert list(find_repeated_effects([*executions, again])) == ["step /charge of r was executed 2 times"]


def play(world: World, faults: list[Fault], may_begin: threading.Event | None = None) -> list[str]:
    """Play a schedule while clients place orders, and return what is then not as it must be."""
    for program in world.programs:
        program.start()
    thread = threading.Thread(target=world.place_orders)
    thread.start()
    while may_begin is not None and thread.is_alive() and not may_begin.wait(0.1):
        world.keep_running()
    played = play_schedule(faults, world.targets, world.keep_running)
    while thread.is_alive():  # until all orders are completed, or the patience of the clients has ended
        world.keep_running()
        thread.join(0.1)
    world.end()
    return world.find_violations(played)


def check_schedule(world: World, faults: list[Fault], may_begin: threading.Event | None = None) -> None:
    violations = play(world, faults, may_begin)
    assert not violations, "\n".join(map(str, [*violations, *faults]))


def list_seeds(count: int, quick: int) -> list[object]:
    """Return the seeds of schedules, of which the first ones are played by `make test`."""
    return [pytest.param(seed, marks=pytest.mark.full if seed >= quick else ()) for seed in range(count)]


@pytest.mark.parametrize("seed", list_seeds(OWNER_SEEDS, quick=0))
def test_two_servers_with_one_database(
    tmp_path: Path, unreliable_postgresql: PostgresqlServer, seed: int
) -> None:
    with create_owners(tmp_path, seed, unreliable_postgresql) as world:
        check_schedule(world, draw_schedule(seed, world.targets, SECONDS))


@pytest.mark.parametrize("seed", list_seeds(TEMPORAL_SEEDS, quick=1))
def test_workers_of_temporal(
    tmp_path: Path, unreliable_postgresql: PostgresqlServer, unreliable_temporal: TemporalServer, seed: int
) -> None:
    with create_temporal_workers(tmp_path, seed, unreliable_postgresql, unreliable_temporal) as world:
        check_schedule(world, draw_schedule(seed, world.targets, SECONDS))


async def place_order_until_steps_repeat(clients: Clients, number: int) -> None:
    """Place an order whose answers are lost, and wait until the leaf workers have repeated its steps."""
    try:
        await place_order(clients, number)
    finally:
        [run] = clients.acked.starts
        while min(count_executions(clients.executed, run)) < 2:
            if time.monotonic() > clients.deadline:
                raise TimeoutError(f"the steps of run {run} were not repeated")
            await asyncio.sleep(POLL_S)


def count_executions(executed: Path, run: str) -> list[int]:
    """Return how often each of the steps of an order before its gate has begun."""
    counts = Counter(each.path for each in read_executions(executed) if each.run == run)
    return [counts[path] for path in STEPS_BEFORE_GATE]


def test_workers_that_repeat_steps_and_servers_that_lose_answers_are_reported(
    tmp_path: Path, unreliable_postgresql: PostgresqlServer, unreliable_temporal: TemporalServer
) -> None:
    mistakes = {"leaves": "repeat", "server": "lose"}
    servers = unreliable_postgresql, unreliable_temporal
    with create_temporal_workers(tmp_path, 0, *servers, mistakes) as world:
        world.programs = world.programs[::2]  # one of each kind
        world.orders, world.seconds = [place_order_until_steps_repeat], 0.0
        violations = "\n".join(play(world, []))
    [run] = world.clients.acked.starts
    for path in STEPS_BEFORE_GATE:
        assert f"step {path} of {run} ran again in leaves-" in violations
    [*_, answer] = world.clients.acked.answers
    assert f"the answer of {answer['gate_id']} is lost" in violations
    assert "of two answers, " in violations


@pytest.mark.full
def test_200_open_runs_while_one_of_four_workers_is_killed_every_five_seconds(
    tmp_path: Path, unreliable_postgresql: PostgresqlServer, unreliable_temporal: TemporalServer
) -> None:
    with create_temporal_workers(tmp_path, 0, unreliable_postgresql, unreliable_temporal) as world:
        names = [name for name in world.targets if name.startswith(("bodies", "leaves"))]
        assert len(names) == 4
        runs = OpenRuns(OPEN_RUNS, KILLED_FOR_S, seed=0)
        world.orders, world.seconds = [runs.place] * OPEN_RUNS, STARTS_WITHIN_S
        world.patience = 4 * KILLED_FOR_S
        world.clients.poll_s, world.clients.request_timeout_s = 2.0, 30.0
        times = range(0, int(KILLED_FOR_S), KILL_INTERVAL_S)
        kills = [Fault(at, names[number % 4], "kill", 0.1) for number, at in enumerate(times)]
        check_schedule(world, kills, runs.are_open)
        # All were open at the same time, while all kills came.
        assert len(runs.started) == len(runs.ended) == OPEN_RUNS
        assert max(runs.started) + KILLED_FOR_S <= min(runs.ended)
