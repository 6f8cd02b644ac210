"""Completion of the word at the cursor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.api.models import InputResponse, WorkflowResponse
from nerve.commander.core.completion import CompletionName, CompletionNames, find_completions
from nerve.ui.fuzzy import best_matches, fuzzy_score

PATHS = ["./README.md", "./src/", "./src/a b.py", "./src/app.py"]
NAMES = CompletionNames(
    workflows=[
        WorkflowResponse(
            id="code_review",
            kind="yaml",
            description="Reviews code.\nWith care.",
            inputs=[
                InputResponse(name="max_rounds", type="integer", description="How often"),
                InputResponse(name="level", type="string", choices=["low", "high"]),
                InputResponse(name="dry", type="boolean"),
            ],
        ),
        WorkflowResponse(id="research", kind="python"),
    ],
    nodes=[CompletionName("reviewer", "an agent"), CompletionName("planner")],
    graphs=[CompletionName("pipeline"), CompletionName("reviewer", "a graph")],
    runs=[CompletionName("4f2a", "code_review, running"), CompletionName("9c01")],
    gates=[CompletionName("1", "Ship it?")],
    queues=[CompletionName("emails"), CompletionName("reports")],
    blocks=[CompletionName("last", "looks good"), CompletionName("3", "looks good"), CompletionName("plan")],
    themes=["nord", "ansi-dark"],
    files=lambda typed: [path for path in PATHS if path.startswith(typed)],
)


def offered(line: str) -> list[str]:
    cursor = line.index("|") if "|" in line else len(line)
    return [each.text for each in find_completions(line.replace("|", ""), cursor, NAMES)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%", ["%code_review", "%research"]),
        ("%rev", ["%code_review"]),
        ("%cdrv", ["%code_review"]),
        ("@", ["@reviewer", "@planner", "@pipeline"]),
        ("#pi", ["#pipeline"]),
        ("@pl", ["@planner", "@pipeline"]),
        ("/appr", ["/approve"]),
        (":appr", [":approve"]),
        ("/exi", ["/exit"]),
        ("//", []),
        ("plain words", []),
        ("%code_review --", ["--max-rounds=", "--level=", "--dry"]),
        ("%code_review --level=low --", ["--max-rounds=", "--dry"]),
        ("%code_review --level=", ["--level=low", "--level=high"]),
        ("%code_review --dry=t", ["--dry=true"]),
        ("%code_review -- --", []),
        ("%nothing --", []),
        ("/stop ", ["4f2a", "9c01"]),
        ("/stop 4", ["4f2a"]),
        ("/answer ", ["1"]),
        ("/answer 1 ::pl", ["::plan"]),
        ("/tui f", ["full"]),
        ("/theme n", ["nord", "ansi-dark"]),
        ("/target ro", ["router"]),
        ("/target %r", ["%research", "%code_review"]),
        ("/runs fa", ["failed"]),
        ("/workflow re", ["reload"]),
        ("/queues ", ["pause", "resume"]),
        ("/queues pause ", ["emails", "reports"]),
        ("/queues pause em", ["emails"]),
        ("/help ans", ["answer", "agents"]),
        ("/import ./s", ["./src/", "./src/app.py"]),
        ("summarise ::", ["::last", "::3", "::plan"]),
        ("summarise :::la", [":::last", ":::plan"]),
        ("read @./src/", ["@./src/", "@./src/app.py"]),
        ("@./R", ["@./README.md"]),
        ("%code_review", []),
        ("say %re|s now", []),
        ("%re|s now", ["%research", "%code_review"]),
    ],
)
def test_completions_depend_on_the_prefix(line, expected):
    assert offered(line) == expected


def test_an_open_gate_offers_its_answers_for_the_complete_line():
    names = CompletionNames(answers=["ship it", "not yet"], runs=[CompletionName("4f2a")])
    line = "ship i"
    assert [each.apply_to(line, 6) for each in find_completions(line, 6, names)] == [("ship it", 7)]
    assert find_completions("ship it", 7, names) == []
    assert find_completions("", 0, names) == []
    assert [each.text for each in find_completions("/stop ", 6, names)] == ["4f2a"]


def test_an_empty_line_offers_nothing():
    assert find_completions("", 0, NAMES) == []


def test_a_slash_offers_every_command_once_with_its_summary():
    every = find_completions("/", 1, NAMES)
    assert len(every) == len({each.text for each in every}) == 32
    assert all(each.description for each in every)
    assert next(each.display for each in every if each.text == "/fork") == "/fork [RUN] [STEP]"


def test_only_the_first_line_of_a_description_is_shown():
    assert find_completions("%code", 5, NAMES)[0].description == "Reviews code."


@given(
    st.sampled_from(["", "/", "%", "@", "#", "::", "/stop ", "%code_review --", "@./", "x ::", ":"]),
    st.text(max_size=12),
    st.text(max_size=5),
    st.integers(-2, 30),
)
def test_a_completion_changes_only_the_word_before_the_cursor(prefix, middle, after, at):
    line = prefix + middle + after
    for each in find_completions(line, at, NAMES):
        cursor = max(0, min(at, len(line)))
        made, place = each.apply_to(line, cursor)
        assert 0 <= each.start <= cursor
        assert not any(character.isspace() for character in line[each.start : cursor])
        assert made[: each.start] == line[: each.start]
        assert made[place:] == line[cursor:]
        assert made[each.start : place] == each.text


@given(st.text(max_size=8), st.lists(st.text(max_size=12)))
def test_matches_contain_the_typed_letters_in_order(typed, names):
    for name in best_matches(typed, names, str):
        letters = iter(name.casefold())
        assert all(letter in letters for letter in typed.casefold())


@given(st.text(max_size=12))
def test_a_name_matches_itself_best(name):
    assert fuzzy_score(name, name) == 100.0
