"""Gates: their identity, what is shown of them, and which answers they take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.gates import check_answer, gate_id, waiting
from nerve.core.runtime import Gate


@pytest.mark.requirement("C-24")
@given(st.text(), st.text(), st.integers(8, 64))
def test_the_id_is_hex_and_the_same_for_the_same_place_of_the_same_run(
    run: str, path: str, length: int
) -> None:
    assert gate_id(run, path) == gate_id(run, path)
    assert len(gate_id(run, path, length)) == length
    assert gate_id(run, path, length).startswith(gate_id(run, path))
    int(gate_id(run, path), 16)


def test_only_what_is_known_of_a_gate_is_told() -> None:
    assert waiting(Gate("/g", "Go?"), "12345678", None) == {
        "gate_id": "12345678",
        "prompt": "Go?",
        "choices": None,
        "options": None,
    }


@pytest.mark.requirement("S1-23")
@pytest.mark.requirement("C-24")
def test_a_gate_node_tells_its_id_the_preview_and_the_time_it_has() -> None:
    gate = Gate("/g", "Go?", None, ["yes"], timeout=0, node_id="ok", input_preview="text", note="again")
    told = waiting(gate, "12345678", deadline=5.0)
    assert (told["node_id"], told["input_preview"], told["note"]) == ("ok", "text", "again")
    assert (told["options"], told["timeout"], told["deadline"]) == (["yes"], 0, 5.0)


@pytest.mark.requirement("C-12")
def test_choices_are_the_only_answers() -> None:
    check_answer("yes", ["yes", "no"])
    with pytest.raises(ValueError, match=r"Invalid choice 'maybe'\. Must be one of: \['yes', 'no'\]"):
        check_answer("maybe", ["yes", "no"])


@pytest.mark.requirement("C-12")
@pytest.mark.parametrize("choices", [None, []])
def test_without_choices_any_answer_will_do(choices: list[str] | None) -> None:
    check_answer("anything", choices)
