"""The README: its workflow does the same in every notation, and its commands say what it shows."""

import asyncio
import io
import re
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from docs.pages import commands, page, steady, write_files
from nerve import Session
from nerve.cli import execute_command_line as nerve
from nerve.testing.trace import trace

README = page("README.md")
NOTATIONS = ["function.py", "graph.py", "steps.json", "prompts.yaml", "states.lisp"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the README, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return write_files(README, tmp_path)


def test_it_shows_every_notation(files: list[str]) -> None:
    assert files == ["agents.py", *NOTATIONS[:4], "steps/draft.md", NOTATIONS[4]]


async def played(file: str) -> tuple[Any, list[Any]]:
    """The result, and who was asked, in order."""
    session = Session()
    run_path("agents.py")["register"](session)
    if file.endswith(".py"):
        run_path(file)["register"](session)
    else:
        session.load(Path(file))
    run = await session.start("page", "tea")
    assert await run.next_gate() is not None
    await run.answer("approve")
    result = await run.wait()
    return result, [
        (entry.get("call"), entry.get("gate"), entry.get("output")) for entry in trace(run.events)
    ]


@pytest.mark.parametrize("file", NOTATIONS)
def test_the_workflow_does_the_same_in_every_notation(file: str, files: list[str]) -> None:
    assert asyncio.run(played(file)) == (
        "Tea: hot, and good for you.",
        [
            ("writer", None, "Tea is a drink."),
            (None, "Publish it?", None),
            ("editor", None, "Tea: hot, and good for you."),
        ],
    )


def test_every_command_says_what_the_readme_shows(
    files: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    told, id = commands(README), ""
    assert len(told) == 3
    for line, shown in told:
        nerve(re.sub("[0-9a-f]{8}-[0-9a-f]{4}", id, line).split())
        said = capfd.readouterr()
        assert steady(said.err + said.out) == steady(shown), line
        if found := re.search(r"run ([0-9a-f-]{36})", said.err):
            id = found[1]
