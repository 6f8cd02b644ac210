"""Changes to files: how much of them is shown, and what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

FILE_HEADER_PREFIXES = ("--- ", "+++ ")


def render_diff_excerpt(text: str, max_lines: int = 0) -> Text:
    """A unified diff in its colours without the names of the files; at most so many lines of it."""
    from nerve.ui.markdown import render_diff  # with the parser of Markdown, which takes its time

    lines = [line for line in text.splitlines() if not line.startswith(FILE_HEADER_PREFIXES)]
    shown_lines = lines[:max_lines] if max_lines else lines
    rendered: Text = render_diff("\n".join(shown_lines))
    if len(lines) > len(shown_lines):
        rendered.append(f"\n… {len(lines) - len(shown_lines)} more lines", "dim")
    return rendered


def format_diff_counts(text: str) -> str:
    """How much a diff adds and takes away."""
    lines = [line for line in text.splitlines() if not line.startswith(FILE_HEADER_PREFIXES)]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added} −{removed}"


def diff_file_name(text: str) -> str:
    """The file that a diff changes."""
    for line in text.splitlines():
        if line.startswith("+++ "):
            return line[4:].split("\t")[0].removeprefix("b/").strip()
    return ""
