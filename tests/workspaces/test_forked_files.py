"""Forks and retries restore the files of a workspace as they were at their step."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nerve import BashNode, Graph, MapNode, Session, WorkflowContext
from nerve.errors import WorkflowFailed
from nerve.workspaces.records import WorkspaceFiles
from spec.support import loaded
from workspaces.repositories import make_repository, read_files

NAMES = ("a.txt", "b.txt", "dir/c.txt", "ü ß.txt")


def random_command(chance: random.Random) -> str:
    """A command that writes, appends to, removes or commits files at random."""
    parts = ["mkdir -p dir"]
    for _ in range(chance.randint(1, 3)):
        name, number = chance.choice(NAMES), chance.randrange(1000)
        parts.append(
            chance.choice(
                [
                    f"echo {number} > '{name}'",
                    f"echo {number} >> '{name}'",
                    f"rm -f '{name}'",
                    f"git add -A && git -c user.name=A -c user.email=a@b commit -qm {number} --allow-empty",
                    f"echo {number} > '{name}' && git add '{name}'",
                ]
            )
        )
    return " && ".join(parts) + " && git status --short > ../seen-$NERVE_RUN_ID"


def flow(commands: list[str]) -> dict[str, Any]:
    steps = [{"kind": "bash", "id": f"s{n}", "command": command} for n, command in enumerate(commands)]
    return {"kind": "sequence", "workspace": "worktree", "steps": steps}


def snapshot(folder: Path) -> dict[str, str]:
    return read_files(folder) if folder.is_dir() else {}


OWNER = '$(basename "$(dirname "$PWD")")'
"""The run that has the workspace which a command works in."""


def call_some(session: Session, body: dict[str, Any], chance: random.Random) -> None:
    """Let some steps of a body be calls of workflows that do the same."""
    for number, step in enumerate(body["steps"]):
        if chance.random() < 0.5:
            session.load(json.dumps({"name": f"child-{number}", "body": {**step, "id": "go"}}), "json")
            body["steps"][number] = {"kind": "workflow", "id": step["id"], "workflow": f"child-{number}"}


async def check_fork(project: Path, seed: int, *, has_calls: bool = False) -> None:
    """Run random steps, fork at one of them, and compare the files before that step."""
    chance = random.Random(seed)
    log = project.parent / f"log-{seed}"
    log.mkdir()
    commands = [
        f"find . -type f -not -path ./.git -print0 | sort -z | xargs -0 sha256sum"
        f" > {log}/{OWNER}-{n} && {random_command(chance)}"
        for n in range(chance.randint(2, 4))
    ]
    session = Session(project=project)
    body = flow(commands)
    if has_calls:
        call_some(session, body, chance)
    run = await session.start(loaded(session, body).name)
    await run.wait()
    at = chance.randrange(len(commands))
    fork = await session.fork(run.run_id, f"/s{at}")
    await fork.wait()
    for number in range(at, len(commands)):
        before, again = (log / f"{each.run_id}-{number}" for each in (run, fork))
        assert before.read_bytes() == again.read_bytes(), (
            f"seed {seed}: the files before step {number} differ"
        )
    assert not (log / f"{fork.run_id}-{at - 1}").exists()
    files = WorkspaceFiles(project)
    assert snapshot(files.directory(run.run_id, "run")) == snapshot(files.directory(fork.run_id, "run"))
    await session.close()


@pytest.mark.parametrize("seed", range(4))
async def test_a_fork_restores_the_files_before_its_step(tmp_path: Path, seed: int) -> None:
    await check_fork(make_repository(tmp_path / "project"), seed)


@pytest.mark.parametrize("seed", range(2))
async def test_a_fork_restores_the_files_before_a_step_or_a_called_workflow(
    tmp_path: Path, seed: int
) -> None:
    await check_fork(make_repository(tmp_path / "project"), seed, has_calls=True)


@pytest.mark.full
async def test_forks_restore_the_files_of_called_workflows_in_100_random_cases(tmp_path: Path) -> None:
    for seed in range(100):
        await check_fork(make_repository(tmp_path / f"project-{seed}"), seed, has_calls=True)


@pytest.mark.full
async def test_forks_restore_the_files_in_200_random_cases(tmp_path: Path) -> None:
    for seed in range(200):
        await check_fork(make_repository(tmp_path / f"project-{seed}"), seed)


async def test_a_retry_restores_the_files_before_the_failed_step(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    commands = ["echo 1 > a.txt", f"cat a.txt && echo 2 >> a.txt && test -e {tmp_path}/fixed", "cat a.txt"]
    session = Session(project=project)
    run = await session.start(loaded(session, flow(commands)).name)
    with pytest.raises(WorkflowFailed):
        await run.wait()
    (tmp_path / "fixed").touch()
    retried = await session.retry(run.run_id)
    assert await retried.wait() == "1\n2\n"


async def test_steps_after_the_fork_run_again_although_their_input_is_the_same(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    commands = [f"cat {tmp_path}/source > a.txt", "true", "cp a.txt b.txt"]
    (tmp_path / "source").write_text("first")
    session = Session(project=project)
    run = await session.start(loaded(session, flow(commands)).name)
    await run.wait()
    (tmp_path / "source").write_text("second")
    fork = await session.fork(run.run_id, "/s0")
    await fork.wait()
    folder = WorkspaceFiles(project).directory(fork.run_id, "run")
    assert (folder / "b.txt").read_text() == "second"


async def test_a_fork_has_the_files_of_a_graph_before_its_step(tmp_path: Path) -> None:
    session = Session(project=make_repository(tmp_path / "project"))
    Graph("make", session).chain(
        BashNode("one", None, "echo 1 > a.txt"), BashNode("two", None, "echo 2 >> a.txt")
    )
    BashNode("read", session, "cat a.txt")

    @session.workflow
    async def main(ctx: WorkflowContext) -> Any:
        async with ctx.workspace(merge="none"):
            await ctx.run_graph("make")
            return (await ctx.run("read")).output

    run = await session.start("main")
    assert await run.wait() == "1\n2\n"
    assert await (await session.fork(run.run_id, "/read")).wait() == "1\n2\n"


async def test_a_fork_has_the_files_that_were_merged_into_its_workspace(tmp_path: Path) -> None:
    inner = {"kind": "bash", "id": "inner", "command": "echo 1 > a.txt", "workspace": "worktree"}
    read = {"kind": "bash", "id": "read", "command": "cat a.txt"}
    session = Session(project=make_repository(tmp_path / "project"))
    body = {"kind": "sequence", "workspace": "worktree", "steps": [inner, read]}
    run = await session.start(loaded(session, body).name)
    assert await run.wait() == "1\n"
    assert await (await session.fork(run.run_id, "/read")).wait() == "1\n"


async def test_a_fork_has_the_files_of_a_map_before_its_step(tmp_path: Path) -> None:
    session = Session(project=make_repository(tmp_path / "project"))

    @session.node
    async def write(context: Any) -> None:
        (context.resolve_directory(".") / f"{context.input}.txt").write_text("x")

    MapNode("each", session, session.nodes["write"], max_parallel=1)
    BashNode("read", session, "ls *.txt")

    @session.workflow
    async def main(ctx: WorkflowContext) -> Any:
        async with ctx.workspace(merge="none"):
            await ctx.run("each", ["1", "2"])
            return (await ctx.run("read")).output

    run = await session.start("main")
    assert await run.wait() == "1.txt\n2.txt\n"
    assert await (await session.fork(run.run_id, "/read")).wait() == "1.txt\n2.txt\n"
