"""What the user types before the screen reads keys."""

import os
import pty
import termios
from collections.abc import Iterator

import pytest

from nerve.commander.typeahead import TypeaheadTerminal, TypedLines, split_typeahead


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    main, other = pty.openpty()
    yield main, other
    os.close(main)
    os.close(other)


@pytest.mark.parametrize(
    ("typed", "lines", "draft"),
    [
        ("", [], ""),
        ("%hello you", [], "%hello you"),
        ("%hello\rnext\nand", ["%hello", "next"], "and"),
        ("\r\n\r  \r", [], ""),
        ("yes\r\x1b[Amore\r", ["yes"], ""),
        ("grün…\rü", ["grün…"], "ü"),
    ],
)
def test_typed_text_is_split_into_entered_lines_and_a_draft(typed: str, lines: list[str], draft: str) -> None:
    assert split_typeahead(typed) == TypedLines(lines, draft)


def test_keys_from_before_and_after_the_change_of_mode_are_read_together(terminal: tuple[int, int]) -> None:
    main, other = terminal
    os.write(main, b"early\r")
    typeahead = TypeaheadTerminal(other)
    os.write(main, b"later\rdra")
    assert typeahead.read_pending() == TypedLines(["early", "later"], "dra")
    assert typeahead.read_pending() == TypedLines([], "")


def test_the_terminal_is_given_back_as_it_was(terminal: tuple[int, int]) -> None:
    before = termios.tcgetattr(terminal[1])
    typeahead = TypeaheadTerminal(terminal[1])
    assert termios.tcgetattr(terminal[1]) != before
    typeahead.restore()
    assert termios.tcgetattr(terminal[1]) == before
