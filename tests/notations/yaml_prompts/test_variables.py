"""Variables in prompts: filled in one pass, and never looked at again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.expr import EvalError, ExprError
from nerve.spec.prompt_variables import (
    compile_prompt,
    find_misspelt_variables,
    split_arguments,
    variable_values,
)


def filled(text: str, message: Any = "fix it", **inputs: Any) -> str:
    variables = variable_values(message, "run-7", ".archon/artifacts/run-7", inputs)
    return compile_prompt(text).fill(variables, {"inputs": inputs, "input": message})


@pytest.mark.requirement("S3-15")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do: $USER_MESSAGE.", "Do: fix it."),
        ("$ARGUMENTS", "fix it"),
        ("$1-$2", "fix-it"),
        (".archon/artifacts/$WORKFLOW_ID/plan.md", ".archon/artifacts/run-7/plan.md"),
        ("$ARTIFACTS_DIR/plan.md", ".archon/artifacts/run-7/plan.md"),
        ("$INPUTS.topic!", "birds!"),
        ("$INPUTS.topic.", "birds."),
        ("$INPUTS.topic-", "birds-"),
        ("$INPUTS.max-depth", "3"),
        ("{{ inputs.topic.length + 1 }}", "6"),
        ("{{ input }} and $USER_MESSAGE", "fix it and fix it"),
        ("$USER_MESSAGE$WORKFLOW_ID", "fix itrun-7"),
    ],
)
def test_variables_are_filled_in(text: str, expected: str) -> None:
    assert filled(text, topic="birds", **{"max-depth": 3}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "$HOME",
        "$FOO_BAR",
        "$USER_MESSAGES",
        "$10",
        "$0",
        "$",
        "$$",
        "${USER_MESSAGE}",
        "$(ls)",
        "cost: $",
        "$INPUTS",
    ],
)
def test_everything_else_stays_as_it_is(text: str) -> None:
    assert filled(text) == text


def test_an_argument_that_was_not_given_stays_as_it_is() -> None:
    assert filled("$1 $2 $3 $9") == "fix it $3 $9"
    assert filled("$1", message="") == "$1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\$1", "$1"),
        (r"\$USER_MESSAGE", "$USER_MESSAGE"),
        (r"\$INPUTS.topic", "$INPUTS.topic"),
        (r"\$HOME", r"\$HOME"),
        (r"\{{ x }}", "{{ x }}"),
        ("{{ '$1' }}", "$1"),
        ("{{ {a: {b: 1}}.a }}$1", '{"b":1}fix'),
    ],
)
def test_escapes_and_expressions_are_left_alone(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.requirement("D3-10")
@pytest.mark.requirement("C-22")
@given(st.text(max_size=40), st.text(max_size=40))
def test_what_is_filled_in_is_never_filled_again(message: str, topic: str) -> None:
    assert filled("[$USER_MESSAGE|$INPUTS.topic]", message, topic=topic) == f"[{message}|{topic}]"


@pytest.mark.parametrize(
    "message", ["$USER_MESSAGE", "$1 $&", "{{ inputs }}", "$WORKFLOW_ID \\1 $INPUTS.x", r"\$1 \{{"]
)
def test_a_message_that_looks_like_a_variable_stays_as_it_was_typed(message: str) -> None:
    assert filled("<$USER_MESSAGE|$ARGUMENTS>", message) == f"<{message}|{message}>"


@given(st.text(max_size=60))
def test_any_text_is_a_prompt_or_an_error_inside_it(text: str) -> None:
    offset = 0
    try:
        compile_prompt(text).fill(variable_values("", "", ""), {})
    except (ExprError, EvalError) as error:
        offset = error.offset
    assert 0 <= offset <= len(text)


@given(st.text("ab $1\\.{}", max_size=30))
def test_a_text_without_variables_stays_as_it_is(text: str) -> None:
    if "{{" not in text and "$1" not in text:
        assert filled(text) == text


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("a 'b c' d", ["a", "b c", "d"]),
        ('fix "the login" page', ["fix", "the login", "page"]),
        ("don't stop", ["don't", "stop"]),
        ("  a \n b ", ["a", "b"]),
        ("", []),
    ],
)
def test_arguments_are_split_as_a_shell_would(message: str, words: list[str]) -> None:
    assert split_arguments(message) == words


def test_a_message_that_is_not_a_string_is_json() -> None:
    assert filled("$USER_MESSAGE", {"a": [1, None]}) == '{"a":[1,null]}'
    assert filled("[$USER_MESSAGE]", None) == "[]"


@pytest.mark.requirement("C-22")
def test_an_unknown_input_is_an_error_with_its_place() -> None:
    with pytest.raises(ExprError, match="Unknown input 'tpic'; did you mean `topic`") as raised:
        compile_prompt("a\nb $INPUTS.tpic", inputs=["topic"])
    assert (raised.value.line, raised.value.column) == (2, 3)
    with pytest.raises(EvalError, match="Unknown input 'x'"):
        filled("$INPUTS.x")


def test_a_wrong_expression_is_an_error_with_its_place() -> None:
    for text, line, column in [("a\n {{ inputs. }}", 2, 13), ("{{ other }}", 1, 4), ("a {{ b", 1, 3)]:
        with pytest.raises(ExprError) as raised:
            compile_prompt(text, names=["inputs"])
        assert raised.value.line == line
        assert abs(raised.value.column - column) <= 1


def test_a_prompt_tells_what_it_uses() -> None:
    prompt = compile_prompt("$1 $INPUTS.a {{ steps.x.output }} $USER_MESSAGE")
    assert prompt.variables == {"1", "INPUTS.a", "USER_MESSAGE"}
    assert ("inputs", "a") in prompt.paths
    assert prompt.names == {"steps"}


def test_a_variable_written_wrong_is_noticed() -> None:
    assert list(find_misspelt_variables("a $USER_MESAGE $HOME $WORKFLOWID $ARGUMENTS \\$USER_MESAGE")) == [
        (2, "USER_MESAGE", "USER_MESSAGE"),
        (21, "WORKFLOWID", "WORKFLOW_ID"),
    ]
