"""The line `WORKFLOW: name`, whole and in pieces."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.router import (
    Candidate,
    ConversationDecision,
    MarkerScanner,
    QuestionDecision,
    WorkflowDecision,
    parse_router_response,
)

WORKFLOWS = [Candidate("deploy", "Ships"), Candidate("review", "Looks")]
NAMES = [each.name for each in WORKFLOWS]
SEED = re.compile(r"^WORKFLOW:\s*(\S+)", re.MULTILINE)

parts = st.sampled_from(
    ["WORKFLOW:", "WORK", "WORKFLOW", ":", " ", "    ", "\n", "\r\n", "deploy", "review", "nope", "`deploy`",
     ".", "```", "~~~", "````", "> ", '"', "Sure", "\t"]
)  # fmt: skip
answers = st.lists(parts, max_size=14).map("".join)
plain = answers.filter(lambda text: "``" not in text and "~~~" not in text)


def pieces(answer: str, cuts: list[int]) -> list[str]:
    at = sorted({cut % (len(answer) + 1) for cut in cuts} | {0, len(answer)})
    return [answer[a:b] for a, b in pairwise(at)]


def shown_of(answer: list[str]) -> tuple[str, MarkerScanner]:
    listener = MarkerScanner(NAMES)
    shown = "".join(map(listener.feed, answer)) + listener.end()
    return shown, listener


@pytest.mark.requirement("S3-13")
def test_a_line_that_names_a_workflow_chooses_it_and_what_follows_is_the_intent() -> None:
    decision = parse_router_response("WORKFLOW: deploy\nShip version 3.\n\nTo live.", WORKFLOWS, "ship it")
    assert decision == WorkflowDecision("deploy", "Ship version 3.\n\nTo live.", text="ship it")


@pytest.mark.requirement("S3-13")
def test_an_answer_without_such_a_line_is_a_conversation() -> None:
    assert parse_router_response("Hello!\n", WORKFLOWS) == ConversationDecision("Hello!\n")


@pytest.mark.requirement("S3-13")
def test_a_name_that_does_not_exist_is_a_conversation_with_a_warning() -> None:
    decision = parse_router_response("WORKFLOW: deplyo\nShip it.", WORKFLOWS)
    assert isinstance(decision, ConversationDecision)
    assert decision.reply == "WORKFLOW: deplyo\nShip it."
    (warning,) = decision.warnings
    assert "'deplyo'. Did you mean 'deploy'?" in warning


@pytest.mark.requirement("S3-13")
@pytest.mark.parametrize(
    ("answer", "intent"),
    [
        ("WORKFLOW: deploy", "ship it"),
        ("WORKFLOW: deploy\n \n", "ship it"),
        ("I will ship it.\nWORKFLOW: deploy\n", "I will ship it."),
        ("I will.\nWORKFLOW: deploy\nShip.", "Ship."),
        ("WORKFLOW:\n\ndeploy\nShip.", "Ship."),
        ("WORKFLOW: deploy to live\nnow", "to live\nnow"),
        ("WORKFLOW: `deploy`.\nShip.", "Ship."),
        ("WORKFLOW: deploy\nWORKFLOW: deploy\nShip.", "Ship."),
        ("WORKFLOW: deploy\nWORKFLOW: nope\nShip.", "Ship."),
        ("  WORKFLOW: deploy\r\nShip.\r\n", "Ship."),
    ],
)
@pytest.mark.requirement("D3-9")
def test_the_intent_never_contains_the_line(answer: str, intent: str) -> None:
    assert parse_router_response(answer, WORKFLOWS, "ship it") == WorkflowDecision(
        "deploy", intent, text="ship it"
    )


@pytest.mark.parametrize(
    "answer",
    [
        'Say "WORKFLOW: deploy" to me.',
        "> WORKFLOW: deploy",
        "    WORKFLOW: deploy",
        "```\nWORKFLOW: deploy\n```\nis what I would write",
        "~~~text\n```\nWORKFLOW: deploy\n~~~",
        "workflow: deploy",
        "THE WORKFLOW: deploy",
        "WORKFLOW:",
        "WORKFLOW: \n ",
        "",
    ],
)
def test_a_line_that_is_quoted_or_not_there_is_conversation(answer: str) -> None:
    assert parse_router_response(answer, WORKFLOWS) == ConversationDecision(answer)


def test_an_answer_that_names_two_workflows_asks_which() -> None:
    decision = parse_router_response("WORKFLOW: review\nLook.\nWORKFLOW: deploy\nShip.", WORKFLOWS)
    assert isinstance(decision, QuestionDecision)
    assert decision.candidates == ("review", "deploy")
    assert decision.question == "Which workflow do you mean: 'review', 'deploy'?"


def test_the_first_line_decides_even_if_its_name_is_unknown() -> None:
    decision = parse_router_response("WORKFLOW: nope\nWORKFLOW: deploy", WORKFLOWS)
    assert isinstance(decision, ConversationDecision)
    assert decision.warnings


@pytest.mark.requirement("D3-3")
def test_text_is_shown_as_it_comes_and_the_line_is_not() -> None:
    listener = MarkerScanner(NAMES)
    fed = ["Su", "re.", "\nW", "ell", " WORKFLOW: deploy\n", "WORK", "FLOW: dep", "loy", "\nShip"]
    shown = [listener.feed(piece) for piece in fed]
    assert shown == ["Su", "re.", "\n", "Well", " WORKFLOW: deploy\n", "", "", "", ""]
    assert listener.end() == ""
    assert listener.workflow == "deploy"


def test_a_line_that_names_nothing_known_is_let_through_once_that_is_sure() -> None:
    listener = MarkerScanner(NAMES)
    assert [listener.feed(piece) for piece in ("WORKFLOW: de", "ploys", " x", "y")] == [
        "",
        "",
        "WORKFLOW: deploys x",
        "y",
    ]
    assert (listener.marker_name, listener.workflow, listener.end()) == ("deploys", None, "")


@given(answers, st.lists(st.integers(0, 200)))
def test_pieces_of_any_size_decide_as_the_whole_does(answer: str, cuts: list[int]) -> None:
    (shown, listener), (whole, at_once) = shown_of(pieces(answer, cuts)), shown_of([answer])
    assert (shown, listener.workflow, listener.marker_name, listener.marker_span) == (
        whole, at_once.workflow, at_once.marker_name, at_once.marker_span
    )  # fmt: skip
    assert listener.answer == answer


@given(answers)
def test_what_is_shown_is_the_reply_or_what_stands_before_the_line(answer: str) -> None:
    shown, listener = shown_of(list(answer))
    decision = parse_router_response(answer, WORKFLOWS)
    if isinstance(decision, ConversationDecision):
        assert shown == decision.reply == answer
        assert listener.workflow is None
    else:
        assert answer.startswith(shown)
        assert answer[len(shown) :].lstrip(" ").startswith("WORKFLOW:")


@given(answers)
def test_an_intent_never_routes_again(answer: str) -> None:
    decision = parse_router_response(answer, WORKFLOWS)
    if isinstance(decision, WorkflowDecision):
        assert parse_router_response(decision.intent, WORKFLOWS) == ConversationDecision(decision.intent)


@given(plain)
def test_where_nothing_is_quoted_the_first_line_by_the_seeds_rule_is_found(answer: str) -> None:
    found = SEED.search(answer)
    _, listener = shown_of([answer])
    indented = re.search(r"^ {1,3}WORKFLOW:", answer, re.MULTILINE)
    if not indented:
        assert listener.marker_name == (found[1] if found else None)


@given(st.sampled_from(["> ", "- ", '"', "a ", "    ", "\t"]), st.sampled_from(NAMES), st.booleans())
def test_a_marker_after_other_text_is_conversation(mark: str, name: str, last: bool) -> None:
    answer = f"Like this:\n{mark}WORKFLOW: {name}" + ("" if last else "\nand so on")
    assert parse_router_response(answer, WORKFLOWS) == ConversationDecision(answer)


@pytest.mark.parametrize(
    "answer", ["WORKFLOW: deploy\n" * 50_000, "a\n" * 300_000, "WORKFLOW:" + " " * 500_000]
)
def test_long_answers_take_no_long_time(answer: str) -> None:
    begun = time.process_time()
    parse_router_response(answer, WORKFLOWS)
    assert time.process_time() - begun < 2
