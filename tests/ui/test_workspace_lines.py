"""Lines of the steps that create, merge and remove workspaces, as they appear in logs and trees."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.errors import WorkflowFailed
from nerve.ui.event_lines import LogLines
from spec.support import loaded
from workspaces.repositories import make_repository

CHANGE = "sed -i s/one/ONE/ slug.py"


async def log_of(project: Path, *steps: dict[str, Any], answer: str = "") -> list[str]:
    """Return the log of a run, without times, and with letters for ids."""
    session, log = Session(project=project), LogLines()
    run = await session.start(loaded(session, {"kind": "sequence", "steps": list(steps)}).name)
    if answer:
        await run.next_gate()
        await run.answer(answer)
    with suppress(WorkflowFailed):
        await run.wait()
    lines = [line for event in run.events for line in log.apply_event(event)]
    await session.close()
    text = re.sub(r", \d+\.\ds\)|(?<= )\(\d+\.\ds\)", ")", "\n".join(lines).replace(run.run_id, "RUN"))
    return re.sub(r"\b[0-9a-f]{10}\b", "COMMIT", text).split("\n")


def edit(id: str, command: str = CHANGE, **workspace: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, "workspace": {"kind": "worktree", **workspace}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.mark.parametrize(("merge", "text"), [("files", "slug.py"), ("squash", "slug.py as COMMIT")])
async def test_a_workspace_is_described_in_words(project: Path, merge: str, text: str) -> None:
    lines = await log_of(project, edit("a", merge=merge))
    assert lines[1] == "[a] ✓ branch nerve/RUN/a (workspace)"
    assert lines[-3:] == [f"[a] ✓ merged {text} (merge)", "[a] ✓ removed (close)", "[workflow] completed"]


async def test_the_common_base_of_parallel_steps_is_described_in_words(project: Path) -> None:
    both = {"kind": "parallel", "id": "both", "branches": [edit("a"), edit("b", "true")]}
    lines = await log_of(project, both)
    assert lines[1] == "[both] ✓ recorded the files that its steps start from (base)"


async def test_work_that_stays_is_named_with_its_branch(project: Path) -> None:
    lines = await log_of(project, edit("a", merge="none"), edit("b", "true"))
    assert "[a] ✓ kept with slug.py on branch nerve/RUN/a (close)" in lines
    assert "[b] ✓ nothing to merge (merge)" in lines


async def test_a_merge_of_its_own_is_described_in_words(project: Path) -> None:
    lines = await log_of(project, edit("a", merge="none"), {"kind": "merge", "id": "land", "of": "a"})
    assert "[land] ✓ merged slug.py (merge)" in lines
    assert not [line for line in lines if "{" in line]


async def test_a_conflict_names_its_files_and_a_failed_merge_its_reason(project: Path) -> None:
    both = edit("a", merge="none"), {"kind": "bash", "id": "other", "command": "sed -i s/one/two/ slug.py"}
    lines = await log_of(project, *both, {"kind": "merge", "id": "land", "of": "a", "on_conflict": "fail"})
    assert "[land] ✓ conflict in slug.py (merge)" in lines
    assert any(
        line.startswith("[land] ✗ The work of 'a' conflicts with other work in slug.py") for line in lines
    )


async def test_the_changes_that_a_gate_shows_are_not_repeated_in_the_log(project: Path) -> None:
    body = {
        "kind": "sequence",
        "workspace": "worktree",
        "steps": [
            {"kind": "bash", "id": "a", "command": CHANGE},
            {"kind": "gate", "id": "ok", "prompt": "Ok?"},
        ],
    }
    lines = await log_of(project, body, answer="yes")
    assert "[sequence/ok] ✓ changes to ask about (files)" in lines


async def test_a_copy_is_described_in_words(tmp_path: Path) -> None:
    (tmp_path / "slug.py").write_text("one\n")
    lines = await log_of(tmp_path, edit("a", kind="copy"))
    assert "[a] ✓ a copy of the project (workspace)" in lines
    assert "[a] ✓ merged slug.py (merge)" in lines


async def test_the_workspace_of_a_run_belongs_to_the_workflow(project: Path) -> None:
    node = {"id": "a", "bash": CHANGE}
    source = {"name": "flow", "description": "An edit", "workspace": "worktree", "nodes": [node]}
    session, log = Session(project=project), LogLines()
    run = await session.start(session.load(json.dumps(source), "yaml").name, branch="edit-1")
    await run.wait()
    lines = [line for event in run.events for line in log.apply_event(event)]
    await session.close()
    assert any(line.startswith("[workflow] ✓ branch edit-1 (workspace, ") for line in lines)
    assert any(line.startswith("[workflow] ✓ kept with slug.py on branch edit-1 (close, ") for line in lines)
