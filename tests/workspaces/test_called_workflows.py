"""A workflow that is called in a workspace works there, as a step does."""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from nerve import Session, WorkflowContext
from nerve.core.nodes.workspace import find_record
from nerve.engine.child_runs import child_id
from nerve.errors import WorkflowFailed
from nerve.workspaces.checkout import Workspaces
from nerve.workspaces.records import WorkspaceFiles
from spec.support import loaded
from workspaces.repositories import git, make_repository, read_files, write

FIVE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def bash(id: str, command: str, **more: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, **more}


def sequence(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "sequence", "steps": list(steps), **more}


def call(workflow: str = "child", **more: Any) -> dict[str, Any]:
    return {"kind": "workflow", "id": "call", "workflow": workflow, **more}


def make_session(project: Path, **children: dict[str, Any]) -> Session:
    session = Session(project=project)
    for name, body in children.items():
        session.load(json.dumps({"name": name, "body": body}), "json")
    return session


async def run(session: Session, body: dict[str, Any]) -> Any:
    started = await session.start(loaded(session, body).name)
    await started.wait()
    return started


def files_of(run: Any, node: str) -> Any:
    [event] = [e for e in run.events if e.event_type == "node_completed" and e.data.get("node_id") == node]
    return event.data["result"]["attributes"]["workspace"]


def child_of(session: Session, run: Any, path: str = "/call") -> Any:
    row = session.engine.store.run(child_id(run.run_id, path))
    assert row is not None
    return session.engine.run_handle(row)


def folder_of(project: Path, run: Any, name: str = "run") -> Path:
    return WorkspaceFiles(project).directory(run.run_id, name)


async def test_a_called_workflow_works_in_the_workspace_of_its_caller(project: Path) -> None:
    session = make_session(project, child=bash("go", "cat slug.py && echo new > new.txt"))
    body = sequence(
        bash("before", "echo one > slug.py"), call(), bash("after", "cat new.txt"), workspace="worktree"
    )
    parent = await run(session, body)
    assert await parent.wait() == "new\n"
    assert read_files(project) == {"slug.py": FIVE}
    [record] = WorkspaceFiles(project).records()
    assert (record.run, record.name) == (parent.run_id, "run")
    child = child_of(session, parent)
    step, called = files_of(child, "go"), files_of(parent, "child")
    assert (step["run"], step["name"], step["files"]) == (parent.run_id, "run", ["new.txt"])
    assert called == {"name": "run", **{name: step[name] for name in ("before", "after", "tree")}}
    assert git(project, "show", f"{called['after']}:new.txt") == "new"


async def test_a_fork_after_the_call_has_the_files_of_the_called_workflow(project: Path) -> None:
    child = sequence(bash("one", "echo 1 > new.txt"), bash("two", "echo 2 >> new.txt"))
    session = make_session(project, child=child)
    parent = await run(session, sequence(call(), bash("after", "cat new.txt"), workspace="worktree"))
    write(folder_of(project, parent), {"new.txt": "later\n"})
    fork = await session.fork(parent.run_id, "/after")
    assert await fork.wait() == "1\n2\n"
    assert [record.run for record in WorkspaceFiles(project).records()] == [parent.run_id, fork.run_id]


