"""Gates in the state: opened, answered here or elsewhere, and never asked twice."""

import pytest

from commander.core.events import Journal, make_run
from commander.core.test_state import followed
from nerve.api.models import GateResponse
from nerve.commander.core.name_resolution import (
    find_gate_by_name,
    split_answer,
    split_reason,
)
from nerve.commander.core.state import CommanderState
from nerve.ui.gate_names import (
    APPROVE_WORDS,
    REJECT_WORDS,
    AmbiguousAnswer,
    match_choice,
    resolve_typed_choice,
)


def asking(count: int = 1) -> tuple[CommanderState, list[Journal]]:
    """Return a state that follows runs, each of which waits at a gate."""
    state, journals = CommanderState(), []
    for n in range(1, count + 1):
        journal = Journal(f"run-{n}", label=f"v{n}")
        journal.gate(f"/approve{n}/answer", f"gate{n}")
        state.merge_runs([make_run(journal.run_id, label=f"v{n}")])
        state.show_run(journal.run_id)
        state.apply_events(journal.events)
        journals.append(journal)
    return state, journals


def test_an_open_gate_appears_in_the_list_on_its_card_and_in_the_conversation() -> None:
    state, _ = asking()
    block = state.blocks[-1]
    assert [gate.gate_id for gate in state.gates] == ["gate1"]
    assert state.runs["run-1"].state == "waiting"
    assert (block.kind, block.text, block.done, block.value) == ("gate", "Ship it?", False, None)
    assert block.gate is not None
    assert block.gate.choices == ["yes", "no"]


def test_an_answer_given_elsewhere_closes_the_gate_and_its_card() -> None:
    state, (journal,) = asking()
    state.open_gate("gate1")
    state.changes.drain()
    state.apply_event(journal.answer("/approve1/answer", "gate1", "no"))
    assert (state.gates, state.open_gate_id, state.runs["run-1"].gates) == ([], None, [])
    gate_block, note = state.blocks[-2:]
    assert (gate_block.done, gate_block.value) == (True, "no")
    assert (note.kind, note.text) == ("note", "'approve1' was answered elsewhere: no")
    assert {"gates", "opened"} <= state.changes.flags


@pytest.mark.parametrize("how", ["gate_timeout", "gate_cancelled", "workflow_cancelled", "path_reset"])
def test_a_gate_closes_with_any_outcome(how: str) -> None:
    state, (journal,) = asking()
    path = {"workflow_cancelled": "", "path_reset": "/approve1"}.get(how, "/approve1/answer")
    state.apply_event(journal.add(how, path, reason="x"))
    assert (state.gates, state.blocks[-1].done, state.blocks[-1].value) == ([], True, None)


def test_a_gate_answered_before_loading_is_not_shown() -> None:
    journal = Journal()
    journal.gate()
    journal.answer()
    state = followed(journal)
    state.apply_events(journal.events)
    assert [block.kind for block in state.blocks] == ["run"]


def test_the_gate_list_replaces_the_known_gates() -> None:
    state, _ = asking(2)
    other = GateResponse(gate_id="new", run_id="run-2", path="/other/answer", prompt="Really?")
    state.replace_gates([other])
    assert [gate.gate_id for gate in state.gates] == ["new"]
    assert (state.runs["run-1"].gates, len(state.runs["run-2"].gates)) == ([], 1)
    gate_blocks = [block for block in state.blocks if block.kind == "gate"]
    assert [block.done for block in gate_blocks] == [True, True, False]


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
def test_a_number_selects_the_choice(line: str, answer: str) -> None:
    assert resolve_typed_choice(line, ["yes", "no"]) == answer


def test_a_choice_that_is_a_number_takes_precedence() -> None:
    assert resolve_typed_choice("2", ["2", "1"]) == "2"
    assert resolve_typed_choice("2", []) == "2"
    assert resolve_typed_choice(" free text ", []) == " free text "


def test_approval_is_never_guessed() -> None:
    gate = GateResponse(gate_id="g", run_id="r", path="/x/answer", prompt="?", choices=["Approve", "Reject"])
    assert (match_choice(gate, APPROVE_WORDS), match_choice(gate, REJECT_WORDS)) == ("Approve", "Reject")
    free = GateResponse(gate_id="g", run_id="r", path="/x/answer", prompt="?")
    with pytest.raises(AmbiguousAnswer, match=r"takes any text\. Answer with: /answer g TEXT"):
        match_choice(free, APPROVE_WORDS)


