"""Gates on the desk: opened, answered here or elsewhere, and never asked twice."""

import pytest

from commander.core.events import Journal, run_told
from commander.core.test_state import followed
from nerve.api.models import GateResponse
from nerve.commander.core.gate_selection import (
    AmbiguousAnswer,
    find_gate_by_name,
    match_choice,
    split_answer,
    split_reason,
)
from nerve.commander.core.state import CommanderState
from nerve.ui.gate_names import APPROVE_WORDS, REJECT_WORDS, resolve_typed_choice


def asking(count: int = 1) -> tuple[CommanderState, list[Journal]]:
    """A desk that follows runs which wait at a gate each."""
    desk, journals = CommanderState(), []
    for n in range(1, count + 1):
        journal = Journal(f"run-{n}", label=f"v{n}")
        journal.gate(f"/approve{n}/answer", f"gate{n}")
        desk.merge_runs([run_told(journal.run_id, label=f"v{n}")])
        desk.show_run(journal.run_id)
        desk.apply_events(journal.events)
        journals.append(journal)
    return desk, journals


def test_an_open_gate_is_in_the_list_on_its_card_and_in_the_conversation() -> None:
    desk, _ = asking()
    block = desk.blocks[-1]
    assert [gate.gate_id for gate in desk.gates] == ["gate1"]
    assert desk.runs["run-1"].state == "waiting"
    assert (block.kind, block.text, block.done, block.value) == ("gate", "Ship it?", False, None)
    assert block.gate is not None
    assert block.gate.choices == ["yes", "no"]


def test_an_answer_given_elsewhere_closes_the_gate_and_its_card() -> None:
    desk, (journal,) = asking()
    desk.open_gate("gate1")
    desk.changes.drain()
    desk.apply_event(journal.answer("/approve1/answer", "gate1", "no"))
    assert (desk.gates, desk.open_gate_id, desk.runs["run-1"].gates) == ([], None, [])
    asked, told = desk.blocks[-2:]
    assert (asked.done, asked.value) == (True, "no")
    assert (told.kind, told.text) == ("note", "'approve1' was answered elsewhere: no")
    assert {"gates", "opened"} <= desk.changes.flags


@pytest.mark.parametrize("how", ["gate_timeout", "gate_cancelled", "workflow_cancelled", "path_reset"])
def test_a_gate_closes_whatever_became_of_it(how: str) -> None:
    desk, (journal,) = asking()
    path = {"workflow_cancelled": "", "path_reset": "/approve1"}.get(how, "/approve1/answer")
    desk.apply_event(journal.add(how, path, reason="x"))
    assert (desk.gates, desk.blocks[-1].done, desk.blocks[-1].value) == ([], True, None)


def test_a_gate_that_was_answered_before_anybody_looked_is_not_asked() -> None:
    journal = Journal()
    journal.gate()
    journal.answer()
    desk = followed(journal)
    desk.apply_events(journal.events)
    assert [block.kind for block in desk.blocks] == ["run"]


def test_the_list_of_gates_replaces_what_was_known() -> None:
    desk, _ = asking(2)
    other = GateResponse(gate_id="new", run_id="run-2", path="/other/answer", prompt="Really?")
    desk.replace_gates([other])
    assert [gate.gate_id for gate in desk.gates] == ["new"]
    assert (desk.runs["run-1"].gates, len(desk.runs["run-2"].gates)) == ([], 1)
    asked = [block for block in desk.blocks if block.kind == "gate"]
    assert [block.done for block in asked] == [True, True, False]


@pytest.mark.requirement("S0-65")
@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("1", "yes"),
        ("2", "no"),
        ("YES", "yes"),
        ("no", "no"),
        ("3", "3"),
        ("0", "0"),
        (" 1 ", "yes"),
        ("²", "²"),
    ],
)
def test_a_number_is_the_choice_of_that_number(line: str, answer: str) -> None:
    assert resolve_typed_choice(line, ["yes", "no"]) == answer


def test_a_choice_that_is_a_number_itself_is_meant_by_it() -> None:
    assert resolve_typed_choice("2", ["2", "1"]) == "2"
    assert resolve_typed_choice("2", []) == "2"
    assert resolve_typed_choice(" free text ", []) == " free text "


def test_approval_is_never_guessed() -> None:
    gate = GateResponse(gate_id="g", run_id="r", path="/x/answer", prompt="?", choices=["Approve", "Reject"])
    assert (match_choice(gate, APPROVE_WORDS), match_choice(gate, REJECT_WORDS)) == ("Approve", "Reject")
    free = GateResponse(gate_id="g", run_id="r", path="/x/answer", prompt="?")
    with pytest.raises(AmbiguousAnswer, match=r"takes any text\. Answer with: /answer g TEXT"):
        match_choice(free, APPROVE_WORDS)


