"""How much an S-expression may be; everything is refused before it is built."""

from typing import Final

SIZE: Final = 256 * 1024
"""Bytes of a text."""
DEPTH: Final = 64
"""Brackets inside brackets."""
FORMS: Final = 50_000
"""Forms of a text."""
NAME: Final = 256
"""Characters of a symbol or keyword."""
LARGEST: Final = 2**53
"""Integers up to here are exact everywhere."""
PROBLEMS: Final = 20
"""Problems after which reading stops."""
