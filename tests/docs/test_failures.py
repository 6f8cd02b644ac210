"""The guide to failures and output: its file and command work."""

import io
import sys
from pathlib import Path

import pytest

from docs.pages import commands, normalize, page, write_files
from nerve.cli import execute_command_line as nerve

FAILURES = page("docs/guides/failures.md")


def test_every_command_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert write_files(FAILURES, tmp_path) == ["shop.py"]
    [(line, shown)] = commands(FAILURES)
    assert nerve(line.split()) == 0
    said = capfd.readouterr()
    assert normalize(said.err + said.out) == normalize(shown)
    assert said.out == "paid\n"
