"""Typeahead: what the user types while the Commander starts."""

from __future__ import annotations

import os
import re
import select
import termios
from typing import NamedTuple

READ_BYTES = 4096
MAX_TYPEAHEAD_BYTES = 64 * 1024


class TypedLines(NamedTuple):
    """Lines that the user ended with Enter, and the beginning of the next one."""

    lines: list[str]
    draft: str


class TypeaheadTerminal:
    """A terminal that keeps the keys of the user until the screen reads them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._original = termios.tcgetattr(descriptor)
        attributes = termios.tcgetattr(descriptor)
        # With ICRNL the terminal turns Enter into a line feed, which the screen reads as Ctrl-J: a line
        # break in the prompt. Without ICANON the bytes can be read before a line is complete.
        attributes[0] &= ~termios.ICRNL
        attributes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(descriptor, termios.TCSANOW, attributes)

    def read_pending(self) -> TypedLines:
        """Return what was typed so far, without waiting for more."""
        typed = bytearray()
        while len(typed) < MAX_TYPEAHEAD_BYTES and select.select([self._descriptor], [], [], 0)[0]:
            chunk = os.read(self._descriptor, READ_BYTES)
            if not chunk:
                break
            typed += chunk
        return split_typeahead(typed.decode(errors="replace"))

    def restore(self) -> None:
        """Give the terminal back as it was."""
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._original)


def split_typeahead(typed: str) -> TypedLines:
    """Split typed text into entered lines and a draft; from the first other control key on, drop it."""
    text = re.split(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", typed, maxsplit=1)[0]
    *lines, draft = re.split(r"\r\n|\r|\n", text)
    return TypedLines([line for line in lines if line.strip()], draft)
