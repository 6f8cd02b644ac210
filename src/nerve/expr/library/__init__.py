"""The closed table of methods and functions."""

from __future__ import annotations

from nerve.expr.library.arrays import ARRAY, ARRAYS
from nerve.expr.library.json_text import JSON
from nerve.expr.library.maths import MATH
from nerve.expr.library.objects import OBJECT
from nerve.expr.library.scalars import BOOLEANS, CONSTANTS, NUMBERS, SCALAR
from nerve.expr.library.strings import STRINGS
from nerve.expr.library.table import Entry
from nerve.expr.values import Kind

METHODS_OF: dict[Kind, dict[str, Entry]] = {
    "string": STRINGS,
    "array": ARRAYS,
    "number": NUMBERS,
    "boolean": BOOLEANS,
    "object": {},
}
METHODS: dict[str, Entry] = {**BOOLEANS, **NUMBERS, **STRINGS, **ARRAYS}
"""Every method's name; where several kinds have it, none of them takes an arrow function."""

FUNCTIONS: dict[str, Entry] = {**SCALAR, **ARRAY, **OBJECT, **MATH, **JSON}
NAMESPACES = frozenset(name.split(".")[0] for name in [*FUNCTIONS, *CONSTANTS] if "." in name)

__all__ = ["CONSTANTS", "FUNCTIONS", "METHODS", "METHODS_OF", "NAMESPACES", "Entry"]
