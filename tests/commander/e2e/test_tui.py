"""The full screen in a real terminal: typing, pasting, resizing, quitting, and a server crash."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from commander.e2e.tmux import NERVE, Tmux, needs_tmux
from commander.served import effects, end_server, project, server_pid

pytestmark = needs_tmux
LONG = "\n".join(f"line {number}" for number in range(12))


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    yield project(tmp_path)
    await end_server(tmp_path)


async def test_keys_in_the_list_pause_and_resume_a_run_and_a_key_answers_a_gate(
    folder: Path,
) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%ship", "%slow")
        terminal.type("%sl")
        terminal.until("❯ %slow")
        terminal.press("Tab", "Enter")
        terminal.until("● slow", "● work")
        terminal.enter("%ship the parcel")
        terminal.until("Ship it?", "1 waiting F3")

        terminal.press("F2", "Down", "p")
        terminal.until("pausing")
        terminal.press("r")
        terminal.until("continues.")
        terminal.press("Escape", "F3")
        terminal.until("1  yes", "approve ▸ yes · no")
        terminal.enter("y")
        terminal.until("shipped the parcel", "✓ approve  yes  Ship it?")
        assert "elsewhere" not in terminal.gone("waiting F3")


@pytest.mark.requirement("S1-40")
async def test_lines_typed_before_the_screen_is_ready_are_submitted(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.run("clear; " + shlex.join(NERVE))
        terminal.type("%hello early")
        terminal.press("Enter")
        terminal.type("and a draft")
        terminal.until("❯ %hello early", "hello early", "❯ and a draft")


async def test_fast_typing_arrives_in_order(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%hello")
        terminal.press("%", "h", "e", "l", "Tab", "y", "o", "x", "BSpace", "u", "Enter", "n", "e", "x", "t")
        terminal.until("❯ %hello you", "hello you", "❯ next")
        terminal.press("C-u")
        terminal.press("a", "M-Enter", "b", "C-j", "c")
        terminal.until("❯ a ", "│   b ", "│   c ")


async def test_a_fast_typed_answer_arrives_in_order(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%ship")
        terminal.enter("%ship the parcel")
        terminal.until("1 waiting F3")
        terminal.press("F3", *"definitely", "Enter")
        terminal.until("Invalid choice 'definitely'")


async def test_a_long_paste_is_folded_and_shown_when_pasted_again(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%hello")
        terminal.paste(LONG)
        terminal.until("[Pasted text #1 +11 lines]")
        terminal.paste(LONG)
        terminal.until("line 11")
        assert "[Pasted" not in terminal.screen


def is_drawn(width: int, screen: str) -> bool:
    """Return whether the screen was drawn for its current size."""
    return "▸" in screen and "waiting" in screen and max(map(len, screen.splitlines())) == width


async def test_any_terminal_size_works(folder: Path) -> None:
    with Tmux(folder, COLUMNS="100") as terminal:
        terminal.nerve()
        terminal.enter("%ship it")
        terminal.until("1 waiting F3")
        for width, height in ((60, 16), (40, 10), (150, 45), (60, 16)):
            terminal.resize(width, height)
            terminal.when(partial(is_drawn, width), f"no screen of {width} columns")
        terminal.press("F3")
        small = terminal.until("1  yes", "2  no")
        assert max(map(len, small.splitlines())) <= 60
        terminal.enter("2")
        terminal.gone("1  yes")


async def test_control_c_clears_first_and_quits_when_pressed_twice(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%hello")
        assert terminal.is_full_screen
        terminal.type("a draft")
        terminal.until("❯ a draft")
        terminal.press("C-c")
        terminal.until("Press Ctrl-C again to quit")
        assert "a draft" not in terminal.screen
        terminal.press("C-c")
        terminal.until("it ended with 0", "$")
        assert not terminal.is_full_screen


async def test_the_prompt_can_be_edited_in_an_editor(folder: Path) -> None:
    editor = folder / "editor.sh"
    editor.write_text("#!/bin/sh\nprintf '%%hello from the editor' > \"$1\"\n")
    editor.chmod(0o755)
    with Tmux(folder, EDITOR=str(editor)) as terminal:
        terminal.nerve()
        terminal.until("%hello")
        terminal.press("C-g")
        terminal.until("❯ %hello from the editor")
        terminal.press("Enter")
        terminal.until("hello from the editor", "✓ hello")


async def test_a_killed_server_is_restarted_and_nothing_is_lost(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%ship")
        terminal.enter("%ship the parcel")
        terminal.until("1 waiting F3")
        first = server_pid(folder)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        terminal.press("F3")
        terminal.until("1  yes")
        terminal.enter("1")
        terminal.until("shipped the parcel", "✓ ship")
        assert server_pid(folder) != first
    assert effects(folder) == ["built", "sent"]


async def test_switching_to_plain_mode_and_back(folder: Path) -> None:
    with Tmux(folder) as terminal:
        terminal.nerve()
        terminal.until("%hello")
        terminal.enter("%hello you")
        terminal.until("hello you", "✓ hello")
        terminal.enter("/tui plain")
        terminal.when(lambda _: not terminal.is_full_screen, "still the full screen")
        terminal.until("hello you", "? keys")
        terminal.enter("/tui full")
        terminal.when(lambda _: terminal.is_full_screen, "no full screen")
        terminal.until("hello you", "✓ hello")
