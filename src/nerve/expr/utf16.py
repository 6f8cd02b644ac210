"""Strings in UTF-16 units, as JavaScript counts them.

Strings are stored with whole characters. Where an index counts, `utf16_units` splits each character
outside the basic plane into two surrogates, and `join_surrogates` joins the pairs again.
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
    """Return the length of a string in UTF-16 units."""
    if text.isascii():
        return len(text)
    frame.charge_text(len(text))
    return len(text.encode(UTF16_CODEC, "surrogatepass")) // 2


def utf16_units(frame: Frame, text: str) -> str:
    """Return the string with one Python character per UTF-16 unit."""
    if text.isascii() or utf16_length(frame, text) == len(text):
        return text
    frame.charge(len(text))
    return "".join(map(chr, array("H", text.encode(UTF16_CODEC, "surrogatepass"))))


def join_surrogates(text: str) -> str:
    """Return the string with surrogate pairs joined."""
    return SURROGATE_PAIR_PATTERN.sub(join_surrogate_pair, text) if has_surrogates(text) else text


def join_surrogate_pair(match: re.Match[str]) -> str:
    high, low = ord(match[0][0]), ord(match[0][1])
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def has_surrogates(text: str) -> bool:
    """Whether a string contains surrogates, paired or not."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def utf16_sort_key(frame: Frame, text: str) -> bytes:
    """Return a sort key with the order of JavaScript strings."""
    frame.charge_text(len(text))
    return text.encode("utf-16-be", "surrogatepass")


def join_pieces(frame: Frame, pieces: list[str]) -> str:
    """Join the pieces; the string is charged before it is created."""
    frame.charge_text(sum(map(len, pieces)))
    return join_surrogates("".join(pieces))


def repeat_text(frame: Frame, text: str, times: int) -> str:
    """Repeat a string; it is charged before it is created, wide characters four times."""
    frame.charge_text(len(text) * times * (1 if text.isascii() else 4))
    return text * times


def require_whole_characters(text: str) -> str:
    """Return the string; raise if it contains an unpaired surrogate."""
    if has_surrogates(text):
        raise EvaluationRefused("The string contains an unpaired surrogate; cut it at another position")
    return text
