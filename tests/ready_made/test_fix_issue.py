"""The ready-made workflow `fix-issue`."""

import json
from typing import Any

import pytest

from nerve.errors import WorkflowFailed
from nerve.testing import RecordedQuery
from ready_made.scene import FILES, Scene, edit
from workspaces.repositories import git, read_files

PARAMS = {"tests": "sh run_tests.sh"}
SHOUT_TEST = {"tests/shout.sh": 'test "$(sh hello.sh loud)" = HELLO\n'}
WRONG, RIGHT = "echo HELLO\n", 'if [ "$1" = loud ]; then echo HELLO; else echo hello; fi\n'


class Agent:
    """Writes a test at its second attempt, fixes at its second, and is accepted at the second review."""

    def __init__(self) -> None:
        self.reproductions = self.fixes = self.reviews = 0

    def __call__(self, call: RecordedQuery) -> Any:
        if "that fail because of the issue" in call.prompt:
            self.reproductions += 1
            if self.reproductions == 2:
                edit(call, **SHOUT_TEST)
            return "hello.sh:1 ignores its argument; tests/shout.sh shows it."
        if call.prompt.startswith("Review a change"):
            self.reviews += 1
            problems = ["hello.sh:1: no comment says what loud is"] if self.reviews == 1 else []
            return json.dumps({"accepted": not problems, "problems": problems})
        self.fixes += 1
        edit(
            call,
            **{"hello.sh": WRONG if self.fixes == 1 else RIGHT + "# loud: in capitals\n" * (self.fixes - 2)},
        )
        return "--hello.sh reads its argument now."


async def test_the_fix_is_shown_by_a_test_reviewed_approved_and_pushed(scene: Scene) -> None:
    scene.set_answers({"issue view": "hello.sh cannot shout"})
    agent = Agent()
    run = await scene.start("fix-issue", "21", PARAMS, agent)
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "--hello.sh reads its argument now." in gate.prompt
    assert (agent.reproductions, agent.fixes, agent.reviews) == (2, 3, 2)
    reproduce, again, fix, correct, review, improve, accept = scene.prompts
    assert "hello.sh cannot shout" in reproduce
    assert again.startswith("The tests still pass")
    assert "tests/shout.sh shows it" in fix
    assert "FAILED tests/shout.sh" in fix
    assert correct.startswith("The tests fail")
    assert "FAILED tests/hello.sh" in correct
    assert "+# loud" not in review
    assert '+test "$(sh hello.sh loud)" = HELLO' in review
    assert "no comment says what loud is" in improve
    assert "+# loud" in accept
    assert scene.branches() == []

    await run.answer("approve")
    await run.wait()
    assert scene.read_pushed("tests/shout.sh") == SHOUT_TEST["tests/shout.sh"].strip()
    assert scene.calls == [
        ["gh", "issue", "view", "--comments", "--", "21"],
        ["gh", "pr", "create", "--title", "Fix issue 21", "--body", "--hello.sh reads its argument now."],
    ]
    assert read_files(scene.project) == FILES
    assert scene.workspaces() == []


async def test_a_rejected_fix_is_not_pushed_and_its_files_are_kept(scene: Scene) -> None:
    run = await scene.start("fix-issue", "21", PARAMS, Agent())
    await run.next_gate()
    await run.answer("reject")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert scene.branches() == []
    assert scene.workspaces() == ["run"]
    assert [call[1] for call in scene.calls] == ["issue"]


async def test_no_agent_starts_if_the_tests_fail_before_the_fix(scene: Scene) -> None:
    run = await scene.start("fix-issue", "21", {"tests": "echo broken >&2; false"}, Agent())
    with pytest.raises(WorkflowFailed, match="exit code 1: broken"):
        await run.wait()
    assert scene.prompts == []


async def test_a_merge_request_of_gitlab(scene: Scene) -> None:
    run = await scene.start("fix-issue", "21", {**PARAMS, "host": "gitlab"}, Agent())
    await run.next_gate()
    await run.answer("approve")
    await run.wait()
    assert [call[:3] for call in scene.calls] == [["glab", "issue", "view"], ["glab", "mr", "create"]]
    assert git(scene.remote, "log", "-1", "--format=%s", *scene.branches()) == "Fix issue 21"
