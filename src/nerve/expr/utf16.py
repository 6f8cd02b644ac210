"""Strings as JavaScript counts them, in units of UTF-16.

A Python string is kept with whole characters. Where an index counts, `units` spells each character beyond the
basic plane as its two surrogates, and `whole` puts pairs together again.
"""

from __future__ import annotations

import re
import sys
from array import array

from nerve.expr.errors import Refused
from nerve.expr.frame import Frame

PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
HALF = re.compile("[\ud800-\udfff]")
UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def length(frame: Frame, text: str) -> int:
    """How long JavaScript says a string is."""
    if text.isascii():
        return len(text)
    frame.make_text(len(text))
    return len(text.encode(UTF16, "surrogatepass")) // 2


def units(frame: Frame, text: str) -> str:
    """The string with one Python character for each unit."""
    if text.isascii() or length(frame, text) == len(text):
        return text
    frame.spend(len(text))
    return "".join(map(chr, array("H", text.encode(UTF16, "surrogatepass"))))


def whole(text: str) -> str:
    """The string with pairs of surrogates put together."""
    return PAIR.sub(join_pair, text) if has_halves(text) else text


def join_pair(found: re.Match[str]) -> str:
    high, low = ord(found[0][0]), ord(found[0][1])
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def has_halves(text: str) -> bool:
    """Whether there are surrogates in a string, in pairs or not."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def order(frame: Frame, text: str) -> bytes:
    """What sorts as JavaScript sorts strings."""
    frame.make_text(len(text))
    return text.encode("utf-16-be", "surrogatepass")


def joined(frame: Frame, pieces: list[str]) -> str:
    """The pieces as one string, charged before it is made."""
    frame.make_text(sum(map(len, pieces)))
    return whole("".join(pieces))


def repeated(frame: Frame, text: str, times: int) -> str:
    """The string so many times, charged before it is made; wide characters take more memory."""
    frame.make_text(len(text) * times * (1 if text.isascii() else 4))
    return text * times


def checked(text: str) -> str:
    """A string that may leave: half a character cannot."""
    if has_halves(text):
        raise Refused("the string holds half of a character beyond the basic plane; cut it elsewhere")
    return text
