"""What `::…` stands for."""

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.commander.core.input_parser import parse_input
from nerve.commander.core.references import (
    UnresolvedReference,
    resolve_input,
    resolve_references,
    resolve_text_value,
)


@dataclass
class Block:
    number: int
    kind: str
    name: str = ""
    text: str = ""
    value: Any = None
    done: bool = True
    end_order: int = 0


BLOCKS = [
    Block(1, "input", text="%plan a house"),
    Block(2, "run", "plan", value={"rooms": [{"name": "hall"}, {"name": "bath"}], "cost": 5}),
    Block(3, "text", "router", text="**Hello**"),
    Block(4, "run", "review", value="looks good"),
    Block(5, "run", "plan", done=False),
    Block(6, "note", text="paused"),
    Block(7, "run", "broken"),
]


@pytest.mark.requirement("S0-62")
@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("say ::4 again", "say looks good again"),
        ("::3", "**Hello**"),
        ("::1", "%plan a house"),
        (":::review!", "looks good!"),
        ("(::review)", "(looks good)"),
        ("::plan[cost]", "5"),
        ("in the ::2[rooms][1][name].", "in the bath."),
        ("::2[rooms][-1]['name']", "bath"),
        ("std::vector a::b http://x::3", "std::vector a::b http://x::3"),
        ("write \\::4 to refer", "write ::4 to refer"),
        ("no references", "no references"),
    ],
)
def test_a_reference_stands_for_what_a_block_gave(text, resolved):
    assert resolve_references(text, BLOCKS) == resolved


def test_last_and_numbers_from_the_end_count_results_that_are_there():
    blocks = BLOCKS[:6]
    assert resolve_references("::last ::-1 ::-2", blocks) == "looks good looks good **Hello**"


def test_the_last_result_is_what_ended_last():
    blocks = [
        Block(1, "run", "plan", value="first", end_order=3),
        Block(2, "run", "plan", value="second", end_order=1),
        Block(3, "text", "router", text="Is 'plan' to be started?", end_order=2),
    ]
    assert resolve_references("::last ::-1 ::-3 ::plan", blocks) == "first first second first"


def test_a_whole_reference_keeps_the_kind_of_its_value():
    assert resolve_text_value("::2[rooms]", BLOCKS) == [{"name": "hall"}, {"name": "bath"}]
    assert resolve_text_value("see ::2[cost]", BLOCKS) == "see 5"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("::9", "Result ::9 not found. Results are numbered 1 to 7."),
        ("::-9", "Result ::-9 not found. There are 4 results so far."),
        ("::5", "::5 has no result yet: plan is not finished."),
        ("::7", "::7 has no result: broken failed or returned nothing."),
        ("::reviw", "Result 'reviw' not found. Did you mean 'review'?"),
        ("::before", "To send the text as it is, write \\::before."),
        ("::2[roms]", "::2 has no field 'roms'. It has: rooms, cost."),
        ("::2[rooms][7]", "::2[rooms] is a list of 2 items: [7] is out of range."),
        ("::4[x]", "::4 has no fields: it is a string."),
    ],
)
def test_a_wrong_reference_is_told_in_a_sentence(text, told):
    with pytest.raises(UnresolvedReference) as raised:
        resolve_references(text, BLOCKS)
    assert told in str(raised.value)


def test_without_blocks_there_is_nothing_to_refer_to():
    with pytest.raises(UnresolvedReference, match="No results yet"):
        resolve_references("::last", [])
    with pytest.raises(UnresolvedReference, match="No results yet"):
        resolve_references("::1", [])


def test_what_a_reference_gives_is_no_prefix_no_option_and_no_reference():
    blocks = [Block(1, "run", "evil", value="--force ::1 /stop")]
    parsed, value = resolve_input(parse_input("%ship --note=::1 ::evil"), blocks)
    assert parsed.options == {"note": "--force ::1 /stop"}
    assert parsed.text == value == "--force ::1 /stop"


def test_the_options_and_the_input_of_a_workflow_may_be_values():
    parsed, value = resolve_input(parse_input("%build --rooms=::2[rooms] ::2"), BLOCKS)
    assert parsed.options["rooms"][0] == {"name": "hall"}
    assert value["cost"] == 5


@given(st.text(alphabet="ab:3-[]\\ lst\n'\"", max_size=40))
def test_any_text_is_resolved_or_told_why_not(text):
    with contextlib.suppress(UnresolvedReference):
        resolve_references(text, BLOCKS)


@given(st.text().filter(lambda text: ":" not in text))
def test_a_text_without_references_stays_as_it_is(text):
    assert resolve_references(text, BLOCKS) == text


@given(st.text())
def test_a_result_comes_through_unchanged(text):
    assert resolve_references("::1", [Block(1, "run", value=text)]) == text
