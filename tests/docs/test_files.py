"""The guide to files: its files and commands work, and its tables match the code."""

import io
import re
import sys
from pathlib import Path

import pytest

from docs.pages import commands, normalize, page, section, write_files
from nerve.cli import execute_command_line as nerve
from nerve.notations import SUFFIXES
from nerve.spec.models import ExpectSpec
from nerve.spec.scope import EXPRESSION_NAMES, RunVariables

FILES = page("docs/guides/files.md")


def test_every_command_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert write_files(FILES, tmp_path) == ["review.yaml", "tea.yaml"]
    assert len(commands(FILES)) == 3
    for line, shown in commands(FILES):
        nerve(line.split())
        said = capfd.readouterr()
        assert normalize(said.err + said.out) == normalize(shown), line


def test_the_table_has_every_name_of_expressions() -> None:
    names = section(page("docs/reference/expressions.md"), "What expressions see")
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", names, re.MULTILINE)
    named = {name for names, _ in rows for name in re.findall(r"`(\w+)(?:\.<\w+>)?`", names)}
    assert named == EXPRESSION_NAMES
    [text] = [text for names, text in rows if names == "`run`"]
    assert set(re.findall(r"`(\w+)`", text)) == set(RunVariables().to_dict())


def test_the_table_has_every_file_suffix() -> None:
    assert set(re.findall(r"`(\.\w+)`", FILES.split("\n\n")[2])) == set(SUFFIXES)


def test_every_check_of_expect_is_described() -> None:
    text = section(page("docs/guides/agents.md"), "Expectations")
    assert all(f"`{name}`" in text for name in ExpectSpec.model_fields)
