"""The quickstart: its file and its commands work in an empty folder and print what the page shows."""

import io
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from docs.pages import FENCE, normalize, page
from nerve.cli import execute_command_line as nerve

PAGE = page("docs/quickstart.md")
VARIES = [
    (r"--gate [0-9a-f]{8}", "--gate ID"),
    (r"open for \d+(\.\d)?s", "open for TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN"),
]


def same(text: str) -> str:
    for pattern, name in VARIES:
        text = re.sub(pattern, name, normalize(text))
    return text


def test_every_command_prints_what_the_quickstart_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    [(name, text)] = re.findall(r"as `([^`]+)`:\n\n```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shown = "".join(fence[2] for fence in FENCE.finditer(PAGE) if fence[1] == "console")
    commands = [part.partition("\n") for part in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]]
    assert len(commands) == 8
    for line, _, output in commands:
        program, *arguments = shlex.split(line)
        if program == "cd":
            os.chdir(arguments[0])
            Path(name).write_text(text, encoding="utf-8")
            continue
        assert program == "nerve"
        nerve(arguments)
        said = capfd.readouterr()
        printed = said.out + said.err if arguments[0] == "init" else said.err + said.out
        assert same(printed) == same(output), line
    assert Path("headline.txt").read_text() == "Headline: tea has 3 letters"