async def test_a_called_workflow_runs_again_if_a_fork_has_changed_the_files_before_it(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("first")
    session = make_session(project, child=bash("copy", "cp a.txt b.txt"))
    body = sequence(
        bash("write", f"cat {tmp_path}/source > a.txt"),
        call(),
        bash("read", "cat b.txt"),
        workspace="worktree",
    )
    parent = await run(session, body)
    assert await parent.wait() == "first"
    (tmp_path / "source").write_text("second")
    assert await (await session.fork(parent.run_id, "/write")).wait() == "second"


async def test_a_retry_continues_the_called_workflow_in_the_workspace_of_the_retry(
    project: Path, tmp_path: Path
) -> None:
    child = sequence(
        bash("one", "echo 1 > a.txt"),
        bash("two", f"cat a.txt && echo 2 >> a.txt && test -e {tmp_path}/fixed"),
    )
    session = make_session(project, child=child)
    parent = await session.start(loaded(session, sequence(call(), workspace="worktree")).name)
    with pytest.raises(WorkflowFailed):
        await parent.wait()
    (tmp_path / "fixed").touch()
    retried = await session.retry(parent.run_id)
    assert await retried.wait() == "1\n"
    assert read_files(folder_of(project, retried))["a.txt"] == "1\n2\n"
    assert files_of(child_of(session, retried), "two")["run"] == retried.run_id


async def test_a_fork_of_the_called_workflow_has_a_copy_of_the_workspace(project: Path) -> None:
    child = sequence(bash("one", "echo 1 > a.txt"), bash("two", "cat a.txt && echo 2 >> a.txt"))
    session = make_session(project, child=child)
    parent = await run(session, sequence(call(), workspace="worktree"))
    fork = await session.fork(child_of(session, parent).run_id, "/two")
    assert await fork.wait() == "1\n"
    assert read_files(folder_of(project, fork, "caller.run"))["a.txt"] == "1\n2\n"
    again = await session.fork(fork.run_id, "/two")
    assert await again.wait() == "1\n"
    assert git(project, "branch", "--list", f"nerve/{again.run_id}/caller.run") != ""


async def test_a_workspace_of_the_called_workflow_is_merged_into_that_of_its_caller(project: Path) -> None:
    child = sequence(
        bash("inner", "cat a.txt > b.txt", workspace="worktree"), bash("read", "cat b.txt"), id="work"
    )
    session = make_session(project, child=child)
    body = sequence(bash("write", "echo 1 > a.txt"), call(), bash("after", "cat b.txt"), workspace="worktree")
    parent = await run(session, body)
    assert await parent.wait() == "1\n"
    assert read_files(project) == {"slug.py": FIVE}
    [record] = WorkspaceFiles(project).records()
    assert record.run == parent.run_id
    fork = await session.fork(child_of(session, parent).run_id, "/read")
    assert await fork.wait() == "1\n"


async def test_a_workspace_stays_while_one_that_was_created_from_it_has_work(project: Path) -> None:
    child = bash("inner", "echo 1 > a.txt", workspace={"kind": "worktree", "merge": "none"})
    session = make_session(project, child=sequence(child))
    outer = sequence(call(), id="outer", workspace="worktree")
    parent = await run(session, sequence(outer))
    await session.close()
    left = {record.name: record.target for record in WorkspaceFiles(project).records()}
    assert left == {"inner": f"{parent.run_id}/outer", "outer": ""}
    workspaces = Workspaces(project)
    outer_record, inner_record = (
        find_record(list(workspaces.files.records()), name) for name in ("outer", "inner")
    )
    state = workspaces.close(outer_record, discard=True)
    assert "/inner' was created from it; remove that first" in state.problem
    workspaces.close(inner_record, discard=True)
    workspaces.close(outer_record)
    assert list(WorkspaceFiles(project).records()) == []


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_call_in_a_block_of_a_workflow_function_works_in_its_workspace(
    project: Path, is_shared: bool
) -> None:
    session = make_session(project)

    @session.workflow
    async def inner(ctx: WorkflowContext) -> str:
        await ctx.run("write_file", "1")
        async with ctx.workspace() as own:
            await ctx.run("write_file", "2")
        return own.name

    @session.node
    async def write_file(context: Any) -> None:
        (context.resolve_directory("") / f"{context.input}.txt").write_text("x")

    @session.workflow
    async def outer(ctx: WorkflowContext) -> str:
        async with ctx.workspace(), ctx.workspace("shared") if is_shared else nullcontext():
            return await ctx.run_workflow("inner", None)  # type: ignore[return-value]

    started = await session.start("outer")
    assert await started.wait() == "workspace"
    assert set(read_files(project)) == {"slug.py", "1.txt", "2.txt"}
    assert list(WorkspaceFiles(project).records()) == []


async def test_a_chain_of_called_runs_works_in_the_workspace(project: Path) -> None:
    session = make_session(project)

    @session.node
    async def add_line(context: Any) -> None:
        with (context.resolve_directory("") / "lines.txt").open("a") as file:
            file.write(f"{context.input}\n")

    @session.workflow
    async def count(ctx: WorkflowContext) -> str:
        await ctx.run("add_line", str(ctx.input))
        return "done" if ctx.input == 3 else ctx.continue_as_new(ctx.input + 1)  # type: ignore[return-value]

    @session.workflow
    async def outer(ctx: WorkflowContext) -> Any:
        async with ctx.workspace():
            await ctx.run_workflow("count", 1)
            await ctx.gate("Go on?", choices=["yes"])

    started = await session.start("outer")
    await wait_for(lambda: started.pending_gates)
    fork = await session.fork(started.run_id)
    await wait_for(lambda: fork.pending_gates)
    fork.answer_gate("yes")
    await fork.wait()
    assert read_files(project)["lines.txt"] == "1\n2\n3\n"
    await session.close()


async def test_a_gate_of_a_called_workflow_shows_the_changes_in_the_workspace(project: Path) -> None:
    child = sequence(
        bash("go", "echo new > new.txt"), {"kind": "gate", "prompt": "Right?", "choices": ["yes"]}
    )
    session = make_session(project, child=child)
    parent = await session.start(loaded(session, sequence(call(), workspace="worktree")).name)
    await wait_for(lambda: parent.pending_gates)
    [gate] = parent.pending_gates
    assert "+new" in gate.input_preview
    parent.answer_gate("yes")
    await parent.wait()


KILLED = """
import asyncio, json, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from nerve import Session
from spec.support import loaded

async def main():
    folder = Path(sys.argv[1])
    session = Session(store=folder / "nerve.db", project=folder / "project")
    for name in ("child", "parent"):
        session.load((folder / f"{name}.json").read_text(), "json")
    run = await session.start("parent")
    print(run.run_id, flush=True)
    await run.wait()

asyncio.run(main())
"""


async def test_a_called_workflow_continues_in_the_workspace_after_kill_9(
    project: Path, tmp_path: Path
) -> None:
    wait = f"echo 2 >> a.txt; touch {tmp_path}/begun; until test -e {tmp_path}/go; do sleep 0.05; done"
    child = sequence(bash("one", "echo 1 > a.txt"), bash("two", f"cat a.txt; {wait}"))
    bodies = {"child": child, "parent": sequence(call(), bash("read", "cat a.txt"), workspace="worktree")}
    for name, body in bodies.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "body": body}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parents[1])),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    await wait_for(lambda: (tmp_path / "begun").exists())
    process.kill()
    await process.wait()
    (tmp_path / "go").touch()
    async with Session(store=tmp_path / "nerve.db", project=project) as session:
        for name in bodies:
            session.load((tmp_path / f"{name}.json").read_text(), "json")
        [parent] = [each for each in await session.recover() if each.run_id == run_id]
        assert await parent.wait() == "1\n2\n2\n"
        assert [event.data.get("node_id") for event in parent.events].count("child") == 2
        step = files_of(child_of(session, parent), "two")
        assert git(project, "show", f"{step['after']}:a.txt") == "1\n2\n2"
    assert read_files(project) == {"slug.py": FIVE}


async def wait_for(is_true: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 30
    while not is_true():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
