"""The full form: what is written is read back as it was, and can be read by people."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.notations.yaml_prompts import read_document, write_document
from nerve.text.yaml_reader import load_yaml

TEXT = st.text(max_size=30) | st.text(
    "ab \n\t'\":#-{}[]|>&*!%@`,?\\0123.eE+~<=\r\x7f\x85\xa0\u2028\ufeff", max_size=12
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(
        ["", "null", "yes", "on", "1:30", "0x1", "1e3", ".inf", "<<", "=", "---", "- a", "a: b", " a"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal, with 1 and 1.0 and true told apart."""
    return json.dumps(one) == json.dumps(other)


@settings(max_examples=200)
@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_what_is_written_is_read_back_as_it_was(data: dict[str, Any]) -> None:
    assert same(load_yaml(write_document(data)), data)
    full = {**data, "body": {"kind": "transform", "expression": "1"}}
    full = {key: value for key, value in full.items() if key not in ("steps", "nodes")}
    assert same(read_document(write_document(full)).data, full)


@settings(max_examples=300)
@given(st.text("ab \n\t#:-", max_size=20))
def test_any_layout_of_lines_survives(text: str) -> None:
    data = {"a": text, "b": [text, {"c": text, "d": [[text]]}], "e": text}
    assert load_yaml(write_document(data)) == data


def test_a_spec_is_written_to_be_read_by_people() -> None:
    data = {
        "name": "review",
        "description": "Review a change: twice.",
        "body": {
            "kind": "sequence",
            "steps": [
                {"kind": "prompt", "id": "look", "text": "Look at it.\n\n  - {{ input }}\n"},
                {
                    "kind": "bash",
                    "command": "make test\nmake bench",
                    "env": {"ON": "yes", "N": "1"},
                    "timeout": 5,
                },
                {"kind": "branch", "condition": "steps['look'].output == \"ok\"", "then": {"kind": "goto"}},
                {"kind": "transform", "expression": '{"a": 1}', "when": "true"},
                {"kind": "reduce", "expression": "acc + item", "initial": [], "over": "[1, [2]]"},
            ],
        },
    }
    assert (
        write_document(data)
        == """name: review
description: "Review a change: twice."
body:
  kind: sequence
  steps:
    - kind: prompt
      id: look
      text: |
        Look at it.

          - {{ input }}
    - kind: bash
      command: |-
        make test
        make bench
      env:
        ON: yes
        N: "1"
      timeout: 5
    - kind: branch
      condition: steps['look'].output == "ok"
      then:
        kind: goto
    - kind: transform
      expression: '{"a": 1}'
      when: "true"
    - kind: reduce
      expression: acc + item
      initial: []
      over: "[1, [2]]"
"""
    )
    assert read_document(write_document(data)).data == data


def test_keys_of_any_length_are_read_back() -> None:
    data = {"body": {"k" * 1500: {"a": [1, {"x y" * 500: "z\n"}]}, "": 1, "é ü": 2}}
    assert read_document(write_document(data)).data == data


def test_what_yaml_cannot_carry_is_refused() -> None:
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    for wrong in (float("nan"), float("inf"), 2**53 + 1, object(), {1: 2}, "\ud800", deep):
        with pytest.raises(ValueError):
            write_document({"body": wrong})
    assert load_yaml(write_document({"body": deep[0]})) == {"body": deep[0]}


def test_the_full_form_keeps_its_places() -> None:
    document = read_document("name: x\nbody:\n  kind: sequence\n  steps:\n    - kind: goto\n", "x.yaml")
    assert str(document.problem(("body", "steps", 0, "kind"), "here")) == "x.yaml:5:13: here"


def test_only_one_form_may_be_used() -> None:
    with pytest.raises(ValueError, match="only one of steps, body"):
        read_document("name: x\nsteps: []\nbody: {kind: goto}\n")
