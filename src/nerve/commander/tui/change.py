"""Changes to files: how much of them is shown, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nerve.commander.prose import HEADS, coloured

if TYPE_CHECKING:
    from rich.text import Text


def change(text: str, most: int = 0) -> Text:
    """A unified diff in its colours without the names of the files; at most so many lines of it."""
    lines = [line for line in text.splitlines() if not line.startswith(("--- ", "+++ "))]
    shown = lines[:most] if most else lines
    drawn = coloured("\n".join(shown))
    if len(lines) > len(shown):
        drawn.append(f"\n… {len(lines) - len(shown)} more lines", "dim")
    return drawn


def counted(text: str) -> str:
    """How much a diff adds and takes away."""
    lines = [line for line in text.splitlines() if not line.startswith(HEADS)]
    added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added} −{gone}"


def file_of(text: str) -> str:
    """The file that a diff changes."""
    for line in text.splitlines():
        if line.startswith("+++ "):
            return line[4:].split("\t")[0].removeprefix("b/").strip()
    return ""
