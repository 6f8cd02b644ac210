"""A run stays with the build of the workers that began it until it continues in a new history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest

from engine.temporal.api_servers import open_body_worker
from engine.temporal.temporal_runs import DEADLINE_S, TemporalRun
from engine.temporal.test_killed_workers import PROJECT, open_cluster, read_marks, running_workers
from nerve import Session, WorkflowContext
from nerve.engine.temporal.client import connect_client
from nerve.engine.temporal.inspection import inspect_cluster
from nerve.engine.temporal.worker_builds import compute_build_id, deployment_name, describe_deployment
from nerve.project.engine_url import parse_engine_url

if TYPE_CHECKING:
    from temporalio.client import Client

WAKE_INTERVAL_S = 1.0

CHANGED_ENGINE = """
import nerve.engine.temporal.outbox

# Another order of commands than before: rows are written on their own, not with the next leaf.
nerve.engine.temporal.outbox.MAX_CARRIED_ROWS = 0


async def added(ctx):
    return "new in this build"


def register_all(session):
    register(session)
    Workflow("added", session, added)
"""


def change_engine() -> str:
    """Return the project with another engine and another workflow."""
    project = PROJECT.replace("def register(", "def register_nodes(")
    project += CHANGED_ENGINE.replace("register(session)\n", "register_nodes(session)\n")
    return project.replace("register_all", "register")


async def current_build(client: Client, session: str) -> str:
    deployment = await describe_deployment(client, session)
    assert deployment is not None
    return deployment.worker_deployment_info.routing_config.current_deployment_version.build_id


async def wake_until_continued(run: TemporalRun) -> None:
    """Return when a task of the run, on the old build, has continued it in a history of the new one.

    The server tells tasks of the new build a moment after it was promoted, which can be after the first one.
    """
    deadline = time.monotonic() + DEADLINE_S
    while await run.count_histories() < 2:
        assert time.monotonic() < deadline
        assert await run.command("signal", label="wake") == 0
        await asyncio.sleep(WAKE_INTERVAL_S)


def test_a_build_is_the_engine_and_the_workflow_functions() -> None:
    def make_session(is_changed: bool) -> Session:
        session = Session("team")
        session.node(lambda context: is_changed, id="leaf")

        async def flow(ctx: WorkflowContext) -> None:
            await ctx.run("leaf")

        async def other(ctx: WorkflowContext) -> None:
            await ctx.run("leaf", 2)

        session.workflow(other if is_changed else flow, id="flow")
        return session

    builds = [compute_build_id(make_session(is_changed)) for is_changed in (False, False, True)]
    assert builds[0] == builds[1] != builds[2]
    assert deployment_name("team") == "nerve-team"


@pytest.mark.full
async def test_open_runs_go_over_to_a_new_build(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies --promote --leaves bash") as [
            old
        ]:
            first_build = await current_build(runs.client, "default")
            run = await runs.start("steps", 3)
            await run.next_wait()
            (tmp_path / "project.py").write_text(change_engine())
            with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies --promote --leaves bash"):
                second_build = await current_build(runs.client, "default")
                assert second_build != first_build
                await wake_until_continued(run)
                old.kill()
                await run.command("answer", value="yes")
                assert await run.wait() == [[0, 1, 2], "yes"]
            # A restarted worker of the old build does not get new runs.
            (tmp_path / "project.py").write_text(PROJECT)
            old.start()
            old.wait_until_ready()
            assert await current_build(runs.client, "default") == second_build
    assert [len(times) for times in read_marks(tmp_path).values()] == [1, 1, 1]


async def test_a_new_build_gets_new_runs_only_when_it_is_promoted(
    temporal_url: str, postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect_client(parse_engine_url(temporal_url))

    @asynccontextmanager
    async def open_build(build_id: str, is_promoted: bool) -> AsyncIterator[None]:
        async with open_body_worker(
            temporal_url, postgresql_url, lambda session: None, build_id, is_promoted=is_promoted
        ):
            yield

    async with open_build("one", is_promoted=False):
        assert await current_build(client, "default") == "one"
        async with open_build("two", is_promoted=False):
            assert await current_build(client, "default") == "one"
        assert [record.getMessage() for record in caplog.records] == [
            "This worker is of build two. It gets no new runs, because they go to build one:"
            " start it with --promote."
        ]
        async with open_build("two", is_promoted=True):
            assert await current_build(client, "default") == "two"
    # A restarted worker of the old build does not take them back.
    async with open_build("one", is_promoted=True):
        assert await current_build(client, "default") == "two"


async def test_a_build_that_gets_all_new_runs_and_has_no_workers_is_reported(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async def wait_for_report(missing_build: str | None) -> None:
        """Wait until the cluster reports the worker, some time after its start, and the build."""
        async with asyncio.timeout(60):
            while True:
                [report] = await inspect_cluster(parse_engine_url(temporal_url), ["default"], [])
                if (report.body_workers, report.missing_build) == (1, missing_build):
                    return
                await asyncio.sleep(0.1)

    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies"):
            await wait_for_report(None)
            request = SetWorkerDeploymentCurrentVersionRequest(
                namespace=runs.client.namespace,
                deployment_name=deployment_name("default"),
                build_id="without-workers",
                ignore_missing_task_queues=True,
                allow_no_pollers=True,
            )
            await runs.client.workflow_service.set_worker_deployment_current_version(request)
            await wait_for_report("without-workers")


@pytest.mark.full
async def test_workers_of_two_builds_work_side_by_side(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    options = "--bodies --promote --leaves bash"
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in old, new:
        folder.mkdir()
    async with open_cluster(old, temporal_url, postgresql_url) as runs:
        with running_workers(old, temporal_url, postgresql_url, options):
            begun_by_old = [await runs.start("steps", 2) for _ in range(3)]
            for run in begun_by_old:
                await run.next_wait()
            (new / "project.py").write_text(change_engine())
            (new / "file.yaml").write_text((old / "file.yaml").read_text())
            with running_workers(new, temporal_url, postgresql_url, options):
                begun_by_new = [await runs.start("steps", 2) for _ in range(3)]
                for run in [*begun_by_old, *begun_by_new]:
                    await run.next_wait()
                    await run.command("answer", value="yes")
                    assert await run.wait() == [[0, 1], "yes"]
    # A step goes to a worker of any build, once.
    marks = [*read_marks(old).items(), *(read_marks(new).items() if (new / "marks").exists() else [])]
    assert sorted(path for path, _ in marks) == sorted(
        f"{run.run_id}/mark{suffix}" for run in [*begun_by_old, *begun_by_new] for suffix in ("", "[2]")
    )
    assert {len(times) for _, times in marks} == {1}
