"""Parallel agents in files: those that would edit one folder are refused before the run starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.cli.check import check_project
from nerve.session.loader import known_names
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition
from spec.support import loaded

AGENT = {"kind": "prompt", "text": "do"}
A, B = {**AGENT, "id": "a"}, {**AGENT, "id": "b"}
BOTH = "The agents of 'a' and 'b' can run in parallel in the same folder"
ITEMS = "'a' runs for several items in parallel"


def parallel(*branches: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "parallel", "branches": list(branches), **more}


def permitted(**permissions: Any) -> dict[str, Any]:
    return parallel(A, {**B, "permissions": permissions})


def inside(step: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "sequence", "id": f"in-{step['kind']}-{step.get('id')}", "steps": [step], **more}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "sequence", "steps": list(steps)}


def detached(name: str, **more: Any) -> dict[str, Any]:
    """A prompt of a conversation of its own, which the next step does not wait for."""
    return {**AGENT, "id": name, "tag": name, "thread": name, "detach": True, **more}


AWAIT_A = {"kind": "wait", "any": [{"response": "a"}]}
READ = {"permissions": {"mode": "read"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (parallel(A, B), BOTH),
    ({"kind": "graph", "steps": [A, B]}, BOTH),
    ({"kind": "map", "body": A}, ITEMS),
    ({"kind": "map", "body": inside({"kind": "map", "max_parallel": 1, "body": A})}, ITEMS),
    (parallel({**A, "cwd": "src"}, {**B, "cwd": "src/."}), BOTH),
    (parallel(A, {**B, "tools": ["Read", "Bash"]}), BOTH),
    (parallel(A, {**B, "tools": ["Read"], "permissions": {"mode": "all"}}), BOTH),
    (parallel(A, {**B, "provider": "codex"}), BOTH),
    (permitted(mode="edits"), BOTH),
    (permitted(deny=["Bash"]), BOTH),
    # One checkout for both is shared, too.
    (parallel(A, B, workspace="worktree"), BOTH),
    (parallel(inside(A), inside(B)), BOTH),
    (sequence(detached("a"), detached("b")), BOTH),
    (sequence(detached("a"), sequence(detached("c", **READ), {**B, "thread": "fresh"})), BOTH),
]
ALLOWED: list[dict[str, Any]] = [
    {"kind": "map", "max_parallel": 1, "body": A},
    {"kind": "graph", "steps": [A, {**B, "depends_on": ["a"]}]},
    {"kind": "graph", "steps": [{**A, "depends_on": ["b"]}, B]},
    {"kind": "sequence", "steps": [A, B]},
    parallel({"kind": "sequence", "id": "s", "steps": [A, B]}, {"kind": "bash", "id": "c", "command": "ls"}),
    parallel({"kind": "bash", "id": "c", "command": "ls"}, A, on_error=B),
    parallel({**A, "workspace": "worktree"}, B),
    parallel({**A, "workspace": {"merge": "squash"}}, {**B, "workspace": "copy"}),
    parallel({**A, "workspace": "shared"}, B),
    parallel(A, B, workspace="shared"),
    inside(parallel(A, B), workspace="shared"),
    parallel(inside(A, workspace="worktree"), B),
    {"kind": "map", "body": inside(A, workspace="worktree")},
    {"kind": "map", "body": {**A, "cwd": "{{ item }}"}},
    parallel({**A, "cwd": "one"}, {**B, "cwd": "two"}),
    parallel(A, {**B, "tools": ["Read", "Grep", "Bash(git diff *)"]}),
    parallel(A, {**B, "agent": "reviewer"}),
    permitted(mode="read"),
    sequence(detached("a"), AWAIT_A, detached("b")),
    sequence(detached("a"), {**B, "thread": "a"}),
    sequence(detached("a"), detached("b", **READ)),
    sequence(detached("a"), detached("b", workspace="worktree")),
    permitted(deny=["Edit", "Write"]),
    permitted(otherwise="deny", allow=["Read"]),
]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / ".nerve/agents").mkdir(parents=True)
    (tmp_path / ".nerve/agents/reviewer.md").write_text(
        "---\nname: reviewer\npermissions: {mode: read}\n---\n"
    )
    agents = {name: ScriptedProvider(lambda call: "done", name) for name in ("claude", "codex")}
    return Session(project=tmp_path, providers=agents)


def find_refusals(session: Session, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `nerve check` and the start of a run say."""
    (session.project / "flow.json").write_text(json.dumps(data))
    monkeypatch.chdir(session.project)
    checked = [str(each) for each in check_project(("flow.json",)).problems if each.severity == "error"]
    workflow = session.load(json.dumps(data), "json")
    try:
        workflow.check_shared_folders(lambda: known_names(session))
    except InvalidDefinition as error:
        return [checked, [str(each) for each in error.problems]]
    return [checked, []]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_parallel_agents_in_one_folder_are_refused(
    session: Session, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], message: str
) -> None:
    for found in find_refusals(session, {"name": "flow", "body": body}, monkeypatch):
        (problem,) = found
        assert message in problem
        assert "Write 'workspace: worktree' to give each its own checkout" in problem


@pytest.mark.parametrize("body", ALLOWED)
def test_agents_that_cannot_meet_are_allowed(
    session: Session, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    assert find_refusals(session, {"name": "flow", "body": body}, monkeypatch) == [[], []]


def test_agents_without_tools_edit_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(session.project)
    (session.project / ".nerve/config.json").write_text('{"providers": {"fast": {"kind": "llm"}}}')
    for provider in ("llm", "fast"):
        data = {"name": "flow", "body": parallel(A, {**B, "provider": provider})}
        (session.project / "flow.json").write_text(json.dumps(data))
        assert check_project(("flow.json",)).error_count == 0


@pytest.mark.parametrize("is_flag", [True, False])
def test_agents_of_parallel_steps_in_json_are_refused(
    session: Session, monkeypatch: pytest.MonkeyPatch, is_flag: bool
) -> None:
    steps = [{"id": name, "type": "agent", "agent": "claude", "input": []} for name in ("a", "b")]
    nested = {"steps": [{"id": "p", "type": "parallel", "steps": steps}]}
    flat = {"parallel": True, "steps": [{**steps[0], "next": "b"}, steps[1]]}
    data = {"id": "flow", **(flat if is_flag else nested)}
    for found in find_refusals(session, data, monkeypatch):
        (problem,) = found
        assert BOTH in problem


@pytest.mark.parametrize("workspace", [None, "shared", "worktree"])
async def test_workflows_that_are_called_in_parallel_are_refused_too(
    session: Session, workspace: str | None
) -> None:
    child = {"name": "child", "body": {**A, **({} if workspace is None else {"workspace": workspace})}}
    session.load(json.dumps(child), "json")
    call = {"kind": "workflow", "workflow": "child"}
    workflow = loaded(session, parallel({**call, "id": "a"}, {**call, "id": "b"}))
    if workspace is None:
        with pytest.raises(InvalidDefinition, match=BOTH):
            await session.start(workflow.name)
    else:
        workflow.check_shared_folders(lambda: known_names(session))


async def test_a_workflow_that_calls_itself_is_checked(session: Session) -> None:
    call = {"kind": "workflow", "workflow": "flow"}
    workflow = loaded(session, parallel({**call, "id": "a"}, {**call, "id": "b"}))
    workflow.check_shared_folders(lambda: known_names(session))
