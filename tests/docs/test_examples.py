"""The examples page: every workflow file runs without an agent and prints the documented output."""

import io
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, commands, normalize, page
from nerve.cli import execute_command_line as nerve
from nerve.notations import SUFFIXES

PAGE = page("examples/README.md")
FILES = sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in SUFFIXES)


def test_every_command_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for line, shown in commands(PAGE):
        assert nerve(shlex.split(line)) == 0, line
        said = capfd.readouterr()
        assert normalize(said.err + said.out) == normalize(shown), line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_runs_every_workflow_file(path: Path) -> None:
    assert f"$ nerve run {path.relative_to(ROOT)} " in PAGE


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.name)
def test_the_page_names_every_program(path: Path) -> None:
    assert f"`{path.relative_to(ROOT / 'examples')}`" in PAGE
