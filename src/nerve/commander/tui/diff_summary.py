"""Excerpts and line counts of diffs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

FILE_HEADER_PREFIXES = ("--- ", "+++ ")


def render_diff_excerpt(text: str, max_lines: int = 0) -> Text:
    """Render a coloured diff without file headers; 0 `max_lines` means all."""
    from nerve.ui.markdown import render_diff  # imports the slow Markdown parser

    lines = [line for line in text.splitlines() if not line.startswith(FILE_HEADER_PREFIXES)]
    shown_lines = lines[:max_lines] if max_lines else lines
    rendered: Text = render_diff("\n".join(shown_lines))
    if len(lines) > len(shown_lines):
        rendered.append(f"\n… {len(lines) - len(shown_lines)} more lines", "dim")
    return rendered


def format_diff_counts(text: str) -> str:
    """Return the numbers of added and removed lines."""
    lines = [line for line in text.splitlines() if not line.startswith(FILE_HEADER_PREFIXES)]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added} −{removed}"


def diff_file_name(text: str) -> str:
    """Return the name of the file that a diff changes."""
    for line in text.splitlines():
        if line.startswith("+++ "):
            return line[4:].split("\t")[0].removeprefix("b/").strip()
    return ""
