"""The page about JSON is true."""

import contextlib
import io
import re
from itertools import pairwise
from pathlib import Path

import pytest

from nerve.notations.json_steps import read_document
from nerve.notations.json_steps.step_schema import STEP_SCHEMA, STEP_TYPE_SCHEMAS, WORKFLOW_SCHEMA
from nerve.project.config import Config, WorkflowSettings, read_config
from nerve.spec.models import WorkflowSpec

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "guides/json.md").read_text(encoding="utf-8")
CONFIGURATION = (DOCS / "reference/configuration.md").read_text(encoding="utf-8")
CONFIGURATION_TITLE = "The project's configuration"
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    page = CONFIGURATION if title == CONFIGURATION_TITLE else PAGE
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


def keys(title: str, column: int = 1) -> set[str]:
    """The keys in the table of a section."""
    rows = [line.split("|") for line in section(title).splitlines() if line.startswith("|")]
    return {found for row in rows for found in re.findall(r"^ `(\$?\w+)` $", row[column])}


@pytest.mark.parametrize("text", [text for language, text in FENCES if language == "json"])
def test_every_file_on_the_page_can_be_read(text: str) -> None:
    WorkflowSpec.model_validate(read_document(text).data)


def test_the_configuration_on_its_page_can_be_read() -> None:
    text = re.findall(r"^```json\n(.*?)^```$", section(CONFIGURATION_TITLE), re.MULTILINE | re.DOTALL)[0]
    assert read_config(text).settings_of("feature-dev").visible_to == ("plan", "build")


def test_the_documented_steps_run_in_parallel() -> None:
    (text,) = [text for _, text in FENCES if '"survey"' in text]
    assert read_document(text).warnings[0].message.startswith("'papers', 'code' run in parallel")


def test_the_python_on_the_page_prints_what_it_says() -> None:
    ((_, code), (_, told)) = next(pair for pair in pairwise(FENCES) if pair[0][0] == "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "json.md", "exec"), {})  # noqa: S102
    assert printed.getvalue() == told


@pytest.mark.requirement("S2-03")
def test_every_key_is_on_the_page_and_no_other() -> None:
    assert keys("The workflow") == set(WORKFLOW_SCHEMA)
    assert keys("Every step") == set(STEP_SCHEMA)
    assert keys("Types of steps", 2) == {key for own in STEP_TYPE_SCHEMAS.values() for key in own}
    assert keys("Types of steps") == set(STEP_TYPE_SCHEMAS)
    assert keys(CONFIGURATION_TITLE) == {*Config.__slots__, *WorkflowSettings.__slots__}
