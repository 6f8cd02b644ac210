"""Gates: ids, event data and validation of answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.gates import (
    GateMatch,
    check_choices,
    gate_id,
    gate_waiting_data,
    match_gate_name,
    read_edited_input,
    validate_answer,
)
from nerve.core.json_codec import unsafe_integer_message
from nerve.core.runtime import GateWait
from nerve.core.workflow.state import GateInfo


@pytest.mark.requirement("C-24")
@given(st.text(), st.text(), st.integers(8, 64))
def test_the_id_is_hex_and_stable_for_a_path_of_a_run(run: str, path: str, length: int) -> None:
    assert gate_id(run, path) == gate_id(run, path)
    assert len(gate_id(run, path, length)) == length
    assert gate_id(run, path, length).startswith(gate_id(run, path))
    int(gate_id(run, path), 16)


def test_gate_data_contains_only_set_fields() -> None:
    assert gate_waiting_data(GateWait("/g", "Go?"), "12345678", None) == {
        "gate_id": "12345678",
        "prompt": "Go?",
        "choices": None,
        "options": None,
    }


@pytest.mark.requirement("S1-23")
@pytest.mark.requirement("C-24")
def test_gate_data_has_node_id_preview_and_timeout() -> None:
    gate = GateWait("/g", "Go?", None, ["yes"], timeout=0, node_id="ok", input_preview="text", note="again")
    told = gate_waiting_data(gate, "12345678", deadline=5.0)
    assert (told["node_id"], told["input_preview"], told["note"]) == ("ok", "text", "again")
    assert (told["options"], told["timeout"], told["deadline"]) == (["yes"], 0, 5.0)


@pytest.mark.requirement("C-12")
def test_only_choices_are_accepted() -> None:
    validate_answer("yes", ["yes", "no"])
    with pytest.raises(ValueError, match=r"Invalid choice 'maybe'\. Must be one of: \['yes', 'no'\]"):
        validate_answer("maybe", ["yes", "no"])


@pytest.mark.requirement("C-12")
@pytest.mark.parametrize("choices", [None, []])
def test_without_choices_any_answer_is_accepted(choices: list[str] | None) -> None:
    validate_answer("anything", choices)


FORM = {
    "type": "object",
    "properties": {"version": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["version"],
}


def test_a_form_accepts_a_matching_value_or_json_string() -> None:
    assert validate_answer({"version": "3"}, None, FORM) == {"version": "3"}
    assert validate_answer('{"version": "3", "count": 2}', None, FORM) == {"version": "3", "count": 2}
    assert validate_answer("7", None, {"type": "string"}) == "7"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("three", "Invalid answer: it must be a JSON object with version, count (optional)"),
        ("{}", "Invalid answer: 'version' is a required property"),
        ({"version": 3}, "Invalid answer: 3 is not of type 'string' at ['version']"),
        ({"version": "3", "count": 2**60}, f"Invalid answer: {unsafe_integer_message(2**60)}"),
        (f'{{"version": "3", "count": {2**60}}}', f"Invalid answer: {unsafe_integer_message(2**60)}"),
    ],
)
def test_a_form_reports_why_it_rejects_an_answer(answer: object, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        validate_answer(answer, None, FORM)
    assert str(refused.value) == why


def test_a_gate_has_either_choices_or_a_valid_form() -> None:
    with pytest.raises(ValueError, match="not both"):
        check_choices(["yes"], FORM)
    with pytest.raises(ValueError, match="form must be a valid JSON Schema: 'nothing' is not valid"):
        check_choices(None, {"type": "nothing"})


def test_a_field_of_a_form_can_have_any_name() -> None:
    check_choices(None, {"properties": {"pattern": {"const": {"pattern": "a"}}}, "required": ["pattern"]})


@pytest.mark.parametrize(
    "text", ["[" * 300 + "]" * 300, "[" * 100_000, f"[1{'0' * 400}]", "[NaN]", "[1e999]"]
)
def test_a_form_rejects_json_that_cannot_be_stored(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid answer: "):
        validate_answer(text, None, {"type": "array"})


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("a1b2c3d4", GateMatch.EXACT),
        ("/release/check[2]/answer", GateMatch.EXACT),
        ("approval", GateMatch.NAME),
        ("/release/check[2]", GateMatch.NAME),
        ("release/check[2]", GateMatch.NAME),
        ("check[2]", GateMatch.NAME),
        ("check", GateMatch.NAME),
        ("a1b2", GateMatch.ID_PREFIX),
        ("a1b", GateMatch.NAME_PREFIX),
        ("appr", GateMatch.NAME_PREFIX),
        ("/rel", GateMatch.NAME_PREFIX),
        ("heck", None),
        ("", None),
    ],
)
def test_a_gate_has_its_id_its_path_its_node_and_the_end_of_its_path_as_names(
    name: str, match: GateMatch | None
) -> None:
    gate = GateInfo("a1b2c3d4", "Go?", None, path="/release/check[2]/answer", node_id="approval")
    assert match_gate_name(gate, name) is match


@pytest.mark.parametrize("answer", [{"allow": {"command": "ls"}}, ' {"allow": {"command": "ls"}}'])
def test_an_editable_action_is_allowed_with_another_input(answer: Any) -> None:
    assert read_edited_input(answer, {"editable": True}) == {"allow": {"command": "ls"}}


@pytest.mark.parametrize("answer", ["allow", "{", {"deny": {}}, {"allow": {}, "deny": {}}, 3, None])
def test_another_answer_edits_no_input(answer: Any) -> None:
    assert read_edited_input(answer, {"editable": True}) is None


@pytest.mark.parametrize(
    ("answer", "action", "message"),
    [
        ({"allow": {}}, {"tool": "Bash"}, "cannot be edited"),
        ({"allow": "ls"}, {"editable": True}, "must be a JSON object"),
        ({"allow": {"count": 2**60}}, {"editable": True}, "Invalid answer"),
    ],
)
def test_an_edited_input_that_cannot_run_is_refused(answer: Any, action: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_edited_input(answer, action)
