"""Descriptions of gate forms."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.gates import validate_answer
from nerve.ui.json_forms import form_field_lines, form_fields, format_example_answer, format_form_hint

RELEASE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "version": {"type": "string", "description": "Which version\nis released"},
        "channel": {"enum": ["beta", "stable"], "default": "beta"},
        "copies": {"type": "integer"},
        "dry": {"type": "boolean", "title": "Only try"},
    },
    "required": ["version", "copies"],
}


def test_each_field_is_a_line_with_its_type() -> None:
    assert form_field_lines(RELEASE) == [
        "version  text, required: Which version is released",
        "channel  beta or stable, default beta",
        "copies   integer, required",
        "dry      true or false: Only try",
    ]


def test_the_example_contains_the_required_fields() -> None:
    assert format_example_answer(RELEASE) == '{"version": "…", "copies": 1}'
    assert format_form_hint(RELEASE) == ' (such as {"version": "…", "copies": 1})'
    assert format_form_hint(None) == ""


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ({"type": "integer"}, "1"),
        ({"type": "string"}, "…"),
        ({"enum": ["a b", 2]}, "a b"),
        ({"type": ["null", "array"]}, "null"),
        ({"type": "array"}, "[]"),
        ({"const": {"a": 1}}, '{"a": 1}'),
        ({"properties": {"note": {"type": "string"}}}, '{"note": "…"}'),
    ],
)
def test_an_example_of_any_form_is_a_valid_answer(form: dict[str, Any], shown: str) -> None:
    assert format_example_answer(form) == shown
    validate_answer(shown, None, form)


@given(
    st.dictionaries(
        st.text(), st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])
    ),
    st.data(),
)
def test_an_example_is_valid_for_any_fields(types: dict[str, str], data: st.DataObject) -> None:
    required = data.draw(st.lists(st.sampled_from(sorted(types)), unique=True)) if types else []
    form = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": required,
    }
    assert len(form_field_lines(form)) == len(form_fields(form)) == len(types)
    assert validate_answer(format_example_answer(form), None, form) == json.loads(format_example_answer(form))


def test_control_characters_are_escaped() -> None:
    form = {"properties": {"a\x1b[2J": {"description": "b\x07"}}, "required": ["a\x1b[2J"]}
    assert not set("\x1b\x07") & set("".join([*form_field_lines(form), format_form_hint(form)]))
