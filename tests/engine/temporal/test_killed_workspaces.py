"""Workers on two hosts with a clone each: one is killed in the middle of a step in a worktree of the run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.temporal.api_servers import open_server, wait_for_end
from engine.temporal.worker_processes import WorkerProcess
from nerve import Session
from nerve.workspaces.records import WorkspaceFiles
from workspaces.repositories import git, make_repository, read_files

HOSTS = ("one", "two")
FLOW = """
name: flow
body:
  kind: sequence
  steps:
    - {kind: bash, id: write, command: "echo 1 > a.txt"}
    - {kind: workflow, workflow: wait}
    - {kind: bash, id: inner, workspace: worktree, command: "cat a.txt > b.txt"}
    - {kind: bash, id: read, command: "cat a.txt b.txt"}
"""
WAIT = """
name: wait
body:
  kind: bash
  id: step
  command: "echo 2 >> a.txt; touch SIGNS/begun; until test -e SIGNS/go; do sleep 0.05; done"
"""


def make_project(folder: Path, signs: Path) -> None:
    (folder / ".nerve").mkdir(parents=True)
    (folder / ".nerve/config.json").write_text(json.dumps({"place": "fresh"}))
    for name, text in {"flow": FLOW, "wait": WAIT}.items():
        (folder / f"{name}.yaml").write_text(text.replace("SIGNS", str(signs)))
    (folder / ".git/info/exclude").write_text(".nerve\n*.yaml\nhome\nworker.log\n")


def register(folder: Path) -> Callable[[Session], None]:
    def load(session: Session) -> None:
        for name in ("wait", "flow"):
            session.load(folder / f"{name}.yaml")

    return load


async def until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.full
async def test_a_run_in_a_fresh_worktree_survives_kill_9_of_the_worker_on_its_host(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    make_repository(tmp_path / "origin")
    (tmp_path / "signs").mkdir()
    for name in (*HOSTS, "server"):
        git(tmp_path, "clone", "--quiet", "origin", name)
        make_project(tmp_path / name, tmp_path / "signs")
    files = ("--with", "wait.yaml", "--with", "flow.yaml")
    with ExitStack() as stack:
        workers = {
            name: WorkerProcess(tmp_path / name, temporal_url, postgresql_url, *options, *files)
            for name, options in {
                "server": ["--bodies"],
                **{host: ["--leaves", "bash", "--host-name", host] for host in HOSTS},
            }.items()
        }
        for worker in workers.values():
            stack.enter_context(worker)
        for worker in workers.values():
            worker.wait_until_ready()
        server = tmp_path / "server"
        async with open_server(temporal_url, postgresql_url, server, register(server)) as api:
            run = await api.start(workflow="flow")
            await until((tmp_path / "signs/begun").exists)
            [host] = [each for each in HOSTS if any(WorkspaceFiles(tmp_path / each).records())]
            workers[host].kill()
            workers[host].start()
            workers[host].wait_until_ready()
            (tmp_path / "signs/go").touch()
            ended = await wait_for_end(api, run.run_id)
            # The step that was interrupted has run again, in the files that it had left.
            assert ended.result == "1\n2\n2\n" * 2
            fork = await api.fork(run=run.run_id, at="/inner")
            assert (await wait_for_end(api, fork.run_id)).result == "1\n2\n2\n" * 2
    records = [(name, each.run) for name in (*HOSTS, "server") for each in workspaces(tmp_path / name)]
    assert sorted(records) == sorted([(host, run.run_id), (host, fork.run_id)])
    worktree = WorkspaceFiles(tmp_path / host).directory(run.run_id, "run")
    assert read_files(worktree).keys() == {"slug.py", "a.txt", "b.txt"}
    assert all("a.txt" not in read_files(tmp_path / name) for name in (*HOSTS, "server"))


def workspaces(project: Path) -> list[object]:
    return list(WorkspaceFiles(project).records())
