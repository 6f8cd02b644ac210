"""How much an S-expression may be; everything is refused before it is built."""

from typing import Final

MAX_SEXPR_BYTES: Final = 256 * 1024
"""Bytes of a text."""
MAX_SEXPR_DEPTH: Final = 64
"""Brackets inside brackets."""
MAX_FORMS: Final = 50_000
"""Forms of a text."""
MAX_SYMBOL_CHARS: Final = 256
"""Characters of a symbol or keyword."""
MAX_INTEGER: Final = 2**53
"""Integers up to here are exact everywhere."""
MAX_PROBLEMS: Final = 20
"""Problems after which reading stops."""
