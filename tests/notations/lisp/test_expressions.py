"""Expressions give what they say, templates the text they stand for."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.expr import compile, compile_template
from nerve.notations.lisp import read_document
from nerve.notations.lisp.expressions import (
    Hole,
    escape_template,
    fill_message_template,
    literal_form,
    render_template,
)
from nerve.notations.lisp.program import LispProgram
from nerve.spec.prompt_variables import compile_prompt
from nerve.text.sexpr import String, print_form
from notations.lisp.reading import refused_body, steps

SCOPE = {"input": {"a": [1, 2], "b c": "x"}, "roles": {"planner": "ok"}, "run": {"label": "r1"}}


def value(text: str) -> Any:
    [step] = steps(f"(result {text})")
    return compile(step["expression"])(SCOPE)


@pytest.mark.requirement("S4-06")
@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('(str "a" 1 true)', "a1true"),
        ("(str)", ""),
        ("(+ 1 2 3)", 6),
        ("(- 5)", -5),
        ("(- 5 -2)", 7),
        ("(- -5)", 5),
        ("(* 2 3 4)", 24),
        ("(/ 7 2)", 3.5),
        ("(mod 7 2)", 1),
        ("(mod -7 3)", 2),
        ("(mod (- 0 7) (+ 1 2))", 2),
        ("(str nil)", ""),
        ('(str {:a 1} [1 2] "-" 1.5)', '{"a":1}[1,2]-1.5'),
        ("(count {:a 1 :b 2})", 2),
        ("(< 1 2 3)", True),
        ("(< 1 3 2)", False),
        ("(= 1 1 1)", True),
        ("(= 1 1 2)", False),
        ("(>= 3 3 2)", True),
        ("(= 1 1)", True),
        ('(!= 1 "1")', True),
        ("(and (< 1 2) (> 2 1) (<= 1 1) (>= 1 1))", True),
        ("(or false nil 3)", 3),
        ("(not nil)", True),
        ('(if (= 1 2) "y" "n")', "n"),
        ("(if false 1)", None),
        ('(get (input) "b c")', "x"),
        ("(get (get (input) :a) 1)", 2),
        ('(get (input) "none")', None),
        ('(get nil "x" "else")', "else"),
        ("(get [10 20] 0)", 10),
        ("(count (get (input) :a))", 2),
        ('(count "abc")', 3),
        ("(concat [1] [2 3] [])", [1, 2, 3]),
        ('(join ["a" "b"] ", ")', "a, b"),
        ('(contains "planner" "plan")', True),
        ("(contains [1 2] 3)", False),
        ('(upper (trim " a "))', "A"),
        ('(lower "A")', "a"),
        ('(json {:a [1 nil] "b c" "}}"})', '{"a":[1,null],"b c":"}}"}'),
        ('(parse-json "[1]")', [1]),
        ("(artifact planner)", "ok"),
        ("(feedback planner)", "ok"),
        ("@workflow-id", "r1"),
        ('"}} {{ \\"quoted\\" \\\\"', '}} {{ "quoted" \\'),
    ],
)
def test_an_expression_gives_its_value(text: str, result: Any) -> None:
    assert value(text) == result


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_a_literal_is_the_same_value_as_an_expression_and_as_data(given: Any) -> None:
    text = print_form(literal_form({"k": [given]}))
    body = read_document(f"(workflow w (state s (result {text}) (call x :input {text})))").data["body"][
        "states"
    ][0]["body"]
    made, called = body["steps"]
    assert compile(made["expression"])({}) == {"k": [given]}
    assert filled_in(called["input"]) == {"k": [given]}


def filled_in(value: Any) -> Any:
    if isinstance(value, str):
        return compile_template(value).value({})
    if isinstance(value, dict):
        return {key: filled_in(item) for key, item in value.items()}
    return [filled_in(item) for item in value] if isinstance(value, list) else value


@given(st.text() | st.text(alphabet='{}\\"a $1', max_size=12))
def test_a_literal_text_is_a_template_that_gives_it(text: str) -> None:
    assert compile_template(escape_template(text))({}) == text


pieces = st.lists(st.text(alphabet="{}\\ a~", max_size=6) | st.builds(Hole, st.just("x")), max_size=6)


@given(pieces)
def test_texts_and_holes_never_run_together(given: list[str | Hole]) -> None:
    expected = "".join("<{{>" if isinstance(piece, Hole) else piece for piece in given)
    assert compile_template(render_template(given))({"x": "<{{>"}) == expected


@given(st.lists(st.text(alphabet="{}\\ a$1", max_size=6), min_size=1, max_size=5))
def test_a_tilde_template_is_filled_once_whatever_its_arguments_are(texts: list[str]) -> None:
    template = String("~a".join(texts))
    found = fill_message_template(LispProgram("<text>"), template, [Hole("x")] * (len(texts) - 1))
    assert compile_template(found)({"x": "~a{{ x }}"}) == "~a{{ x }}".join(texts)


@pytest.mark.requirement("S4-05")
def test_a_prompt_is_its_template_and_knows_no_variables_of_other_notations() -> None:
    [step] = steps(
        '(send-prompt :agent planner :template "$1 \\\\$1 $ARGUMENTS $HOME {{x}} ~~ \\n{~a}" :args (1))'
    )
    assert step["args"] == {"a1": 1}
    text = compile_prompt(step["text"]).fill({"1": "no", "ARGUMENTS": "no"}, {"args": {"a1": "$1"}})
    assert text == "$1 \\$1 $ARGUMENTS $HOME {{x}} ~ \n{$1}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('(log "~a ~a" 1)', "The template has 2 ~a, got 1 arguments"),
        ('(log "x" 1)', "The template has 0 ~a, got 1 arguments"),
        ('(log "~d" 1)', "Unknown directive '~d' in a template"),
        ('(log "5~")', "Unknown directive '~' in a template"),
        ("(log x)", "Expected a template, found x"),
        ('(send-prompt :agent planner :template "~a")', "The template has 1 ~a, got 0 arguments"),
        ("(result (sqrt 2))", "Unknown function 'sqrt'"),
        ("(result (contians 1 2))", "Did you mean 'contains'?"),
        ("(result (not 1 2))", "(not …) takes 1 argument, got 2"),
        ("(result (= 1))", "(= …) takes 2 or more arguments, got 1"),
        ("(result ())", "Unknown function '()'"),
        ("(result (1 2))", "Unknown function '(1 2)'"),
        ("(result [:key])", "':key' is not a value"),
        ("(result name)", "Unknown name 'name'"),
        ("(result @workflow)", "Did you mean '@workflow-id'?"),
        ("(result (inputs task))", "Unknown input 'task'"),
        ("(result (await (or 1 2)))", "Expected a condition, found (or 1 2)"),
        ("(branch (on (await (signal a))))", "A test cannot wait"),
        ("(assert (score ?n))", "'?n' is only allowed in a pattern"),
        ("(assert (score :n 1 2))", "A positional field follows a named field"),
        ("(assert (score :n 1 :n 2))", ":n is duplicated"),
        ("(assert (score (inner 1)))", "Unknown function 'inner'"),
        ("(assert score)", "Expected a record, found score"),
        ("(assert (1 2))", "Expected the label of a record, found 1"),
    ],
)
def test_an_invalid_expression_is_rejected(body: str, message: str) -> None:
    assert message in refused_body(body)
