# ruff: noqa: E501
"""Mistakes in prompts: each is told in the file of the prompt, with its fix."""

import pytest

from notations.mistakes.checking import Check

FLOW = "name: flow\ndescription: What it is for.\ninputs: {area: string}\nsteps:\n  - step: plan\n"
SEES = "Available names: acc, args, context, fields, given, index, input, inputs, item, iteration, outputs, results, roles, run, steps."
BRACES = "Write \\{{ for literal braces."

MISTAKES = [
    ("an empty prompt", " \n", "1:1: The prompt is empty. Write what the agent should do."),
    (
        "braces that are not closed",
        "Look at {{ input\n",
        "1:9: `{{` is not closed; add `}}`, or write `\\{{` for the braces themselves",
    ),
    (
        "empty braces",
        "Look at {{ }}\n",
        f"1:9: Empty expression between `{{{{` and `}}}}`. See docs/reference/expressions.md for the syntax of expressions. {BRACES}",
    ),
    ("an unknown name", "Hello\n\nLook at {{ foo }}\n", f"3:12: Unknown name `foo`. {SEES} {BRACES}"),
    (
        "an unknown name behind CRLF",
        "Hello\r\nLook at {{ foo }}\r\n",
        f"2:12: Unknown name `foo`. {SEES} {BRACES}",
    ),
    (
        "a variable in braces",
        "Look at {{ $ARGUMENTS }}\n",
        f"1:12: Unknown name `$ARGUMENTS`. Write input. {BRACES}",
    ),
    (
        "a filter of another language",
        "{{ input | upper }}\n",
        f"1:10: `|` is not part of the language; the logical or is `||`. {BRACES}",
    ),
    (
        "a misspelt input as a variable",
        "Look at $INPUTS.aera\n",
        "1:9: Unknown input 'aera'; did you mean `area`? Declare it under inputs.",
    ),
    (
        "a misspelt input in an expression",
        "Look at {{ inputs.aera }}\n",
        "1:12: Unknown input 'aera'. Did you mean 'area'? Declare it under inputs.",
    ),
    ("a step that is not there", "one\n{{ steps.q.output }}\n", "2:4: Unknown step 'q'. Known: plan."),
]
"""What is wrong, the text of the prompt, and all that is told."""


@pytest.mark.parametrize(("text", "told"), [pytest.param(*row, id=what) for what, *row in MISTAKES])
def test_a_mistake_in_a_prompt_is_one_error_in_its_own_file(nerve_check: Check, text: str, told: str) -> None:
    (nerve_check.folder / "steps/plan.md").write_bytes(text.encode())
    assert nerve_check(FLOW, "flow.yaml") == (1, [f"steps/plan.md:{told}"])
