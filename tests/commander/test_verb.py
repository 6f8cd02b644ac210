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


def nerve(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nerve", *arguments]
    return subprocess.run(
        command, cwd=folder, input=given, capture_output=True, encoding="utf-8", timeout=60, check=False
    )


def test_nerve_alone_in_a_pipe_prints_the_help(tmp_path: Path) -> None:
    done = nerve(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: nerve COMMAND" in done.stdout
    assert not (tmp_path / ".nerve").exists()


def test_lines_that_are_piped_into_nerve_alone_are_entered(folder: Path) -> None:
    done = nerve(folder, given="%hello you\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "[workflow] hello started" in done.stdout
    assert "hello you" in done.stdout


def test_a_file_that_nerve_alone_reads_from_is_entered(folder: Path) -> None:
    lines = folder / "lines"
    lines.write_text("%hello file\n")
    with lines.open() as given:
        command = [sys.executable, "-m", "nerve"]
        said = subprocess.run(command, cwd=folder, stdin=given, capture_output=True, timeout=60, check=True)
    assert b"hello file" in said.stdout


def test_in_an_empty_folder_the_commander_names_nerve_init_and_makes_nothing(tmp_path: Path) -> None:
    done = nerve(tmp_path, given="/workflows\n%hello you\n")
    assert done.returncode == 0
    told = "No project in this directory. Create one with: nerve init\n"
    assert done.stdout.count(told) == 3  # at the beginning, and for each line
    assert list(tmp_path.iterdir()) == []


def test_nerve_alone_at_a_terminal_is_the_commander(folder: Path) -> None:
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


def test_a_commander_in_a_pipe_does_what_it_is_told_line_by_line(folder: Path) -> None:
    done = nerve(folder, "commander", given="%hello you\n%nothing\n")
    assert done.returncode == 0
    assert "hello you" in done.stdout
    assert "Unknown workflow 'nothing'" in done.stdout


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    done = nerve(tmp_path, "commander", "--server", "somewhere")
    assert done.returncode == 2
    assert "--server somewhere is no address" in done.stderr


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
def test_the_full_screen_is_for_terminals_that_are_up_to_it(
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
