"""The guide to ready-made workflows: its commands work, and it names every workflow."""

import re
from pathlib import Path

import pytest

from docs.pages import commands, normalize, page
from nerve.cli import execute_command_line as nerve
from nerve.ready_made import ready_made_names

PAGE = page("docs/guides/ready-made.md")


def test_every_command_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(commands(PAGE)) == 4
    for line, shown in commands(PAGE):
        assert nerve(line.split()) == 0, line
        said = capfd.readouterr()
        assert normalize(said.err + said.out) == normalize(shown), line


def test_the_table_names_every_workflow() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == ready_made_names()
