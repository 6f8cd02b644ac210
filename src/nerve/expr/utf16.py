"""Strings as JavaScript counts them, in units of UTF-16.

A Python string is kept with whole characters. Where an index counts, `units` spells each character beyond the
basic plane as its two surrogates, and `whole` puts pairs together again.
"""

from __future__ import annotations

import re
import sys
from array import array

from nerve.expr.errors import EvaluationRefused
from nerve.expr.frame import Frame

SURROGATE_PAIR_PATTERN = re.compile("[\ud800-\udbff][\udc00-\udfff]")
SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
UTF16_CODEC = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


def utf16_length(frame: Frame, text: str) -> int:
    """How long JavaScript says a string is."""
    if text.isascii():
        return len(text)
    frame.charge_text(len(text))
    return len(text.encode(UTF16_CODEC, "surrogatepass")) // 2


def utf16_units(frame: Frame, text: str) -> str:
    """The string with one Python character for each unit."""
    if text.isascii() or utf16_length(frame, text) == len(text):
        return text
    frame.charge(len(text))
    return "".join(map(chr, array("H", text.encode(UTF16_CODEC, "surrogatepass"))))


def join_surrogates(text: str) -> str:
    """The string with pairs of surrogates put together."""
    return SURROGATE_PAIR_PATTERN.sub(join_surrogate_pair, text) if has_surrogates(text) else text


def join_surrogate_pair(match: re.Match[str]) -> str:
    high, low = ord(match[0][0]), ord(match[0][1])
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def has_surrogates(text: str) -> bool:
    """Whether there are surrogates in a string, in pairs or not."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def utf16_sort_key(frame: Frame, text: str) -> bytes:
    """What sorts as JavaScript sorts strings."""
    frame.charge_text(len(text))
    return text.encode("utf-16-be", "surrogatepass")


def join_pieces(frame: Frame, pieces: list[str]) -> str:
    """The pieces as one string, charged before it is made."""
    frame.charge_text(sum(map(len, pieces)))
    return join_surrogates("".join(pieces))


def repeat_text(frame: Frame, text: str, times: int) -> str:
    """The string so many times, charged before it is made; wide characters take more memory."""
    frame.charge_text(len(text) * times * (1 if text.isascii() else 4))
    return text * times


def require_whole_characters(text: str) -> str:
    """A string that may leave: half a character cannot."""
    if has_surrogates(text):
        raise EvaluationRefused(
            "the string holds half of a character beyond the basic plane; cut it elsewhere"
        )
    return text