def test_a_gate_is_found_by_name_id_number_or_label_of_its_run() -> None:
    desk, _ = asking(2)
    for name in ("approve2", "gate2", "2", "v2", "run-2", "/approve2"):
        assert find_gate_by_name(desk, name).gate_id == "gate2"
    with pytest.raises(AmbiguousAnswer, match="No open gate 'zzz'"):
        find_gate_by_name(desk, "zzz")


def test_without_a_name_the_opened_gate_is_meant_or_that_of_the_run_in_focus_or_the_only_one() -> None:
    desk, _ = asking(2)
    with pytest.raises(AmbiguousAnswer, match="Several gates are open"):
        find_gate_by_name(desk, "")
    desk.focus_run("run-2")
    assert find_gate_by_name(desk, "").gate_id == "gate2"
    desk.open_gate("gate1")
    assert find_gate_by_name(desk, "").gate_id == "gate1"
    with pytest.raises(AmbiguousAnswer, match="No gate is open"):
        find_gate_by_name(CommanderState(), "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("yes", ("gate1", "yes")),
        ("2 no way", ("gate2", "no way")),
        ("approve2 yes", ("gate2", "yes")),
        ("it is fine", ("gate1", "it is fine")),
        ("1", ("gate1", "1")),
    ],
)
def test_the_first_word_of_an_answer_names_a_gate_only_if_there_is_one(
    text: str, told: tuple[str, str]
) -> None:
    desk, _ = asking(2)
    desk.focus_run("run-1")
    gate, answer = split_answer(desk, text)
    assert (gate.gate_id, answer) == told


def test_what_stands_behind_an_approval_is_its_reason() -> None:
    desk, _ = asking(2)
    desk.focus_run("run-1")
    for text, told in {
        "": ("gate1", ""),
        "approve2": ("gate2", ""),
        "approve2 looks good": ("gate2", "looks good"),
        "looks good": ("gate1", "looks good"),
    }.items():
        gate, reason = split_reason(desk, text)
        assert (gate.gate_id, reason) == told


# -- the prompt of a gate --------------------------------------------------------------------------------


@pytest.mark.requirement("S1-40")
def test_a_gate_of_the_watched_run_takes_the_prompt_and_those_of_others_do_not() -> None:
    desk, _ = asking(2)
    assert desk.open_gate_id is None
    desk.focus_run("run-2")
    assert desk.open_gate_id == "gate2"


def test_a_line_that_is_being_typed_keeps_its_target_when_a_gate_opens() -> None:
    desk, journal = CommanderState(), Journal("run-1")
    desk.merge_runs([run_told("run-1")])
    desk.show_run("run-1")
    desk.focus_run("run-1")
    desk.set_typing(True)
    journal.gate("/approve/answer", "gate1")
    desk.apply_events(journal.events)
    assert desk.open_gate_id is None
    desk.set_typing(False)
    assert desk.open_gate_id == "gate1"


def test_a_line_that_is_typed_for_a_gate_stays_its_own_when_the_gate_is_answered_elsewhere() -> None:
    desk, (journal,) = asking()
    desk.focus_run("run-1")
    desk.set_typing(True)
    desk.apply_event(journal.answer("/approve1/answer", "gate1", "no"))
    assert (desk.open_gate_id, desk.find_gate(desk.open_gate_id)) == ("gate1", None)
    desk.set_typing(False)
    assert desk.open_gate_id is None


def test_a_gate_that_the_user_left_does_not_take_the_prompt_again() -> None:
    desk, (journal,) = asking()
    desk.focus_run("run-1")
    desk.defer_gate()
    desk.apply_event(journal.add("log", "/approve1", message="x"))
    assert desk.open_gate_id is None
    desk.focus_run(None)
    desk.focus_run("run-1")
    assert desk.open_gate_id is None
    desk.open_gate("gate1")
    assert desk.open_gate_id == "gate1"


@pytest.mark.requirement("S1-40")
def test_when_another_run_is_watched_the_prompt_leaves_the_gate_of_the_run_before() -> None:
    desk, _ = asking(2)
    desk.focus_run("run-1")
    desk.merge_runs([run_told("run-3")])
    desk.focus_run("run-3")
    assert desk.open_gate_id is None
    desk.open_gate("gate2")
    desk.set_typing(True)
    desk.focus_run("run-1")
    assert desk.open_gate_id == "gate2"
    desk.set_typing(False)
    assert desk.open_gate_id == "gate1"


def test_gates_stay_closed_where_the_user_wants_to_open_them() -> None:
    desk, _ = asking()
    desk.auto_opens_gates = False
    desk.focus_run("run-1")
    assert desk.open_gate_id is None
