"""Limits of S-expressions, enforced before forms are built."""

from typing import Final

MAX_SEXPR_BYTES: Final = 256 * 1024
"""Maximum size of a text in bytes."""
MAX_SEXPR_DEPTH: Final = 64
"""Maximum nesting of brackets."""
MAX_FORMS: Final = 50_000
"""Maximum number of forms in a text."""
MAX_SYMBOL_CHARS: Final = 256
"""Maximum length of a symbol or keyword in characters."""
MAX_INTEGER: Final = 2**53
"""Larger integers lose precision in readers that use doubles."""
MAX_PROBLEMS: Final = 20
"""Parsing stops after this many problems."""
