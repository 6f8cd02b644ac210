"""The ready-made workflow `refactor`."""

import json
from typing import Any

import pytest

from nerve.errors import WorkflowFailed
from nerve.testing import RecordedQuery
from ready_made.scene import FILES, Scene, edit
from workspaces.repositories import git, read_files

PARAMS = {"tests": "sh run_tests.sh", "keep": "tests"}
REVIEW = {"differences": ["hello.sh:1: slower"], "summary": "The word has a name."}


class Agent:
    """Changes a test in its first attempt, breaks the code in the second, and refactors in the third."""

    def __init__(self) -> None:
        self.attempts = 0

    def __call__(self, call: RecordedQuery) -> Any:
        if call.prompt.startswith("Plan this"):
            return json.dumps({"steps": ["Name the word"], "risks": ["the exit code"]})
        if call.prompt.startswith("This change shall be"):
            return json.dumps(REVIEW)
        self.attempts += 1
        match self.attempts:
            case 1:
                edit(call, **{"hello.sh": "word=hi\necho $word\n", "tests/hello.sh": "true\n"})
            case 2:
                edit(call, **{"tests/hello.sh": FILES["tests/hello.sh"]})
            case _:
                edit(call, **{"hello.sh": "word=hello\necho $word\n"})
        return "done"


async def test_a_refactoring_is_merged_if_unchanged_tests_pass_and_it_is_approved(scene: Scene) -> None:
    run = await scene.start("refactor", "Name the word", PARAMS, Agent())
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "- Name the word" in gate.prompt
    assert "- the exit code" in gate.prompt
    await run.answer("approve")
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "hello.sh:1: slower" in gate.prompt
    _, first, second, third, review = scene.prompts
    assert first.startswith("Do this step")
    assert "These tests have changed. Restore them." in second
    assert "tests/hello.sh" in second
    assert "FAILED tests/hello.sh" in third
    assert "+word=hello" in review
    assert read_files(scene.project) == FILES
    await run.answer("approve")
    assert await run.wait() == REVIEW["summary"]
    assert read_files(scene.project) == FILES | {"hello.sh": "word=hello\necho $word\n"}
    assert git(scene.project, "rev-list", "--count", "HEAD") == "2"
    assert git(scene.project, "status", "--porcelain", "--untracked-files=no") == ""
    assert scene.workspaces() == []


async def test_a_rejected_refactoring_changes_nothing(scene: Scene) -> None:
    run = await scene.start("refactor", "Name the word", PARAMS, Agent())
    await run.next_gate()
    await run.answer("approve")
    await run.next_gate()
    await run.answer("reject")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert read_files(scene.project) == FILES
    assert scene.workspaces() == ["run"]


async def test_without_tests_no_agent_starts(scene: Scene) -> None:
    run = await scene.start("refactor", "Name the word", {**PARAMS, "keep": "spec"}, Agent())
    with pytest.raises(WorkflowFailed, match="Name it with --keep"):
        await run.wait()
    assert scene.prompts == []
