"""The code review: accepted, rejected, or looped with feedback."""

import subprocess
import sys

import pytest

from nerve.session import Session

from .conftest import EXAMPLES


@pytest.mark.requirement("S0-04")
@pytest.mark.parametrize(
    ("answers", "value", "reviews"),
    [
        (["accept"], "Found 1 issue: `area` ignores its unit.", 1),
        (["Reject"], "Review rejected", 1),
        (["name the unit", "ACCEPT"], "No issues found.", 2),
    ],
)
async def test_a_person_decides(answers, value, reviews, example, person) -> None:
    session = Session()
    module = example("code_review_workflow")
    module.mock_agents(session)
    module.register(session)
    reader = person(session, *answers)
    assert await reader.sees("code_review", "def area(r): ...") == value
    assert len(reader.told("review_complete")) == reviews
    assert session.nodes["reviewer"].calls[0] == "Review this:\ndef area(r): ..."


@pytest.mark.requirement("S0-04")
async def test_feedback_reaches_the_editor_and_its_code_the_next_review(example, person) -> None:
    session = Session()
    module = example("code_review_workflow")
    module.mock_agents(session)
    module.register(session)
    await person(session, "name the unit", "accept").sees("code_review", "old")
    assert session.nodes["editor"].calls == ["Apply feedback: name the unit\n\nCode:\nold"]
    assert session.nodes["reviewer"].calls[1].startswith("Review this:\ndef area(radius_m)")


@pytest.mark.requirement("S0-05")
def test_the_script_shows_what_happens() -> None:
    script = EXAMPLES / "code_review_workflow.py"
    lines = subprocess.check_output([sys.executable, script], text=True, timeout=60).splitlines()
    assert [line.split("]")[0] + "]" for line in lines[:4]] == [
        "[workflow]",
        "[reviewer]",
        "[review_complete]",
        "[gate]",
    ]
    assert lines[0] == "[workflow] code_review started"
    assert lines[3].startswith("[gate] Accept, reject, or provide feedback: ")
