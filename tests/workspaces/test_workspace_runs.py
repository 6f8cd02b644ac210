"""Workspaces of runs: in specs, in graphs and in workflow functions, with real repositories."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import until
from nerve import BashNode, Graph, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.api import Api
from nerve.api.errors import ApiError
from nerve.core.nodes import MergeNode, WorkspaceNode
from nerve.errors import WorkflowFailed
from nerve.testing import RecordedQuery, ScriptedProvider
from nerve.workspaces.records import WorkspaceFiles
from spec.support import loaded, outcome
from workspaces.repositories import git, make_repository, read_files, write

FIVE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def edit(call: RecordedQuery) -> str:
    """An agent whose prompt is `OLD NEW`: it replaces a word in slug.py."""
    old, new = call.prompt.split()[:2]
    path = Path(call.cwd or "") / "slug.py"
    path.write_text(path.read_text().replace(old, new))
    return "done"


def make_session(project: Path, together: int = 1, **options: Any) -> Session:
    """A session whose agents edit only when `together` of them have started."""
    everyone, started = asyncio.Event(), list[str]()

    async def edit_together(call: RecordedQuery) -> str:
        started.append(call.prompt)
        if len(started) >= together:
            everyone.set()
        await everyone.wait()
        return edit(call)

    return Session(project=project, providers={"claude": ScriptedProvider(edit_together)}, **options)


def prompt(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"kind": "prompt", "id": id, "text": text, **more}


def bash(id: str, command: str, **more: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, **more}


def left(project: Path) -> list[str]:
    return [record.name for record in WorkspaceFiles(project).records()]


@pytest.mark.parametrize("merge", ["files", "squash", "rebase"])
async def test_the_edits_of_parallel_agents_are_both_kept(project: Path, merge: str) -> None:
    workspace = {"kind": "worktree", "merge": merge}
    branches = [prompt("a", "one ONE", workspace=workspace), prompt("b", "five FIVE", workspace=workspace)]
    session = make_session(project, together=2)
    await outcome(session, {"kind": "parallel", "branches": branches}, "go")
    assert read_files(project) == {"slug.py": FIVE.replace("one", "ONE").replace("five", "FIVE")}
    assert left(project) == []
    assert git(project, "worktree", "list").count("\n") == 0
    assert git(project, "rev-list", "--count", "HEAD") == ("1" if merge == "files" else "3")


async def test_each_item_of_a_map_has_a_workspace(project: Path) -> None:
    body = prompt("edit", "{{ item }}", workspace="worktree")
    session = make_session(project, together=3)
    await outcome(session, {"kind": "map", "over": "input", "body": body}, ["one 1", "three 3", "five 5"])
    assert read_files(project) == {"slug.py": "1\ntwo\n3\nfour\n5\n"}


async def test_steps_see_the_files_of_their_workspace_and_later_steps_the_merged_ones(project: Path) -> None:
    inner = {
        "kind": "sequence",
        "id": "work",
        "workspace": "worktree",
        "steps": [bash("write", "echo new > new.txt"), bash("read", "cat new.txt")],
    }
    outside = bash("outside", "test -e new.txt && cat new.txt")
    body = {"kind": "sequence", "steps": [bash("before", "echo x > x.txt"), inner, outside]}
    assert await outcome(make_session(project), body) == "new\n"
    assert read_files(project) == {"slug.py": FIVE, "x.txt": "x\n", "new.txt": "new\n"}


async def test_the_workspace_of_a_run_is_kept_until_its_work_is_merged(project: Path) -> None:
    body = bash("go", "echo new > new.txt", workspace="worktree")
    session = make_session(project)
    run = await session.start(loaded(session, body).name)
    await run.wait()
    assert read_files(project) == {"slug.py": FIVE}
    [record] = WorkspaceFiles(project).records()
    assert read_files(WorkspaceFiles(project).directory(record.run, record.name))["new.txt"] == "new\n"
    assert record.branch == f"nerve/{run.run_id}/run"


async def test_the_branch_of_a_run_is_that_of_its_workspace(project: Path) -> None:
    body = bash("go", "git branch --show-current", workspace="worktree")
    session = make_session(project)
    run = await session.start(loaded(session, body).name, branch="fix-1")
    assert await run.wait() == "fix-1\n"


async def test_expectations_and_the_setup_run_in_the_workspace(project: Path) -> None:
    workspace = {"kind": "worktree", "setup": "echo ready > ready.txt"}
    checks = [{"file": "new.txt"}, {"command": "test -e ready.txt"}]
    body = bash("go", "cat ready.txt > new.txt", workspace=workspace, expect=checks)
    await outcome(make_session(project), {"kind": "sequence", "steps": [body]})
    assert read_files(project) == {"slug.py": FIVE, "new.txt": "ready\n", "ready.txt": "ready\n"}


async def test_a_failed_step_leaves_its_work_in_the_workspace(project: Path) -> None:
    body = bash("go", "echo new > new.txt; exit 3", workspace="worktree")
    with pytest.raises(WorkflowFailed, match="exit code 3"):
        await outcome(make_session(project), {"kind": "sequence", "steps": [body]})
    assert read_files(project) == {"slug.py": FIVE}
    assert left(project) == ["go"]


async def test_a_conflict_is_a_gate_with_the_difference(project: Path) -> None:
    branches = [prompt("a", "one ONE", workspace="worktree"), prompt("b", "one 1", workspace="worktree")]
    session = make_session(project, together=2)
    body = {"kind": "sequence", "steps": [{"kind": "parallel", "id": "both", "branches": branches}]}
    run = await session.start(loaded(session, body).name, "go")
    await wait_for_gate(run)
    [gate] = run.pending_gates
    assert "conflicts with other work in slug.py" in gate.prompt
    assert gate.input_preview.startswith("diff --git")
    assert run.view.nodes[gate.path].state == "waiting"
    await until(lambda: run.view.nodes["/both"].state == "waiting")  # the other branch removes its workspace
    assert {"+<<<<<<< nerve/target", "+>>>>>>> nerve/workspace"} <= set(gate.input_preview.splitlines())
    [name] = [record.name for record in WorkspaceFiles(project).records() if record.unresolved]
    folder = WorkspaceFiles(project).directory(run.run_id, name)
    assert gate.note == f"Its workspace is {folder.relative_to(project)}"
    assert "<<<<<<<" in (folder / "slug.py").read_text()
    run.answer_gate("retry")
    await wait_for_gate(run, gate.path)
    assert run.pending_gates[0].prompt.startswith(
        f"The work of '{name}' still has conflict markers in slug.py. Edit the files in its workspace"
    )
    write(folder, {"slug.py": FIVE.replace("one", "both")})
    run.answer_gate("retry")
    await run.wait()
    assert read_files(project) == {"slug.py": FIVE.replace("one", "both")}
    assert left(project) == []


async def test_an_agent_resolves_a_conflict_in_the_workspace(project: Path) -> None:
    resolver = {"kind": "bash", "command": "printf 'both\\n' > slug.py"}
    workspace = {"kind": "worktree", "on_conflict": resolver}
    branches = [prompt("a", "one ONE", workspace=workspace), prompt("b", "one 1", workspace=workspace)]
    await outcome(make_session(project, together=2), {"kind": "parallel", "branches": branches}, "go")
    assert read_files(project) == {"slug.py": "both\n"}
    assert left(project) == []


async def test_a_conflict_can_fail_the_step_and_loses_nothing(project: Path) -> None:
    workspace = {"kind": "worktree", "on_conflict": "fail"}
    branches = [prompt("a", "one ONE", workspace=workspace), prompt("b", "one 1", workspace=workspace)]
    with pytest.raises(WorkflowFailed, match="conflicts with other work"):
        await outcome(make_session(project, together=2), {"kind": "parallel", "branches": branches}, "go")
    assert len(left(project)) == 1


async def test_a_winner_is_picked_and_merged(project: Path) -> None:
    workspace = {"kind": "worktree", "merge": "none"}
    branches = [prompt("a", "one ONE", workspace=workspace), prompt("b", "one 1", workspace=workspace)]
    body = {
        "kind": "sequence",
        "steps": [
            {"kind": "parallel", "id": "both", "branches": branches},
            {"kind": "merge", "id": "pick", "of": "{{ input }}", "method": "files"},
        ],
    }
    result = await outcome(make_session(project, together=2), body, "b")
    assert result["status"] == "merged"
    assert read_files(project) == {"slug.py": FIVE.replace("one", "1")}
    assert "both-a" in left(project)


async def test_a_merge_names_a_step_that_has_a_workspace(project: Path) -> None:
    with pytest.raises(WorkflowFailed, match=r"This run has no workspace 'x'\. Its workspaces: none"):
        await outcome(make_session(project), {"kind": "merge", "of": "x"})


async def test_a_gate_shows_the_changes_and_its_answer_counts_for_them_alone(project: Path) -> None:
    steps = [bash("go", "echo new > new.txt"), {"kind": "gate", "id": "ok", "choices": ["yes", "no"]}]
    body = {"kind": "sequence", "id": "work", "workspace": "worktree", "steps": steps}
    session = make_session(project)
    run = await session.start(loaded(session, {"kind": "sequence", "steps": [body]}).name)
    await wait_for_gate(run)
    [gate] = run.pending_gates
    assert "+new" in gate.input_preview
    folder = WorkspaceFiles(project).directory(run.run_id, "work")
    write(folder, {"new.txt": "another\n"})
    run.answer_gate("yes")
    await wait_for_gate(run, gate.path)
    [again] = run.pending_gates
    assert "they have changed since the question was asked" in again.note
    assert "+another" in again.input_preview
    run.answer_gate("yes")
    await run.wait()
    assert read_files(project)["new.txt"] == "another\n"


async def test_nodes_of_a_graph_work_in_workspaces(project: Path) -> None:
    session = make_session(project)
    agent = AgentNode("edit", session, "claude")
    parts = {
        "a": WorkspaceNode("in-a", session, agent),
        "b": WorkspaceNode("in-b", session, agent, merge="none"),
    }
    graph = Graph("flow", session)
    graph.add_step(parts["a"], "a", input_fn=lambda given: "one ONE")
    graph.add_step(parts["b"], "b", ["a"], input_fn=lambda given: "five FIVE")
    graph.add_step(MergeNode("merge", session, "b"), "merge", ["b"])

    @session.workflow
    async def main(ctx: WorkflowContext) -> Any:
        return (await ctx.run("flow", "go")).success

    assert await run_main(session)
    assert read_files(project) == {"slug.py": FIVE.replace("one", "ONE").replace("five", "FIVE")}


async def test_blocks_of_a_function_work_in_workspaces(project: Path) -> None:
    session = make_session(project)
    AgentNode("edit", session, "claude")
    BashNode("read", session, "cat slug.py")

    @session.workflow
    async def main(ctx: WorkflowContext) -> list[Any]:
        async def work(text: str) -> Any:
            async with ctx.workspace("worktree", merge="squash") as ws:
                await ctx.run("edit", text)
                assert ws.branch.startswith(f"nerve/{ctx.run_id}/workspace")
                return (await ctx.run("read")).output

        seen = await asyncio.gather(work("one ONE"), work("five FIVE"))
        return [*seen, (await ctx.run("read")).output]

    both = FIVE.replace("one", "ONE").replace("five", "FIVE")
    assert await run_main(session) == [FIVE.replace("one", "ONE"), FIVE.replace("five", "FIVE"), both]
    assert read_files(project) == {"slug.py": both}
    assert git(project, "rev-list", "--count", "HEAD") == "3"
    assert left(project) == []


async def test_a_block_that_raises_keeps_its_work(project: Path) -> None:
    session = make_session(project)
    BashNode("break", session, "echo x > x.txt")

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        async with ctx.workspace():
            await ctx.run("break")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await run_main(session)
    assert left(project) == ["workspace"]


async def test_a_workspace_that_cannot_be_created_fails_its_step(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "a\n"})
    session = make_session(tmp_path)
    with pytest.raises(WorkflowFailed, match=r"is not in a git repository\. Write workspace: copy"):
        await outcome(session, {"kind": "sequence", "steps": [bash("go", "true", workspace="worktree")]})
    await outcome(session, {"kind": "sequence", "steps": [bash("go", "echo b > b.txt", workspace="copy")]})
    assert read_files(tmp_path) == {"a.txt": "a\n", "b.txt": "b\n"}


async def test_the_steps_of_a_workspace_record_their_files(project: Path) -> None:
    session = make_session(project)
    body = {"kind": "sequence", "steps": [bash("go", "echo new > new.txt", workspace="worktree")]}
    run = await session.start(loaded(session, body).name)
    await run.wait()
    [event] = [e for e in run.events if e.event_type == "node_completed" and e.data.get("node_id") == "go"]
    recorded = event.data["result"]["attributes"]["workspace"]
    assert recorded["files"] == ["new.txt"]
    assert git(project, "diff", "--name-only", recorded["before"], recorded["after"]) == "new.txt"
    assert git(project, "rev-parse", f"{recorded['after']}^{{tree}}") == recorded["tree"]


async def run_main(session: Session) -> Any:
    return await (await session.start("main")).wait()


async def test_a_start_with_a_branch_is_refused_without_a_workspace(project: Path) -> None:
    session = make_session(project)
    name = loaded(session, bash("go", "git branch --show-current")).name
    with pytest.raises(ApiError, match="has no workspace, so it cannot create the branch 'fix-1'"):
        await Api(session).start(workflow=name, branch="fix-1")
    assert git(project, "branch", "--format=%(refname:short)") == "main"


async def wait_for_gate(run: Any, other_than: str = "") -> None:
    for _ in range(1000):
        if any(gate.path != other_than for gate in run.pending_gates):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no gate: {run.state}")


async def test_the_api_has_the_changes_of_each_step(project: Path) -> None:
    session = make_session(project)
    steps = [bash("a", "echo a > a.txt"), bash("b", "cat a.txt"), bash("c", "echo c > c.txt; rm a.txt")]
    body = {"kind": "sequence", "id": "work", "workspace": "worktree", "steps": steps}
    run = await session.start(loaded(session, {"kind": "sequence", "steps": [body]}).name)
    await run.wait()
    api = Api(session)
    page = await api.changes(run=run.run_id)
    assert [(step.path, step.files) for step in page.steps] == [
        ("/work/a", ["a.txt"]),
        ("/work/c", ["a.txt", "c.txt"]),
    ]
    [step] = (await api.changes(run=run.run_id, path="/work/c")).steps
    assert step.diff is not None
    assert "-a" in step.diff
    assert "+c" in step.diff
    git(project, "update-ref", "-d", f"refs/nerve-files/{run.run_id}/work")
    git(project, "reflog", "expire", "--expire=now", "--all")
    git(project, "gc", "--prune=now", "--quiet")
    assert [step.diff for step in (await api.changes(run=run.run_id)).steps] == [None, None]
