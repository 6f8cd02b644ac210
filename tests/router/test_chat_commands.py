"""The commands about workflows."""

import pytest

from nerve.router import Candidate, answer_command
from nerve.router.chat_commands import HELP_TEXT

OFFERED = [Candidate("feature", "Builds\na feature", {}, ("plan", "build")), Candidate("tidy")]


@pytest.mark.requirement("S3-24")
@pytest.mark.parametrize("text", ["/workflow list", "/workflow ls", "  /workflow   list "])
def test_the_list_has_name_description_and_steps(text: str) -> None:
    answer = answer_command(text, lambda: OFFERED)
    assert answer is not None
    assert answer.success
    assert (
        answer.text
        == "Available Workflows:\n\n**feature**\n  Builds a feature\n  Steps: plan → build\n\n**tidy**"
    )


@pytest.mark.requirement("S3-24")
def test_an_empty_list_says_where_to_put_files() -> None:
    answer = answer_command("/workflow list", list)
    assert answer is not None
    assert answer.text == "No workflows found. Create workflows in `.archon/workflows/` as YAML files."
    assert answer.success


@pytest.mark.requirement("S3-24")
def test_a_reload_reads_the_workflows_again_and_counts_them() -> None:
    found = [list[Candidate](), OFFERED]
    answers = [answer_command("/workflow reload", lambda: found.pop(0)) for _ in range(2)]
    assert [each.text for each in answers if each] == ["Reloaded 0 workflow(s).", "Reloaded 2 workflow(s)."]


@pytest.mark.requirement("S3-24")
@pytest.mark.parametrize("text", ["/workflow", "/workflow start x", "/workflow list all", "/workflow LIST"])
def test_anything_else_is_answered_with_the_usage(text: str) -> None:
    answer = answer_command(text, lambda: OFFERED)
    assert answer is not None
    assert not answer.success
    assert answer.text.startswith("Usage:\n  /workflow list - ")


@pytest.mark.requirement("S3-26")
def test_the_help_has_the_two_lines_and_the_note() -> None:
    assert HELP_TEXT.splitlines() == [
        "Workflows:",
        "  /workflow list - Show available workflows",
        "  /workflow reload - Reload workflow definitions",
        "  Note: Workflows are YAML files in .archon/workflows/",
    ]


@pytest.mark.requirement("S3-27")
@pytest.mark.parametrize("text", ["", "/workflows", "/stop", "workflow list", "//workflow list"])
def test_other_texts_are_none_of_its_business(text: str) -> None:
    assert answer_command(text, lambda: OFFERED) is None
