"""The printer of S-expressions: what it prints is read back as the same forms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.text.sexpr import (
    Constant,
    Form,
    Keyword,
    ListForm,
    MapForm,
    Number,
    String,
    Symbol,
    VectorForm,
    print_form,
    read_single_form,
)
from nerve.text.sexpr.forms import map_key_text

names = st.from_regex(r"[a-z@?*/<=!_.-][a-z0-9/:-]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("true", "false", "nil") and not name.lstrip("-").lstrip(".")[:1].isdigit()
)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
keys = st.builds(Keyword, names) | st.builds(String, st.text())
atoms: st.SearchStrategy[Form] = (
    st.builds(Symbol, names)
    | st.builds(Keyword, names)
    | st.builds(String, st.text())
    | st.builds(Number, numbers)
    | st.builds(Constant, st.sampled_from([True, False, None]))
)


def around(forms: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    items = st.lists(forms, max_size=5).map(tuple)
    pairs = st.lists(st.tuples(keys, forms), max_size=4, unique_by=lambda pair: map_key_text(pair[0])).map(
        tuple
    )
    return st.builds(ListForm, items) | st.builds(VectorForm, items) | st.builds(MapForm, pairs)


@settings(deadline=None)
@given(st.recursive(atoms, around, max_leaves=30), st.sampled_from([1, 20, 100, 10_000]))
def test_what_is_printed_is_read_back_as_the_same_form(form: Form, width: int) -> None:
    assert read_single_form(print_form(form, width)) == form


def test_a_long_form_is_broken_into_lines() -> None:
    text = '(state review (log "a") (send-prompt :agent planner :template "Review it"))'
    assert print_form(read_single_form(text), 40) == (
        '(state review\n  (log "a")\n  (send-prompt\n    :agent planner\n    :template "Review it"))'
    )


@pytest.mark.parametrize(
    "form",
    [
        Symbol("a b"),
        Symbol("true"),
        Symbol("12"),
        Symbol(""),
        Keyword(""),
        Keyword("a)"),
        Number(float("nan")),
        Number(2**60),
        String("\ud800"),
    ],
    ids=repr,
)
def test_what_could_not_be_read_back_is_not_printed(form: Form) -> None:
    with pytest.raises(ValueError):
        print_form(form)
