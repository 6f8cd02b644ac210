"""The page about the notation: its examples are right, and it leaves out no form."""

import re
from pathlib import Path

import pytest

from nerve.notations.lisp.bodies import BLOCK_FORMS
from nerve.notations.lisp.expressions import FUNCTIONS, SPECIAL_FORMS
from nerve.notations.lisp.steps import STEPS
from nerve.notations.lisp.workflow import LIMIT_OPTIONS, SECTIONS
from notations.lisp.reading import checked

PAGE = (Path(__file__).parents[3] / "docs/guides/lisp.md").read_text()
EXAMPLES = re.findall(r"^```lisp\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
GRAMMAR = "".join(re.findall(r"^```ebnf\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_page_are_right(example: str) -> None:
    checked(example)


@pytest.mark.requirement("S4-13")
@pytest.mark.parametrize(
    "form", [*SECTIONS, *STEPS, *BLOCK_FORMS, *SPECIAL_FORMS, "workflow", "spec", "state", "defn"]
)
def test_the_grammar_has_every_form(form: str) -> None:
    assert f'"({form}"' in GRAMMAR or f'"({form})"' in GRAMMAR


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_page_names_every_function(function: str) -> None:
    assert f"`{function}`" in PAGE


@pytest.mark.parametrize("limit", LIMIT_OPTIONS)
def test_the_grammar_has_every_limit(limit: str) -> None:
    assert f'"{limit}"' in GRAMMAR


def test_every_rule_of_the_grammar_is_there() -> None:
    rules = set(re.findall(r"^(\S+) +=", GRAMMAR, re.MULTILINE))
    without_texts = re.sub(
        r"\(\*.*?\*\)|\"[^\"]*\"|'[^']*'|any character( but [^|}]*)?|line end", " ", GRAMMAR
    )
    used = set(re.findall(r"[A-Za-z][A-Za-z-]*", without_texts))
    assert used - rules == {"letter", "digit", "nonzero", "hex", "tab"}
