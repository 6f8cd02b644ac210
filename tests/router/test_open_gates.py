"""Open gates: which texts start nothing, and what the user is told instead."""

import pytest

from nerve.router.decision import ConversationDecision, WorkflowDecision
from nerve.router.open_gates import WaitingGate, ask_for_gate

SHIP = WaitingGate("g1", "Ship\nit?", ("approve", "reject"), "run-1", "ship")
NOTE = WaitingGate("g2", "What is to be noted?", (), "run-2", "note")


@pytest.mark.parametrize(
    ("text", "answer"),
    [("approve", "approve"), ("Reject!", "reject"), ("2", "reject"), ("yes", "…"), ("no.", "…")],
)
def test_a_text_that_reads_like_an_answer_is_not_conversation(text: str, answer: str) -> None:
    asked = ask_for_gate(ConversationDecision("?", text=text, by="words"), [SHIP])
    assert asked is not None
    assert f"'Ship it?' (approve or reject) of ship: answer with `/answer g1 {answer}`" in asked.question


def test_a_run_of_the_workflow_that_waits_is_not_started_a_second_time_by_words() -> None:
    asked = ask_for_gate(WorkflowDecision("note", "note this", text="note this"), [SHIP, NOTE])
    assert asked is not None
    assert "/answer g2 …" in asked.question
    assert "/answer g1" not in asked.question
    assert "To start another run, write `%note …`." in asked.question


def test_nothing_is_started_while_the_watched_run_waits() -> None:
    decided = WorkflowDecision("greet", "Ann", text="greet Ann")
    assert ask_for_gate(decided, [SHIP]) is None
    asked = ask_for_gate(decided, [NOTE, SHIP], watching="run-1")
    assert asked is not None
    assert "/answer g1 …" in asked.question


def test_a_number_that_no_choice_has_is_decided_as_ever() -> None:
    assert ask_for_gate(ConversationDecision("?", text="3", by="words"), [SHIP, NOTE]) is None


def test_a_text_for_nothing_that_waits_is_decided_as_ever() -> None:
    assert ask_for_gate(ConversationDecision("Hello!", text="hello there"), [SHIP, NOTE], "run-1") is None


def test_a_workflow_that_is_named_by_its_prefix_is_started_although_it_waits() -> None:
    assert ask_for_gate(WorkflowDecision("note", "this", text="%note this"), [NOTE], "run-2") is None
