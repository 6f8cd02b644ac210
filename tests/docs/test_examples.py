"""The page of the examples: every one that is a file runs without an agent, as the page says."""

import io
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, commands, page, steady
from nerve.cli import execute_command_line as nerve
from nerve.notations import SUFFIXES

PAGE = page("examples/README.md")
FILES = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in SUFFIXES)


def test_every_command_says_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for line, told in commands(PAGE):
        assert nerve(shlex.split(line)) == 0, line
        said = capfd.readouterr()
        assert steady(said.err + said.out) == steady(told), line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_workflow_in_a_file_is_run_on_the_page(path: Path) -> None:
    assert f"$ nerve run {path.relative_to(ROOT)} " in PAGE


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.name)
def test_every_program_is_named_on_the_page(path: Path) -> None:
    assert f"`{path.relative_to(ROOT / 'examples')}`" in PAGE
