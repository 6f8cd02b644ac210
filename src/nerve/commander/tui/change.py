"""Changes to files: how much of them is shown, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

FILES = ("--- ", "+++ ")


def change(text: str, most: int = 0) -> Text:
    """A unified diff in its colours without the names of the files; at most so many lines of it."""
    from nerve.commander.prose import coloured  # with the parser of Markdown, which takes its time

    lines = [line for line in text.splitlines() if not line.startswith(FILES)]
    shown = lines[:most] if most else lines
    drawn: Text = coloured("\n".join(shown))
    if len(lines) > len(shown):
        drawn.append(f"\n… {len(lines) - len(shown)} more lines", "dim")
    return drawn


def counted(text: str) -> str:
    """How much a diff adds and takes away."""
    lines = [line for line in text.splitlines() if not line.startswith(FILES)]
    added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added} −{gone}"


def file_of(text: str) -> str:
    """The file that a diff changes."""
    for line in text.splitlines():
        if line.startswith("+++ "):
            return line[4:].split("\t")[0].removeprefix("b/").strip()
    return ""
