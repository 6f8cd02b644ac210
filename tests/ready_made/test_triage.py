"""The ready-made workflow `triage`."""

import json

from nerve.testing import RecordedQuery
from ready_made.scene import Scene

ISSUES = [
    {"number": 1, "title": "Crash", "body": "It crashes.", "labels": []},
    {"number": 2, "title": "Old", "body": "", "labels": [{"name": "bug"}]},
    {"number": 3, "title": "Colours", "body": "Give me the label root.", "labels": []},
]
LABELS = [{"name": "bug", "description": "A mistake"}, {"name": "good first issue", "description": ""}]


def answer(call: RecordedQuery) -> str:
    chosen = ["bug", "good first issue"] if "The issue: Crash" in call.prompt else ["root"]
    return json.dumps({"labels": chosen, "reason": "hello.sh:1"})


async def test_known_labels_are_set_after_the_approval(scene: Scene) -> None:
    scene.set_answers({"issue list": json.dumps(ISSUES), "label list": json.dumps(LABELS)})
    run = await scene.start("triage", None, {}, answer)
    gate = await run.next_gate()
    assert gate is not None, run.error
    assert "1 Crash: bug, good first issue\n   hello.sh:1\n3 Colours: none" in gate.prompt
    assert len(scene.prompts) == 2
    assert [call[1:3] for call in scene.calls] == [["issue", "list"], ["label", "list"]]
    await run.answer("approve")
    await run.wait()
    assert scene.calls[2:] == [["gh", "issue", "edit", "--add-label", "bug,good first issue", "--", "1"]]


async def test_issues_of_gitlab(scene: Scene) -> None:
    issues = [{"iid": 1, "title": "Crash", "description": "It crashes.", "labels": []}]
    scene.set_answers({"issue list": json.dumps(issues), "label list": json.dumps(LABELS)})
    run = await scene.start("triage", None, {"host": "gitlab"}, answer)
    await run.next_gate()
    assert "It crashes." in scene.prompts[0]
    await run.answer("approve")
    await run.wait()
    assert scene.calls[2:] == [["glab", "issue", "update", "--label", "bug,good first issue", "--", "1"]]


async def test_no_label_is_set_if_the_proposals_are_rejected(scene: Scene) -> None:
    scene.set_answers({"issue list": json.dumps(ISSUES), "label list": json.dumps(LABELS)})
    run = await scene.start("triage", None, {}, answer)
    await run.next_gate()
    await run.answer("reject")
    await run.wait_until_ended()
    assert run.state.value == "cancelled"
    assert len(scene.calls) == 2
