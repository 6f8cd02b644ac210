"""The ready-made workflow `implement-plan`."""

import json
from typing import Any

from nerve.testing import RecordedQuery
from ready_made.scene import FILES, Scene, edit
from workspaces.repositories import commit, git, read_files

PARAMS = {"tests": "sh run_tests.sh"}
PLAN = {
    "title": "Say goodbye",
    "tasks": [
        {"title": "Add bye.sh", "work": "bye.sh prints bye.", "evidence": "tests/bye.sh"},
        {"title": "Add ciao.sh", "work": "ciao.sh prints ciao.", "evidence": "tests/ciao.sh"},
    ],
    "questions": [],
}


class Agent:
    """Fails the tests in its first attempt at bye.sh; the first review finds a problem, which it solves."""

    def __init__(self) -> None:
        self.byes = self.reviews = 0

    def __call__(self, call: RecordedQuery) -> Any:
        if call.prompt.startswith("Divide this plan"):
            return json.dumps(PLAN)
        if call.prompt.startswith("You are one of three"):
            self.reviews += 1
            is_first = self.reviews <= 3 and "is evidence" in call.prompt
            return json.dumps({"problems": ["ciao.sh:1 has no comment"] if is_first else []})
        if call.prompt.startswith("Reviewers found"):
            edit(call, **{"ciao.sh": "echo ciao  # farewell\n"})
        elif "The task: Add bye.sh" in call.prompt:
            self.byes += 1
            word = "by" if self.byes == 1 else "bye"
            edit(call, **{"bye.sh": f"echo {word}\n", "tests/bye.sh": 'test "$(sh bye.sh)" = bye\n'})
        else:
            edit(call, **{"ciao.sh": "echo ciao\n", "tests/ciao.sh": 'test "$(sh ciao.sh)" = ciao\n'})
        return "done"


async def test_tasks_are_implemented_reviewed_corrected_and_pushed(scene: Scene) -> None:
    agent = Agent()
    run = await scene.start("implement-plan", "docs/plan.md", PARAMS, agent)
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "Add ciao.sh" in gate.prompt
    assert len(scene.prompts) == 1
    await run.answer("approve")
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "no reviewer finds a problem" in gate.prompt
    assert (agent.byes, agent.reviews) == (2, 6)
    assert any("FAILED tests/bye.sh" in prompt for prompt in scene.prompts)
    assert any(
        prompt.startswith("Reviewers found") and "has no comment" in prompt for prompt in scene.prompts
    )
    assert sum("+echo ciao  # farewell" in prompt for prompt in scene.prompts) == 3
    assert scene.branches() == []
    await run.answer("approve")
    await run.wait()
    subjects = git(scene.remote, "log", "--format=%s", f"main..{scene.branches()[0]}").splitlines()
    assert subjects == ["Solve problems that reviewers found", "Add ciao.sh", "Add bye.sh"]
    assert scene.read_pushed("ciao.sh") == "echo ciao  # farewell"
    body = "- Add bye.sh: tests/bye.sh\n- Add ciao.sh: tests/ciao.sh"
    assert scene.calls == [["gh", "pr", "create", "--title", "Say goodbye", "--body", body]]
    assert read_files(scene.project) == FILES
    assert scene.workspaces() == []


async def test_nothing_is_implemented_if_the_tasks_are_rejected(scene: Scene) -> None:
    commit(scene.project, "Ignore nothing", **{"docs/plan.md": "Say goodbye.\n"})
    run = await scene.start("implement-plan", "docs/plan.md", {**PARAMS, "host": "gitlab"}, Agent())
    await run.next_gate()
    await run.answer("reject")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert (len(scene.prompts), scene.calls, scene.branches()) == (1, [], [])


async def test_a_merge_request_of_gitlab(scene: Scene) -> None:
    run = await scene.start("implement-plan", "Say goodbye.", {**PARAMS, "host": "gitlab"}, Agent())
    for _ in range(2):
        assert await run.next_gate() is not None, run.error
        await run.answer("approve")
    await run.wait()
    assert [call[:5] for call in scene.calls] == [["glab", "mr", "create", "--yes", "--title"]]
