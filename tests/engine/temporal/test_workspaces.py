"""Workspaces of runs in Temporal, on workers whose projects are clones of one repository."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import open_servers, wait_for_end
from engine.temporal.memory_projection import MemoryProjection
from engine.temporal.temporal_runs import TemporalRun, TemporalRuns, connect
from nerve import Session, WorkflowContext
from nerve.engine.child_runs import child_id
from nerve.engine.hosted_engines import HostedEngines
from nerve.engine.temporal import run_workflow
from nerve.engine.temporal.body_worker import run_body_worker
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import host_queue, leaf_queue
from nerve.errors import WorkflowFailed
from nerve.store.memory import MemoryStore
from nerve.workspaces.records import WorkspaceFiles
from workspaces.repositories import git, make_repository, read_files

FIVE = "one\ntwo\nthree\nfour\nfive\n"
HOSTS = ("one", "two")


def bash(id: str, command: str, **more: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, **more}


def sequence(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "sequence", "steps": list(steps), **more}


CHILD = sequence(bash("one", "echo 1 > new.txt"), bash("two", "cat new.txt && echo 2 >> new.txt"))
CALL = {"kind": "workflow", "id": "call", "workflow": "child"}
BODIES: dict[str, dict[str, Any]] = {
    "child": CHILD,
    "both": sequence(
        {
            "kind": "parallel",
            "branches": [
                bash("a", "sed -i s/one/ONE/ slug.py", workspace="worktree"),
                bash("b", "sed -i s/five/FIVE/ slug.py", workspace="worktree"),
                bash("c", "sed -i s/three/THREE/ slug.py", workspace="worktree"),
            ],
        },
        bash("read", "cat slug.py"),
    ),
    "asks": sequence(
        bash("write", "echo new > new.txt"),
        {"kind": "gate", "id": "ok", "prompt": "Right?", "choices": ["yes"]},
        bash("read", "cat new.txt"),
        workspace="worktree",
    ),
    "calls": sequence(CALL, bash("read", "cat new.txt"), workspace="worktree"),
    "plain": sequence(bash("write", "echo 1 > a.txt"), CALL, bash("read", "cat a.txt new.txt")),
    "reads": sequence(bash("read", "cat slug.py")),
    "fails": sequence(bash("write", "exit 3", workspace="worktree")),
    "loops": sequence(
        bash("write", "echo 1 > a.txt"),
        {
            "kind": "loop",
            "until": "iteration >= 8",
            "max_iterations": 10,
            "body": bash("add", "wc -l < a.txt; echo x >> a.txt"),
        },
        bash("check", "cat a.txt | wc -l; exit 4"),
        id="work",
        workspace="worktree",
    ),
}


def load_bodies(session: Session) -> None:
    for name, body in BODIES.items():
        session.load(json.dumps({"name": name, "body": body}), "json")


def make_session(project: Path) -> Session:
    session = Session("team", project=project)
    load_bodies(session)

    @session.node
    async def add_line(context: Any) -> str:
        with (context.resolve_directory("") / "lines.txt").open("a") as file:
            file.write(f"{context.input}\n")
        return (context.resolve_directory("") / "lines.txt").read_text()  # type: ignore[no-any-return]

    @session.workflow
    async def counts(ctx: WorkflowContext) -> Any:
        lines = (await ctx.run("add_line", str(ctx.input))).output
        return lines if ctx.input == 3 else ctx.continue_as_new(ctx.input + 1)

    return session


@pytest.fixture
def projects(tmp_path: Path) -> dict[str, Path]:
    """The project on each host."""
    origin = make_repository(tmp_path / "origin")
    for host in HOSTS:
        git(tmp_path, "clone", "--quiet", str(origin), host)
    return {host: tmp_path / host for host in HOSTS}


@asynccontextmanager
async def open_hosts(
    url: str, projects: dict[str, Path], *, is_fresh: bool = False
) -> AsyncIterator[TemporalRuns]:
    projection, session = MemoryProjection(), make_session(projects["one"].parent / "bodies")
    session.use_engine(HostedEngines())
    client = await connect(url, projection)
    workers: dict[str, AsyncExitStack] = {}
    async with run_body_worker(client, session, MemoryStore, projection), AsyncExitStack() as stack:
        for host, project in projects.items():
            own = await connect(url, projection)  # one process has one worker for a queue
            executor = LeafExecutor(
                make_session(project), own, projection, projection.store, host, is_fresh=is_fresh
            )
            queues = [leaf_queue("team"), host_queue("team", host)]
            workers[host] = await stack.enter_async_context(AsyncExitStack())
            await workers[host].enter_async_context(LeafWorker(own, executor, queues).running())
        runs = TemporalRuns(client, session, projection, projection.store)
        runs.stop_worker = lambda host: workers[host].aclose()
        yield runs


def attributes_of(run: TemporalRun, path: str) -> dict[str, Any]:
    [row] = [row for row in run.rows if row.path == path and row.settles]
    return json.loads(row.data)["result"]["attributes"]  # type: ignore[no-any-return]


def left(projects: dict[str, Path]) -> list[tuple[str, str, str]]:
    """Return the workspaces on all hosts: the host, the run and the name of each."""
    return [
        (host, each.run, each.name)
        for host, project in projects.items()
        for each in WorkspaceFiles(project).records()
    ]


async def test_parallel_steps_in_workspaces_run_and_are_merged_on_one_host(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    changed = FIVE.replace("one", "ONE").replace("three", "THREE").replace("five", "FIVE")
    async with open_hosts(temporal_url, projects) as runs:
        run = await runs.start("both")
        assert await run.wait() == changed
        recorded = attributes_of(run, "/parallel/a")
    host = recorded["host"]
    assert recorded["workspace"]["files"] == ["slug.py"]
    assert {name: read_files(project)["slug.py"] for name, project in projects.items()} == {
        name: changed if name == host else FIVE for name in HOSTS
    }
    assert left(projects) == []


async def test_a_gate_shows_the_changes_on_the_host(temporal_url: str, projects: dict[str, Path]) -> None:
    async with open_hosts(temporal_url, projects) as runs:
        run = await runs.start("asks")
        wait = await run.next_wait()
        assert "+new" in (wait.data or "")
        await run.command("answer", value="yes")
        assert await run.wait() == "new\n"
        host = attributes_of(run, "/write")["host"]
    assert left(projects) == [(host, run.run_id, "run")]


@pytest.mark.full
async def test_a_called_workflow_works_in_the_workspace_of_its_caller(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects) as runs:
        run = await runs.start("calls")
        assert await run.wait() == "1\n2\n"
        step = attributes_of(run.family_of(child_id(run.run_id, "/call")), "/two")
        called = attributes_of(run, "/call")["workspace"]
    assert (step["workspace"]["run"], step["workspace"]["after"]) == (run.run_id, called["after"])
    assert left(projects) == [(step["host"], run.run_id, "run")]


async def test_a_workspace_without_work_is_removed_when_its_run_has_failed(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects) as runs:
        run = await runs.start("fails")
        with pytest.raises(WorkflowFailed, match="exit code 3"):
            await run.wait()
    assert left(projects) == []


@pytest.mark.full
async def test_a_workspace_stays_the_same_when_its_run_continues_in_a_new_history(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects) as runs:
        run = await runs.start("loops", history_events=40)
        with pytest.raises(WorkflowFailed, match="exit code 4"):
            await run.wait()
        assert await run.count_histories() > 1
        host = attributes_of(run, "/write")["host"]
    [(where, _, name)] = left(projects)
    assert where == host
    assert (WorkspaceFiles(projects[host]).directory(run.run_id, name) / "a.txt").read_text().count("x") == 8


async def test_a_step_in_a_workspace_of_a_lost_host_fails_on_another_one(
    temporal_url: str, projects: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_workflow, "HOST_TIMEOUT", timedelta(seconds=1))
    async with open_hosts(temporal_url, projects) as runs:
        run = await runs.start("asks")
        await run.next_wait()
        host = attributes_of(run, "/write")["host"]
        await runs.stop_worker(host)
        await run.command("answer", value="yes")
        [hold] = await run.until(lambda: [row for row in run.rows if row.type == "workflow_held"])
        assert json.loads(hold.data)["reason"] == "host_lost"
        await run.command("resume")
        with pytest.raises(WorkflowFailed, match="it was deleted, or it is on another host"):
            await run.wait()
    assert (host, run.run_id, "run") in left(projects)


async def test_a_fresh_run_works_in_a_worktree_of_its_own(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects, is_fresh=True) as runs:
        run = await runs.start("plain", place="fresh")
        assert await run.wait() == "1\n1\n2\n"
        host = attributes_of(run, "/write")["host"]
    assert left(projects) == [(host, run.run_id, "run")]
    assert [read_files(project) for project in projects.values()] == [{"slug.py": FIVE}] * 2
    worktree = WorkspaceFiles(projects[host]).directory(run.run_id, "run")
    assert set(read_files(worktree)) == {"slug.py", "a.txt", "new.txt"}
    assert git(worktree, "branch", "--show-current") == f"nerve/{run.run_id}/run"


@pytest.mark.parametrize("name", ["reads", "fails"])
async def test_the_worktree_of_a_fresh_run_without_work_is_removed(
    temporal_url: str, projects: dict[str, Path], name: str
) -> None:
    async with open_hosts(temporal_url, projects, is_fresh=True) as runs:
        run = await runs.start(name, place="fresh")
        with contextlib.suppress(WorkflowFailed):
            await run.wait()
        assert run.state == {"reads": "completed", "fails": "failed"}[name]
    assert left(projects) == []
    assert [git(project, "branch", "--list", "nerve/*") for project in projects.values()] == ["", ""]


@pytest.mark.full
async def test_a_workspace_of_its_own_takes_the_place_of_a_fresh_worktree(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects, is_fresh=True) as runs:
        run = await runs.start("calls", place="fresh")
        assert await run.wait() == "1\n2\n"
    assert [(owner, name) for _, owner, name in left(projects)] == [(run.run_id, "run")]


@pytest.mark.full
async def test_a_chain_of_fresh_runs_works_in_one_worktree(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects, is_fresh=True) as runs:
        run = await runs.start("counts", 1, place="fresh")
        assert await run.wait() == "1\n2\n3\n"
    [(_, owner, name)] = left(projects)
    assert (owner, name) == (run.run_id, "run")


async def test_a_worker_with_fresh_worktrees_refuses_a_run_without_one(
    temporal_url: str, projects: dict[str, Path]
) -> None:
    async with open_hosts(temporal_url, projects, is_fresh=True) as runs:
        run = await runs.start("plain")
        with pytest.raises(WorkflowFailed, match="--place fresh, but the run has no worktree"):
            await run.wait()
    assert [read_files(project) for project in projects.values()] == [{"slug.py": FIVE}] * 2


@pytest.mark.full
async def test_forks_and_retries_have_the_files_before_their_step(
    temporal_url: str, postgresql_url: str, tmp_path: Path
) -> None:
    project = make_repository(tmp_path / "project")
    async with open_servers(temporal_url, postgresql_url, project, load_bodies) as servers:
        run = await servers[0].start(workflow="calls", wait=True)
        assert run.result == "1\n2\n"
        fork = await servers[1].fork(run=run.run_id, at="/read")
        assert (await wait_for_end(servers[0], fork.run_id)).result == "1\n2\n"
        child = child_id(run.run_id, "/call")
        fork = await servers[1].fork(run=child, at="/two")
        assert (await wait_for_end(servers[0], fork.run_id)).result == "1\n"
    folder = WorkspaceFiles(project).directory(fork.run_id, "caller.run")
    assert (folder / "new.txt").read_text() == "1\n2\n"
