"""The general help, `nerve --help`, from the table of commands; it looks like the help of a command.

It needs neither the parser nor rich, whose imports take longer than all the rest.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator

from nerve.cli.command_table import APP_HELP, CLI_COMMANDS, COMMAND_GROUPS, NESTED_COMMANDS

APP_OPTIONS = {
    "--help (-h)": "Display this message and exit.",
    "--install-completion": "Install shell completion.",
    "--version": "Display application version.",
}
BOLD, CYAN, END = "\033[1m", "\033[36m", "\033[0m"


def print_general_help() -> None:
    width = shutil.get_terminal_size().columns
    text = "\n".join(general_help_lines(width))
    if not is_color_shown():
        for code in (BOLD, CYAN, END):
            text = text.replace(code, "")
    print(text)


def is_color_shown() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return is_terminal or bool(os.environ.get("FORCE_COLOR"))


def general_help_lines(width: int) -> Iterator[str]:
    """Yield the lines with the control codes of colors."""
    yield f"{BOLD}Usage: nerve COMMAND{END}"
    for paragraph in APP_HELP.strip().split("\n\n"):
        plain = paragraph.replace("[bold]", "").replace("[/bold]", "")
        lines = wrap_text(plain, width)
        yield ""
        yield from (lines if plain == paragraph else bold_first_word(lines))
    yield ""
    for title, names in COMMAND_GROUPS.items():
        yield from panel_lines(title, {name: command_summary(name) for name in names}, width)
    yield from panel_lines("Options", APP_OPTIONS, width)


def wrap_text(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def bold_first_word(lines: list[str]) -> list[str]:
    word, _, rest = lines[0].partition(" ")
    return [f"{BOLD}{word}{END} {rest}", *lines[1:]]


def command_summary(name: str) -> str:
    """Return the first sentence of the help of a command."""
    return NESTED_COMMANDS[name] if name in NESTED_COMMANDS else CLI_COMMANDS[name].help.split("\n\n")[0]


def panel_lines(title: str, rows: dict[str, str], width: int) -> Iterator[str]:
    """Yield the lines of a box with two columns."""
    name_width = max(map(len, rows))
    text_width = max(width - name_width - 6, 1)
    yield f"╭─ {title} ".ljust(width - 1, "─") + "╮"
    for name, text in rows.items():
        shown_name = name
        for line in wrap_text(text, text_width):
            yield f"│ {CYAN}{shown_name:{name_width}}{END}  {line:{text_width}} │"
            shown_name = ""
    yield "╰" + "─" * (width - 2) + "╯"
