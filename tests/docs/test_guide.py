"""The guide: its files and commands are real, and its tables are those of the code."""

import io
import re
import sys
from pathlib import Path

import pytest

from docs.pages import commands, page, section, steady, write_files
from nerve.cli import execute_command_line as nerve
from nerve.notations import SUFFIXES
from nerve.spec.models import ExpectSpec
from nerve.spec.scope import EXPRESSION_NAMES, RunVariables

FILES = page("docs/guides/files.md")


def test_every_command_says_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert write_files(FILES, tmp_path) == ["review.yaml", "tea.yaml"]
    assert len(commands(FILES)) == 3
    for line, shown in commands(FILES):
        nerve(line.split())
        said = capfd.readouterr()
        assert steady(said.err + said.out) == steady(shown), line


def test_every_name_that_expressions_see_is_in_the_table() -> None:
    names = section(page("docs/reference/expressions.md"), "What expressions see")
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", names, re.MULTILINE)
    named = {name for names, _ in rows for name in re.findall(r"`(\w+)(?:\.<\w+>)?`", names)}
    assert named == EXPRESSION_NAMES
    [told] = [told for names, told in rows if names == "`run`"]
    assert set(re.findall(r"`(\w+)`", told)) == set(RunVariables().to_dict())


def test_every_ending_of_a_file_is_in_the_table() -> None:
    assert set(re.findall(r"`(\.\w+)`", FILES.split("\n\n")[2])) == set(SUFFIXES)


def test_every_check_that_can_be_expected_is_told() -> None:
    told = section(page("docs/guides/agents.md"), "Expectations")
    assert all(f"`{name}`" in told for name in ExpectSpec.model_fields)
