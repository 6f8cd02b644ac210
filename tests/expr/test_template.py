"""Templates: text with expressions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.expr import EvalError, EvaluationLimits, ExprError, Expression, compile_template

SCOPE = {"inputs": {"name": "Ada", "n": 3, "none": None, "list": [1, {"a": True}], "x": "{{ inputs.n }}"}}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Hi {{ inputs.name }}!", "Hi Ada!"),
        ("{{inputs.n}}{{ inputs.n + 0.5 }}", "33.5"),
        ("[{{ inputs.none }}{{ inputs.missing }}{{ NaN }}]", "[]"),
        ("{{ inputs.list }} {{ true }}", '[1,{"a":true}] true'),
        ("{{ {a: {b: 1}} }}", '{"a":{"b":1}}'),
        ("{{ {a: {b: 1}}}}", '{"a":{"b":1}}'),
        ("{{ '}}' }}{{ `}}${'}}'}` }}", "}}}}}}"),
        ("\\{{ inputs.name }} and }} and { }", "{{ inputs.name }} and }} and { }"),
        ("{{ inputs.x }}", "{{ inputs.n }}"),
        ("{{\n  inputs.name\n}}", "Ada"),
        ("nothing", "nothing"),
        ("", ""),
    ],
)
def test_a_template_is_filled_in_one_pass(source: str, text: str) -> None:
    assert compile_template(source)(SCOPE) == text


def test_the_parts_are_in_order_with_their_offsets() -> None:
    source = "Hi {{ inputs.name }}, {{inputs.n > 1 ? 'all' : 'you'}}"
    template = compile_template(source, names={"inputs"})
    assert [part if isinstance(part, str) else part.source for part in template.parts] == [
        "Hi ",
        "inputs.name",
        ", ",
        "inputs.n > 1 ? 'all' : 'you'",
    ]
    for part in template.parts:
        if isinstance(part, Expression):
            assert source[part.offset :].startswith(part.source)
    assert template.names == {"inputs"}
    assert template.paths == {("inputs", "name"), ("inputs", "n")}


def test_a_template_with_one_expression_returns_its_value() -> None:
    assert compile_template("{{ inputs.list }}").value(SCOPE) == [1, {"a": True}]
    assert compile_template(" {{ inputs.n }}").value(SCOPE) == " 3"
    assert compile_template("{{ inputs.n }}{{ inputs.n }}").value(SCOPE) == "33"
    assert compile_template("plain").value(SCOPE) == "plain"


@pytest.mark.parametrize(
    ("source", "offset", "message"),
    [
        ("a {{ inputs.name", 2, "`{{` is not closed"),
        ("a {{ }} b", 2, "Empty expression between `{{` and `}}`"),
        ("a {{ b = 1 }}", 7, "`=` assigns"),
        ("a {{ nmae }}", 5, "Unknown name `nmae`; did you mean `name`?"),
        ("a {{ name } }}", 10, "Unexpected `}`"),
    ],
)
def test_an_error_points_into_the_whole_text(source: str, offset: int, message: str) -> None:
    with pytest.raises(ExprError) as caught:
        compile_template(source, names={"name", "b"})
    assert message in caught.value.message
    assert caught.value.source == source
    assert caught.value.offset == offset


def test_an_error_of_the_values_points_into_the_whole_text() -> None:
    with pytest.raises(EvalError) as caught:
        compile_template("Hi {{ inputs.missing.name }}")(SCOPE)
    assert "Hi {{ inputs.missing.name }}" in str(caught.value)


def test_all_expressions_of_a_template_share_its_fuel() -> None:
    part = "{{ 'x'.repeat(1000) }}"
    assert len(compile_template(part * 10)({})) == 10_000
    with pytest.raises(EvalError, match="steps"):
        compile_template(part * 10, limits=EvaluationLimits(fuel=500))({})


@given(st.text(), st.text(st.characters(exclude_categories=["Cs"])))
def test_literal_text_and_string_values_are_not_changed(text: str, value: str) -> None:
    text = text.replace("{", "(")
    assert compile_template(f"{text}{{{{ value }}}}{text}")({"value": value}) == expected(text, value)


def expected(text: str, value: Any) -> str:
    """The expected text; a backslash before the braces makes them literal."""
    return f"{text[:-1]}{{{{ value }}}}{text}" if text.endswith("\\") else f"{text}{value}{text}"
