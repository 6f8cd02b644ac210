"""The README: its workflow does the same in every notation, and its commands print the documented output."""

import asyncio
import io
import re
import shutil
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from docs.pages import FENCE, ROOT, commands, normalize, page
from nerve import Session
from nerve.cli import execute_command_line as nerve
from nerve.testing.trace import trace

README = page("README.md")
EXAMPLES = "examples/notations"
NOTATIONS = ["function.py", "graph.py", "steps.json", "prompts.yaml", "states.lisp"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy the examples into the current folder."""
    shutil.copytree(ROOT / EXAMPLES, tmp_path / EXAMPLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path / EXAMPLES


def test_it_names_every_notation_and_shows_the_files_as_they_are() -> None:
    linked = re.findall(rf"\]\({EXAMPLES}/([\w.]+)\)", README)
    assert linked == NOTATIONS
    shown = [fence[2] for fence in FENCE.finditer(README)]
    for name in ("function.py", "prompts.yaml"):
        assert (ROOT / EXAMPLES / name).read_text(encoding="utf-8") in shown


async def run_file(file: Path) -> tuple[Any, list[Any]]:
    """Run a file; return its result and its calls in order."""
    session = Session()
    run_path(str(file.with_name("agents.py")))["register"](session)
    if file.suffix == ".py":
        run_path(str(file))["register"](session)
    else:
        session.load(file)
    run = await session.start("page", "tea")
    assert await run.next_gate() is not None
    await run.answer("approve")
    result = await run.wait()
    return result, [
        (entry.get("call"), entry.get("gate"), entry.get("output")) for entry in trace(run.events)
    ]


@pytest.mark.parametrize("file", NOTATIONS)
def test_the_workflow_does_the_same_in_every_notation(file: str, files: Path) -> None:
    assert asyncio.run(run_file(files / file)) == (
        "Tea: hot, and good for you.",
        [
            ("writer", None, "Tea is a drink."),
            (None, "Publish it?", None),
            ("editor", None, "Tea: hot, and good for you."),
        ],
    )


def test_every_command_prints_the_documented_output(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown_commands, id = commands(README), ""
    assert len(shown_commands) == 3
    for line, shown in shown_commands:
        nerve(re.sub("[0-9a-f]{8}-[0-9a-f]{4}", id, line).split())
        said = capfd.readouterr()
        assert normalize(said.err + said.out) == normalize(shown), line
        if found := re.search(r"run ([0-9a-f-]{36})", said.err):
            id = found[1]
