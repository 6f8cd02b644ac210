"""Approvals and checks count for the files that they were about: a later change is asked about or checked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nerve import BashNode, Session, WorkflowContext
from nerve.core.workflow.run import WorkflowRun
from nerve.errors import NodeFailed, WorkflowFailed
from nerve.workspaces.records import WorkspaceFiles
from spec.support import loaded
from workspaces.repositories import make_repository, read_files, write

FIVE = "one\ntwo\nthree\nfour\nfive\n"
GATE = {"kind": "gate", "id": "ok", "choices": ["yes", "no"]}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def bash(id: str, command: str, **more: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, **more}


def in_workspace(*steps: dict[str, Any], **settings: Any) -> dict[str, Any]:
    work = {"kind": "sequence", "id": "work", "workspace": {"kind": "worktree", **settings}, "steps": steps}
    return {"kind": "sequence", "steps": [work]}


async def start(session: Session, body: dict[str, Any]) -> WorkflowRun:
    return await session.start(loaded(session, body).name)


async def next_gate(run: WorkflowRun, *seen: str) -> Any:
    for _ in range(2000):
        if found := [gate for gate in run.pending_gates if gate.path not in seen]:
            return found[0]
        if run.is_complete:
            break
        await asyncio.sleep(0.01)
    raise AssertionError(f"no gate: {run.state}")


def folder_of(project: Path, run: WorkflowRun, name: str = "work") -> Path:
    return WorkspaceFiles(project).directory(run.run_id, name)


async def test_approved_files_are_merged_without_another_question(project: Path) -> None:
    run = await start(Session(project=project), in_workspace(bash("a", "echo a > a.txt"), GATE))
    await next_gate(run)
    run.answer_gate("yes")
    await run.wait()
    assert read_files(project) == {"slug.py": FIVE, "a.txt": "a\n"}


async def test_a_change_after_the_approval_is_asked_about_before_the_merge(project: Path) -> None:
    body = in_workspace(bash("a", "echo a > a.txt"), GATE, bash("b", "echo b > a.txt"))
    run = await start(Session(project=project), body)
    gate = await next_gate(run)
    run.answer_gate("yes")
    again = await next_gate(run, gate.path)
    assert "The files of 'work' have changed since they were approved" in again.prompt
    assert "+b" in again.input_preview
    # The second answer counts only for what it has shown, too.
    write(folder_of(project, run), {"a.txt": "c\n"})
    run.answer_gate("retry")
    third = await next_gate(run, gate.path, again.path)
    assert "+c" in third.input_preview
    run.answer_gate("retry")
    await run.wait()
    assert read_files(project)["a.txt"] == "c\n"


async def test_work_that_is_not_approved_again_stays_in_its_workspace(project: Path) -> None:
    body = in_workspace(bash("a", "echo a > a.txt"), GATE, bash("b", "echo b > a.txt"))
    run = await start(Session(project=project), body)
    gate = await next_gate(run)
    run.answer_gate("yes")
    await next_gate(run, gate.path)
    run.answer_gate("keep")
    await run.wait()
    assert read_files(project) == {"slug.py": FIVE}
    assert (folder_of(project, run) / "a.txt").read_text() == "b\n"


async def test_a_question_before_any_change_approves_nothing(project: Path) -> None:
    run = await start(Session(project=project), in_workspace(GATE, bash("a", "echo a > a.txt")))
    await next_gate(run)
    run.answer_gate("yes")
    await run.wait()
    assert read_files(project)["a.txt"] == "a\n"


async def test_a_merge_of_its_own_knows_the_approval(project: Path) -> None:
    body = in_workspace(bash("a", "echo a > a.txt"), GATE, bash("b", "echo b > a.txt"), merge="none")
    body["steps"].append({"kind": "merge", "of": "work", "on_conflict": "fail"})
    run = await start(Session(project=project), body)
    await next_gate(run)
    run.answer_gate("yes")
    with pytest.raises(WorkflowFailed, match="have changed since they were approved"):
        await run.wait()
    assert read_files(project) == {"slug.py": FIVE}


async def test_a_fork_merges_the_work_that_another_step_has_left(project: Path) -> None:
    body = in_workspace(bash("a", "echo a > a.txt"), merge="none")
    body["steps"].append({"kind": "merge", "id": "land", "of": "work"})
    session = Session(project=project)
    run = await start(session, body)
    await run.wait()
    (project / "a.txt").unlink()
    fork = await session.fork(run.run_id, "/land")
    await fork.wait()
    assert read_files(project)["a.txt"] == "a\n"


@pytest.mark.parametrize("is_typed", [False, True])
async def test_an_approval_in_a_function_counts_for_its_files(project: Path, is_typed: bool) -> None:
    session = Session(project=project)
    BashNode("a", session, "echo a > a.txt")
    BashNode("b", session, "echo b > a.txt")

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        async with ctx.workspace():
            await ctx.run("a")
            await (ctx.gate("Fine?", type=bool) if is_typed else ctx.gate("Fine?"))
            await ctx.run("b")

    run = await session.start("main")
    gate = await next_gate(run)
    assert "+a" in gate.input_preview
    run.answer_gate("yes")
    again = await next_gate(run, gate.path)
    assert "+b" in again.input_preview
    run.answer_gate("fail")
    with pytest.raises(NodeFailed, match="have changed since they were approved"):
        await run.wait()
    assert read_files(project) == {"slug.py": FIVE}


CHECKED = bash("a", "echo a > a.txt", expect=[{"command": "grep -q a a.txt"}])


@pytest.mark.parametrize(("text", "is_merged"), [("a again\n", True), ("b\n", False)])
async def test_checks_are_repeated_for_files_that_have_changed(
    project: Path, text: str, is_merged: bool
) -> None:
    run = await start(Session(project=project), in_workspace(CHECKED, {"kind": "gate", "id": "wait"}))
    gate = await next_gate(run)
    write(folder_of(project, run), {"a.txt": text})
    run.answer_gate("go")
    again = await next_gate(run, gate.path)
    assert f"+{text.strip()}" in again.input_preview
    run.answer_gate("go")
    if is_merged:
        await run.wait()
        assert read_files(project)["a.txt"] == text
    else:
        with pytest.raises(WorkflowFailed, match=r"Expected `grep -q a a\.txt` to succeed"):
            await run.wait()
        assert read_files(project) == {"slug.py": FIVE}
    checks = [event for event in run.events if event.event_type == "node_started" and "expect" in event.path]
    assert len(checks) == 2


async def test_the_checks_of_a_step_do_not_apply_to_what_later_steps_change(project: Path) -> None:
    body = in_workspace(CHECKED, bash("b", "echo b > a.txt"))
    await (await start(Session(project=project), body)).wait()
    assert read_files(project)["a.txt"] == "b\n"


async def test_files_in_which_an_agent_has_resolved_a_conflict_are_checked_again(project: Path) -> None:
    resolver = bash("resolve", "echo mine and theirs > slug.py")
    work = bash(
        "a",
        f"echo mine > slug.py; echo theirs > {project}/slug.py",
        workspace={"kind": "worktree", "on_conflict": resolver},
        expect=[{"command": "grep -q mine slug.py"}],
    )
    run = await start(Session(project=project), {"kind": "sequence", "steps": [work]})
    await run.wait()
    assert read_files(project) == {"slug.py": "mine and theirs\n"}
    checks = [event for event in run.events if event.event_type == "node_started" and "expect" in event.path]
    assert len(checks) == 2