def test_a_gate_is_found_by_name_id_number_or_run_label() -> None:
    state, _ = asking(2)
    for name in ("approve2", "gate2", "2", "v2", "run-2", "/approve2"):
        assert find_gate_by_name(state, name).gate_id == "gate2"
    with pytest.raises(AmbiguousAnswer, match="No open gate 'zzz'"):
        find_gate_by_name(state, "zzz")


def test_the_default_gate_is_the_open_one_that_of_the_focused_run_or_the_only_one() -> None:
    state, _ = asking(2)
    with pytest.raises(AmbiguousAnswer, match="Several gates are open"):
        find_gate_by_name(state, "")
    state.focus_run("run-2")
    assert find_gate_by_name(state, "").gate_id == "gate2"
    state.open_gate("gate1")
    assert find_gate_by_name(state, "").gate_id == "gate1"
    with pytest.raises(AmbiguousAnswer, match="No gate is open"):
        find_gate_by_name(CommanderState(), "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", ("gate1", "yes")),
        ("2 no way", ("gate2", "no way")),
        ("approve2 yes", ("gate2", "yes")),
        ("it is fine", ("gate1", "it is fine")),
        ("1", ("gate1", "1")),
    ],
)
def test_the_first_word_of_an_answer_names_a_gate_only_if_it_exists(
    text: str, expected: tuple[str, str]
) -> None:
    state, _ = asking(2)
    state.focus_run("run-1")
    gate, answer = split_answer(state, text)
    assert (gate.gate_id, answer) == expected


def test_text_after_an_approval_is_its_reason() -> None:
    state, _ = asking(2)
    state.focus_run("run-1")
    for text, expected in {
        "": ("gate1", ""),
        "approve2": ("gate2", ""),
        "approve2 looks good": ("gate2", "looks good"),
        "looks good": ("gate1", "looks good"),
    }.items():
        gate, reason = split_reason(state, text)
        assert (gate.gate_id, reason) == expected


# -- the prompt of a gate --------------------------------------------------------------------------------


@pytest.mark.requirement("S1-40")
def test_only_gates_of_the_focused_run_open_automatically() -> None:
    state, _ = asking(2)
    assert state.open_gate_id is None
    state.focus_run("run-2")
    assert state.open_gate_id == "gate2"


def test_a_line_being_typed_keeps_its_target_when_a_gate_opens() -> None:
    state, journal = CommanderState(), Journal("run-1")
    state.merge_runs([make_run("run-1")])
    state.show_run("run-1")
    state.focus_run("run-1")
    state.set_typing(True)
    journal.gate("/approve/answer", "gate1")
    state.apply_events(journal.events)
    assert state.open_gate_id is None
    state.set_typing(False)
    assert state.open_gate_id == "gate1"


def test_a_line_typed_for_a_gate_stays_with_it_when_it_is_answered_elsewhere() -> None:
    state, (journal,) = asking()
    state.focus_run("run-1")
    state.set_typing(True)
    state.apply_event(journal.answer("/approve1/answer", "gate1", "no"))
    assert (state.open_gate_id, state.find_gate(state.open_gate_id)) == ("gate1", None)
    state.set_typing(False)
    assert state.open_gate_id is None


def test_a_deferred_gate_does_not_reopen_automatically() -> None:
    state, (journal,) = asking()
    state.focus_run("run-1")
    state.defer_gate()
    state.apply_event(journal.add("log", "/approve1", message="x"))
    assert state.open_gate_id is None
    state.focus_run(None)
    state.focus_run("run-1")
    assert state.open_gate_id is None
    state.open_gate("gate1")
    assert state.open_gate_id == "gate1"


@pytest.mark.requirement("S1-40")
def test_focusing_another_run_closes_the_gate_of_the_previous_run() -> None:
    state, _ = asking(2)
    state.focus_run("run-1")
    state.merge_runs([make_run("run-3")])
    state.focus_run("run-3")
    assert state.open_gate_id is None
    state.open_gate("gate2")
    state.set_typing(True)
    state.focus_run("run-1")
    assert state.open_gate_id == "gate2"
    state.set_typing(False)
    assert state.open_gate_id == "gate1"


def test_gates_do_not_open_when_automatic_opening_is_off() -> None:
    state, _ = asking()
    state.auto_opens_gates = False
    state.focus_run("run-1")
    assert state.open_gate_id is None
