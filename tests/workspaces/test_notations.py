"""Workspaces and merges in every notation, and after every conversion."""

import json
from pathlib import Path

import pytest

from nerve import BashNode, Session
from nerve.notations import NOTATIONS, SUFFIXES, read_source
from nerve.notations.json_steps.writer import write_steps
from nerve.testing import RecordedQuery, ScriptedProvider
from nerve.workspaces.records import WorkspaceFiles
from workspaces.repositories import git, make_repository, read_files, write

FIVE = "one\ntwo\nthree\nfour\nfive\n"
BOTH = FIVE.replace("one", "ONE").replace("five", "FIVE")
STEPS = {
    "id": "flow",
    "steps": [
        {
            "id": "edits",
            "type": "parallel",
            "next": "land",
            "steps": [
                {"id": "first", "type": "agent", "agent": "upper-one", "workspace": "worktree"},
                {
                    "id": "second",
                    "type": "agent",
                    "agent": "upper-five",
                    "workspace": {"base": ".", "merge": "none"},
                },
            ],
        },
        {"id": "land", "type": "merge", "of": "second", "method": "files", "on_conflict": "fail"},
    ],
}
LISP = """
(workflow flow
  (state edit
    (call upper-one :workspace worktree)
    (let ((second (call upper-five :workspace {:base "." :merge "none"})))
      (log "done")))
  (state land (merge "second" :method files :on-conflict fail)))
"""
NODES = """
name: flow
description: Two edits and a merge
nodes:
  - {id: first, bash: sed -i s/one/ONE/ slug.py, workspace: worktree}
  - {id: second, bash: sed -i s/five/FIVE/ slug.py, workspace: {base: ".", merge: none}}
  - {id: land, merge: second, method: files, on_conflict: fail, depends_on: [first, second]}
"""
PROMPTS = """
name: flow
description: Two edits
steps:
  - {step: first, workspace: worktree}
  - {step: second, workspace: {kind: worktree, on_conflict: fail}}
"""
BODY = """
name: flow
body:
  kind: sequence
  steps:
    - kind: parallel
      branches:
        - {kind: call, id: first, target: upper-one, workspace: worktree}
        - {kind: prompt, id: second, text: five FIVE, workspace: {base: ".", merge: none}}
    - {kind: merge, of: second, method: files, on_conflict: fail}
"""
SOURCES = {
    "steps.json": json.dumps(STEPS),
    "flow.lisp": LISP,
    "nodes.yaml": NODES,
    "prompts.yaml": PROMPTS,
    "body.yaml": BODY,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path / "project", {"slug.py": FIVE})
    prompts = {"first": "one ONE", "second": "five FIVE"}
    write(tmp_path / "project", {f".nerve/steps/{name}.md": text for name, text in prompts.items()})
    return make_repository(tmp_path / "project")


def make_session(project: Path) -> Session:
    def edit(call: RecordedQuery) -> str:
        old, new = call.prompt.split()
        file = Path(call.cwd or "") / "slug.py"
        file.write_text(file.read_text().replace(old, new))
        return "done"

    session = Session(project=project, providers={"claude": ScriptedProvider(edit, "claude")})
    BashNode("upper-one", session, "sed -i s/one/ONE/ slug.py")
    BashNode("upper-five", session, "sed -i s/five/FIVE/ slug.py")
    return session


async def check_run(project: Path, text: str, file: str) -> None:
    """Run a workflow: both edits are in the project, and no workspace is left."""
    (project / ".nerve/workflows").mkdir(parents=True, exist_ok=True)
    path = project / ".nerve/workflows" / file
    path.write_text(text)
    session = make_session(project)
    run = await session.start(session.load(path).name)
    await run.wait()
    await session.close()
    assert (project / "slug.py").read_text() == BOTH
    assert [record.name for record in WorkspaceFiles(project).records()] == []
    assert git(project, "for-each-ref", "refs/heads/nerve") == ""


@pytest.mark.parametrize("file", SOURCES)
async def test_every_notation_has_workspaces_and_merges(project: Path, file: str) -> None:
    await check_run(project, SOURCES[file], file)


CONVERSIONS = [("steps.json", "yaml"), ("flow.lisp", "json"), ("nodes.yaml", "lisp"), ("body.yaml", "json")]
"""The prompts of `prompts.yaml` are in files, which a conversion of the text does not have."""


@pytest.mark.parametrize(("file", "notation"), CONVERSIONS)
async def test_a_converted_workflow_has_the_same_workspaces(project: Path, file: str, notation: str) -> None:
    document = SUFFIXES[Path(file).suffix].read(SOURCES[file], file)
    written = NOTATIONS[notation].write(document.data)
    await check_run(project, written, f"again{NOTATIONS[notation].suffixes[0]}")


def test_steps_in_json_are_written_back_with_their_workspaces() -> None:
    source = STEPS | {"workspace": {"kind": "worktree", "setup": "true"}}
    text, problems = write_steps(read_source(json.dumps(source), "steps.json").data)
    assert problems == []
    written = json.loads(text)
    assert written["workspace"] == {"setup": "true"}
    assert (
        written["steps"][1] == STEPS["steps"][1] | {"method": "files"} or "method" not in written["steps"][1]
    )
    assert written["steps"][0]["steps"][1]["workspace"] == {"base": ".", "merge": "none"}


RUNS = {
    "steps.json": json.dumps(
        {"id": "flow", "workspace": "worktree", "steps": [{"id": "a", "type": "agent", "agent": "upper-one"}]}
    ),
    "flow.lisp": "(workflow flow (workspace worktree) (state a (call upper-one)))",
    "nodes.yaml": "{name: flow, description: An edit, workspace: worktree,"
    " nodes: [{id: a, bash: sed -i s/one/ONE/ slug.py}]}",
    "prompts.yaml": "{name: flow, description: An edit, workspace: worktree, steps: [{step: first}]}",
    "body.yaml": "{name: flow, body: {kind: call, target: upper-one, workspace: worktree}}",
}


@pytest.mark.parametrize("file", RUNS)
async def test_a_run_has_a_workspace_in_every_notation(project: Path, file: str) -> None:
    (project / ".nerve/workflows").mkdir(parents=True)
    path = project / ".nerve/workflows" / file
    path.write_text(RUNS[file])
    session = make_session(project)
    run = await session.start(session.load(path).name, branch="edit-1")
    await run.wait()
    await session.close()
    assert (project / "slug.py").read_text() == FIVE
    [record] = WorkspaceFiles(project).records()
    folder = WorkspaceFiles(project).directory(record.run, record.name)
    assert read_files(folder)["slug.py"] == FIVE.replace("one", "ONE")
    assert record.branch == "edit-1"
