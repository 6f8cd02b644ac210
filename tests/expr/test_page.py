"""The page about expressions is complete, and its examples run."""

import contextlib
import dataclasses
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest

from nerve.expr import EvaluationLimits
from nerve.expr.library import CONSTANTS, FUNCTIONS, METHODS_BY_KIND

PAGE = (Path(__file__).parents[2] / "docs/reference/expressions.md").read_text()
FENCES = list(re.finditer(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
BLOCKS = [(one[2], next_[2]) for one, next_ in pairwise(FENCES) if one[1] == "python" and next_[1] == "text"]


def listed(kind: str) -> set[str]:
    section = PAGE.split("\n## Methods and functions\n")[1].split("\n## ")[0]
    found = re.search(rf"^- {kind}: (.*?)(?=^- |\n\n)", section, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([\w.]+)`", found[1])) if found else set()


@pytest.mark.parametrize("kind", ["string", "array", "number", "boolean"])
def test_every_method_is_on_the_page_and_no_other(kind: str) -> None:
    assert listed(f"{kind}s") - {"length"} == set(METHODS_BY_KIND[kind])  # type: ignore[index]


@pytest.mark.parametrize("space", ["functions", "Array", "JSON", "Math", "Number", "Object"])
def test_every_function_is_on_the_page_and_no_other(space: str) -> None:
    known = {
        name for name in [*FUNCTIONS, *CONSTANTS] if name.rpartition(".")[0] == space.replace("functions", "")
    }
    assert listed(space) == known


def test_every_limit_is_on_the_page_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert rows == {name: f"{bound:,}" for name, bound in dataclasses.asdict(EvaluationLimits()).items()}


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_a_block_prints_what_the_page_says(code: str, output: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})  # noqa: S102
    assert printed.getvalue() == output
    assert len(BLOCKS) == 4
