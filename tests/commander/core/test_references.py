"""Resolution of `::…` references."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.commander.core.blocks import Block, BlockKind
from nerve.commander.core.input_parser import parse_input
from nerve.commander.core.references import (
    UnresolvedReference,
    resolve_input,
    resolve_references,
    resolve_text_value,
)


def block(number: int, kind: BlockKind, name: str = "", **fields: Any) -> Block:
    return Block(number, kind, name=name, number=number, **fields)


BLOCKS = [
    block(1, "input", text="%plan a house"),
    block(2, "run", "plan", value={"rooms": [{"name": "hall"}, {"name": "bath"}], "cost": 5}),
    block(3, "text", "router", text="**Hello**"),
    block(4, "run", "review", value="looks good"),
    block(5, "run", "plan", done=False),
    block(6, "note", text="paused"),
    block(7, "run", "broken"),
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
def test_a_reference_resolves_to_the_value_of_its_block(text, resolved):
    assert resolve_references(text, BLOCKS) == resolved


def test_last_and_negative_numbers_count_finished_results():
    blocks = BLOCKS[:6]
    assert resolve_references("::last ::-1 ::-2", blocks) == "looks good looks good **Hello**"


def test_the_last_result_is_the_one_that_finished_last():
    blocks = [
        block(1, "run", "plan", value="first", end_order=3),
        block(2, "run", "plan", value="second", end_order=1),
        block(3, "text", "router", text="Is 'plan' to be started?", end_order=2),
    ]
    assert resolve_references("::last ::-1 ::-3 ::plan", blocks) == "first first second first"


def test_a_text_that_is_one_reference_keeps_the_type_of_its_value():
    assert resolve_text_value("::2[rooms]", BLOCKS) == [{"name": "hall"}, {"name": "bath"}]
    assert resolve_text_value("see ::2[cost]", BLOCKS) == "see 5"


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_an_invalid_reference_is_explained(text, expected):
    with pytest.raises(UnresolvedReference) as raised:
        resolve_references(text, BLOCKS)
    assert expected in str(raised.value)


def test_a_reference_without_blocks_is_an_error():
    with pytest.raises(UnresolvedReference, match="No results yet"):
        resolve_references("::last", [])
    with pytest.raises(UnresolvedReference, match="No results yet"):
        resolve_references("::1", [])


def test_a_referenced_value_is_not_parsed_as_prefix_option_or_reference():
    blocks = [block(1, "run", "evil", value="--force ::1 /stop")]
    parsed, value = resolve_input(parse_input("%ship --note=::1 ::evil"), blocks)
    assert parsed.options == {"note": "--force ::1 /stop"}
    assert parsed.text == value == "--force ::1 /stop"


def test_the_options_and_the_input_of_a_workflow_may_be_values():
    parsed, value = resolve_input(parse_input("%build --rooms=::2[rooms] ::2"), BLOCKS)
    assert parsed.options["rooms"][0] == {"name": "hall"}
    assert value["cost"] == 5


@given(st.text(alphabet="ab:3-[]\\ lst\n'\"", max_size=40))
def test_any_text_is_resolved_or_explained(text):
    with contextlib.suppress(UnresolvedReference):
        resolve_references(text, BLOCKS)


@given(st.text().filter(lambda text: ":" not in text))
def test_a_text_without_references_is_unchanged(text):
    assert resolve_references(text, BLOCKS) == text


@given(st.text())
def test_a_referenced_result_is_unchanged(text):
    assert resolve_references("::1", [block(1, "run", value=text)]) == text
