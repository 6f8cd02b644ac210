"""`nerve` and `nerve commander`."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pexpect
import pytest

from commander.served import end_server, project
from nerve.cli import commander


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    yield project(tmp_path)
    await end_server(tmp_path)


def nerve(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nerve", *arguments]
    return subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_nerve_without_arguments_in_a_pipe_prints_the_help(tmp_path: Path) -> None:
    done = nerve(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: nerve COMMAND" in done.stdout
    assert not (tmp_path / ".nerve").exists()


def test_lines_piped_into_nerve_without_arguments_are_submitted(folder: Path) -> None:
    done = nerve(folder, stdin="%hello you\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[workflow] hello started" in done.stdout
    assert "hello you" in done.stdout


def test_a_file_on_stdin_of_nerve_without_arguments_is_submitted(folder: Path) -> None:
    lines = folder / "lines"
    lines.write_text("%hello file\n")
    with lines.open() as stdin:
        command = [sys.executable, "-m", "nerve"]
        said = subprocess.run(command, cwd=folder, stdin=stdin, capture_output=True, timeout=60, check=True)
    assert b"hello file" in said.stdout


def test_in_an_empty_directory_the_commander_suggests_nerve_init_and_creates_nothing(tmp_path: Path) -> None:
    done = nerve(tmp_path, stdin="/workflows\n%hello you\n")
    assert done.returncode == 0
    message = "No project in this directory. Create one with: nerve init\n"
    assert done.stdout.count(message) == 3  # at the start, and for each line
    assert list(tmp_path.iterdir()) == []


def test_nerve_without_arguments_on_a_terminal_opens_the_commander(folder: Path) -> None:
    environment = {**os.environ, "TERM": "dumb"}
    child = pexpect.spawn(
        sys.executable, ["-m", "nerve"], cwd=str(folder), env=environment, encoding="utf-8", timeout=30
    )
    child.expect("2 workflows|nerve")
    child.sendline("%ship it")
    child.expect("Ship it\\?")
    child.sendline("/quit")
    child.expect("Running in the background:")
    child.expect("ship waiting: Ship it\\?.*nerve watch")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_piped_commander_processes_input_line_by_line(folder: Path) -> None:
    done = nerve(folder, "commander", stdin="%hello you\n%nothing\n")
    assert done.returncode == 0
    assert "hello you" in done.stdout
    assert "Unknown workflow 'nothing'" in done.stdout


def test_an_invalid_url_is_rejected(tmp_path: Path) -> None:
    done = nerve(tmp_path, "commander", "--server", "somewhere")
    assert done.returncode == 2
    assert "--server must be an http or https URL" in done.stderr


@pytest.mark.parametrize(
    ("term", "no_color", "terminal", "full"),
    [
        ("xterm-256color", "", True, True),
        ("dumb", "", True, False),
        ("", "", True, False),
        ("xterm", "1", True, False),
        ("xterm", "", False, False),
    ],
)
def test_the_full_screen_requires_a_capable_terminal(
    monkeypatch: pytest.MonkeyPatch, term: str, no_color: str, terminal: bool, full: bool
) -> None:
    class Stream:
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stdin", Stream())
    monkeypatch.setattr(sys, "stdout", Stream())
    assert commander.supports_full_screen() is full
