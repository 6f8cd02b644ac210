"""The full form: whatever a spec holds can be written down in Lisp and read back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.notations.lisp import read_document, write_document
from nerve.text.source import Position

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def typed(value: Any) -> Any:
    """A value in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_what_is_written_is_read_back_as_the_same_data(data: dict[str, Any]) -> None:
    document = read_document(write_document(data))
    assert typed(document.data) == typed(data)
    assert list(document.data) == list(data)


def test_the_spec_is_written_as_lisp_literals() -> None:
    data = {"name": "x y", "limits": {"steps": 3}, "body": {"kind": "sequence", "steps": []}, "odd key": None}
    assert write_document(data) == (
        '(spec {:name "x y" :limits {:steps 3} :body {:kind "sequence" :steps []} "odd key" nil})\n'
    )


def test_every_value_has_its_source_position() -> None:
    document = read_document(
        '(spec {:name "x"\n :body {:kind "graph"\n  :steps [{:kind "bash"}]}})', "f.lisp"
    )
    assert document.position_of(("name",)) == Position(1, 14)
    assert document.position_of(("name",), key=True) == Position(1, 8)
    assert document.position_of(("body", "steps", 0)) == Position(3, 11)
    assert document.position_of(("body", "steps", 0, "kind")) == Position(3, 18)


def test_a_spec_as_deep_as_any_may_be_is_written_and_read() -> None:
    deepest: Any = "x"
    for _ in range(63):
        deepest = [deepest]
    assert read_document(write_document({"a": deepest})).data == {"a": deepest}
    with pytest.raises(ValueError, match="nested deeper than 64 levels"):
        write_document({"a": [[deepest]]})


@pytest.mark.parametrize("value", [{1: 2}, float("inf"), 2**60, "\ud800", object(), {1, 2}])
def test_what_is_not_json_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError):
        write_document({"a": value})
