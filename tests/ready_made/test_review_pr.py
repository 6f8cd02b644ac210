"""The ready-made workflow `review-pr`."""

import json
from pathlib import Path
from typing import Any

import pytest

from nerve.testing import RecordedQuery
from ready_made.scene import FILES, Scene
from workspaces.repositories import read_files

REVIEW = {"verdict": "request-changes", "text": "--loud is ignored (`hello.sh:1`).", "refuted": ["a guess"]}


def answer(call: RecordedQuery) -> Any:
    if call.prompt.startswith("You are one of three"):
        assert (Path(call.cwd or "") / "hello.sh").read_text() == "echo theirs\n"
        finding = {"file": "hello.sh", "line": 1, "severity": "major", "problem": "wrong", "fix": "say hello"}
        return json.dumps({"findings": [] if "security" in call.prompt.splitlines()[0] else [finding]})
    return json.dumps(REVIEW)


async def test_three_reviewers_read_and_the_checked_review_is_posted(scene: Scene) -> None:
    scene.push_pull_request("refs/pull/7/head", **{"hello.sh": "echo theirs\n"})
    scene.set_answers({"pr view": "Say theirs", "pr diff": "-echo hello\n+echo theirs"})
    run = await scene.start("review-pr", "7", {"tests": "sh run_tests.sh"}, answer)
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "request-changes" in gate.prompt
    assert REVIEW["text"] in gate.prompt
    *reviewers, review = scene.prompts
    assert sorted(prompt.split(".")[1].strip() for prompt in reviewers) == [
        "Your part is correctness",
        "Your part is security",
        "Your part is tests",
    ]
    assert all("+echo theirs" in prompt for prompt in reviewers)
    assert review.count('"problem": "wrong"') == 2
    assert "FAILED tests/hello.sh" in review
    for call in scene.agent.calls:
        assert call.options["instructions"] is False
    await run.answer("request-changes")
    await run.wait()
    assert scene.calls[-1] == ["gh", "pr", "review", "--request-changes", "--body", REVIEW["text"], "--", "7"]
    assert read_files(scene.project) == FILES
    assert scene.workspaces() == []


@pytest.mark.parametrize(("decision", "posted"), [("approve", ["note", "approve"]), ("comment", ["note"])])
async def test_a_review_in_gitlab(scene: Scene, decision: str, posted: list[str]) -> None:
    scene.push_pull_request("refs/merge-requests/7/head", **{"hello.sh": "echo theirs\n"})
    run = await scene.start("review-pr", "7", {"host": "gitlab"}, answer)
    await run.next_gate()
    assert "No tests were run." in scene.prompts[-1]
    await run.answer(decision)
    await run.wait()
    assert [call[:3] for call in scene.calls] == [["glab", "mr", word] for word in ["view", "diff", *posted]]


async def test_a_discarded_review_is_not_posted(scene: Scene) -> None:
    scene.push_pull_request("refs/pull/7/head", **{"hello.sh": "echo theirs\n"})
    run = await scene.start("review-pr", "7", {}, answer)
    await run.next_gate()
    await run.answer("discard")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert [call[2] for call in scene.calls] == ["view", "diff"]
