"""The guide to workflows in Python: the options of its typed workflow work."""

import io
import shlex
import sys
from pathlib import Path

import pytest

from docs.pages import commands, normalize, page, write_files
from nerve.cli import execute_command_line as nerve

PAGE = page("docs/guides/python-workflows.md")


def test_every_command_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert write_files(PAGE, tmp_path) == ["shop.py"]
    for line, shown in commands(PAGE):
        nerve(shlex.split(line))
        said = capfd.readouterr()
        assert normalize(said.err + said.out) == normalize(shown)
