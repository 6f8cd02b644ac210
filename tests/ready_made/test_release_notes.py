"""The ready-made workflow `release-notes`."""

import json

import pytest

from nerve.testing import RecordedQuery
from ready_made.scene import Scene
from workspaces.repositories import commit, git

NOTES = "## New\n\n- It says goodbye.\n\n## Fixed\n\n- It greets."


@pytest.fixture
def commits(scene: Scene) -> list[str]:
    """Three commits after the tag of the last release."""
    git(scene.project, "tag", "v1")
    subjects = ("Add bye.sh", "Fix the greeting", "Format the code")
    return [commit(scene.project, subject, **{"log.txt": subject}) for subject in subjects]


def notes(commits: list[str], left_out: list[str]) -> str:
    new, fixed = commits
    entries = [
        {"group": "Fixed", "text": "It greets.", "commits": [fixed]},
        {"group": "New", "text": "It says goodbye.", "commits": [new]},
    ]
    reasons = [{"commit": commit, "reason": "only format"} for commit in left_out]
    return json.dumps({"entries": entries, "left_out": reasons})


async def test_notes_without_a_commit_are_written_again_and_then_drafted(
    scene: Scene, commits: list[str]
) -> None:
    answers = iter([notes(commits[:2], []), notes(commits[:2], commits[2:])])
    run = await scene.start("release-notes", "v2", {}, lambda call: next(answers))
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert NOTES in gate.prompt
    assert f"- {commits[2][:10]}: only format" in gate.prompt
    assert len(scene.prompts) == 2
    assert all(commit in scene.prompts[0] for commit in commits)
    assert scene.calls == []
    await run.answer("approve")
    assert await run.wait() == NOTES
    assert scene.calls == [
        ["gh", "release", "create", "--draft", "--title", "v2", "--notes", NOTES, "--", "v2"]
    ]


async def test_notes_since_a_commit_are_published_nowhere(scene: Scene, commits: list[str]) -> None:
    def answer(call: RecordedQuery) -> str:
        assert commits[0] not in call.prompt
        return notes([commits[1], commits[2]], [])

    run = await scene.start("release-notes", "v2", {"since": commits[0], "publish": "nowhere"}, answer)
    assert await run.wait() == NOTES
    assert scene.calls == []


async def test_a_release_of_gitlab(scene: Scene, commits: list[str]) -> None:
    run = await scene.start(
        "release-notes", "v2", {"publish": "gitlab"}, lambda call: notes(commits[:2], commits[2:])
    )
    await run.next_gate()
    await run.answer("approve")
    await run.wait()
    assert scene.calls == [["glab", "release", "create", "--notes", NOTES, "--", "v2"]]


async def test_without_an_earlier_tag_the_start_must_be_named(scene: Scene) -> None:
    run = await scene.start("release-notes", "v1", {}, lambda call: "")
    await run.wait_until_ended()
    assert run.state.value == "failed"
    assert run.error.endswith("No earlier tag was found. Name the commit to start from with --since.")
    assert scene.prompts == []


async def test_without_a_commit_no_agent_starts(scene: Scene) -> None:
    git(scene.project, "tag", "v1")
    run = await scene.start("release-notes", "v2", {}, lambda call: "")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert scene.prompts == []
