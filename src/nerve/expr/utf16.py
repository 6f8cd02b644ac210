"""Strings as JavaScript counts them, in units of UTF-16.

A Python string is kept with whole characters. Where an index counts, `units` spells each character beyond the
basic plane as its two surrogates, and `whole` puts pairs together again.
"""

from __future__ import annotations

import re
import sys

from nerve.expr.errors import Refused
from nerve.expr.frame import Frame

BEYOND = re.compile("[\U00010000-\U0010ffff]")
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
HALF = re.compile("[\ud800-\udfff]")
CODEC = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def length(frame: Frame, text: str) -> int:
    """How long JavaScript says a string is."""
    if text.isascii():
        return len(text)
    frame.make_text(len(text))
    return len(text.encode(CODEC, "surrogatepass")) // 2


def units(frame: Frame, text: str) -> str:
    """The string with one Python character for each unit."""
    if text.isascii() or length(frame, text) == len(text):
        return text
    return BEYOND.sub(split_pair, text)


def whole(text: str) -> str:
    """The string with pairs of surrogates put together."""
    return text if text.isascii() else PAIR.sub(join_pair, text)


def split_pair(found: re.Match[str]) -> str:
    code = ord(found[0]) - 0x10000
    return chr(0xD800 + (code >> 10)) + chr(0xDC00 + (code & 0x3FF))


def join_pair(found: re.Match[str]) -> str:
    high, low = ord(found[0][0]), ord(found[0][1])
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def order(frame: Frame, text: str) -> bytes:
    """What sorts as JavaScript sorts strings."""
    frame.make_text(len(text))
    return text.encode("utf-16-be", "surrogatepass")


def joined(frame: Frame, pieces: list[str]) -> str:
    """The pieces as one string, charged before it is made."""
    frame.make_text(sum(map(len, pieces)))
    return whole("".join(pieces))


def checked(text: str) -> str:
    """A string that may leave: half a character cannot."""
    if not text.isascii() and HALF.search(text):
        raise Refused("the string holds half of a character beyond the basic plane; cut it elsewhere")
    return text
