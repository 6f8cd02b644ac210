"""Workers are killed while runs are in progress: no settled step runs again, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from engine.temporal.temporal_runs import TemporalRuns, connect
from engine.temporal.worker_processes import WorkerProcess
from nerve import Session
from nerve.cli.session_setup import register_python_file
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection

PROJECT = '''
import time

from nerve import FunctionNode, Workflow


def mark(context):
    """Note the begin of an execution in a file of the project."""
    with open("marks", "a") as marks:
        marks.write(f"{context.run_id}{context.path} {time.time()}\\n")
    time.sleep(0.1)
    return context.input


async def steps(ctx):
    outputs = [(await ctx.run("mark", number)).output for number in range(ctx.input)]
    answer = await ctx.gate("Done?", choices=["yes", "no"])
    await ctx.sleep(0.5)
    return [outputs, answer]


def register(session):
    FunctionNode("mark", session, mark)
    Workflow("steps", session, steps)
'''

YAML = """
name: file
body:
  kind: sequence
  steps:
    - {kind: bash, id: build, command: "echo built >> built; cat built"}
    - {kind: gate, id: ship, prompt: "Ship it?", choices: [approve, reject]}
    - {kind: transform, id: end, expression: "steps.build.output + steps.ship.output"}
"""


@asynccontextmanager
async def open_cluster(
    folder: Path, temporal_url: str, postgresql_url: str, project: str = PROJECT
) -> AsyncIterator[TemporalRuns]:
    """Yield runs of a project whose workers are processes, with their rows in PostgreSQL."""
    (folder / "project.py").write_text(project)
    (folder / "file.yaml").write_text(YAML)
    session = Session("default", project=folder)
    register_python_file(session, folder / "project.py")
    session.load(folder / "file.yaml")
    with (
        closing(PostgresProjection(postgresql_url, session.name, temporal_url)) as projection,
        closing(PostgresStore(postgresql_url, None)) as store,
    ):
        client = await connect(temporal_url, projection)
        yield TemporalRuns(client, session, projection, store)


@contextlib.contextmanager
def running_workers(
    folder: Path, temporal_url: str, postgresql_url: str, *all_options: str
) -> Iterator[list[WorkerProcess]]:
    with contextlib.ExitStack() as stack:
        files = "--with project.py --with file.yaml"
        workers = [
            stack.enter_context(
                WorkerProcess(folder, temporal_url, postgresql_url, *options.split(), *files.split())
            )
            for options in all_options
        ]
        for worker in workers:
            worker.wait_until_ready()
        yield workers


def read_marks(folder: Path) -> dict[str, list[float]]:
    """Return when each step was begun."""
    marks: dict[str, list[float]] = {}
    for line in (folder / "marks").read_text().splitlines():
        step, _, at = line.partition(" ")
        marks.setdefault(step, []).append(float(at))
    return marks


@pytest.mark.full
async def test_a_run_survives_the_end_of_its_only_workers(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies --leaves bash") as [worker]:
            run, file = await runs.start("steps", 3), await runs.start("file")
            await run.next_wait()
            await file.next_wait()
            worker.kill()
            accepted = asyncio.ensure_future(run.command("answer", value="yes"))
            await asyncio.sleep(0)
            worker.start()
            worker.wait_until_ready()
            await accepted
            await file.command("answer", value="approve")
            assert await run.wait() == [[0, 1, 2], "yes"]
            assert await file.wait() == "built\napprove"
    assert [len(times) for times in read_marks(tmp_path).values()] == [1, 1, 1]


@pytest.mark.full
async def test_settled_steps_do_not_run_again_whichever_worker_is_killed(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    chance = random.Random(7)
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        options = ["--bodies", "--bodies", "--leaves bash", "--leaves bash"]
        with running_workers(tmp_path, temporal_url, postgresql_url, *options) as workers:
            started = [await runs.start("steps", 10) for _ in range(20)]
            was_killed_often = asyncio.Event()

            async def answer(number: int) -> object:
                await started[number].next_wait()
                await was_killed_often.wait()
                await started[number].command("answer", value="yes")
                return await started[number].wait()

            results = asyncio.gather(*(answer(number) for number in range(len(started))))
            kills, deadline = 0, time.monotonic() + 180
            while not results.done() and time.monotonic() < deadline:
                worker = chance.choice(workers)
                worker.kill()
                kills += 1
                worker.start()
                await asyncio.to_thread(worker.wait_until_ready)
                if kills == 5:
                    was_killed_often.set()
                await asyncio.sleep(chance.uniform(0.5, 2))
            was_killed_often.set()
            assert await results == [[[*range(10)], "yes"]] * 20
        marks = read_marks(tmp_path)
        assert len(marks) == 200
        for run in started:
            rows = run.rows
            assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
            assert rows[-1].type == "workflow_completed"
            completed = {row.path: row.at for row in rows if row.type == "node_completed"}
            assert len(completed) == run.types.count("node_completed") == 10
            # An execution that was killed is repeated; one that is settled is not.
            for path, at in completed.items():
                assert max(marks[f"{run.run_id}{path}"]) < at
    assert kills >= 5
