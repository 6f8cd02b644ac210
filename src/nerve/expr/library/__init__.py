"""The built-in methods and functions."""

from __future__ import annotations

from nerve.expr.library.arrays import ARRAY_FUNCTIONS, ARRAY_METHODS
from nerve.expr.library.json_functions import JSON_FUNCTIONS
from nerve.expr.library.math_functions import MATH_FUNCTIONS
from nerve.expr.library.objects import OBJECT_FUNCTIONS
from nerve.expr.library.scalars import BOOLEAN_METHODS, CONSTANTS, NUMBER_METHODS, SCALAR_FUNCTIONS
from nerve.expr.library.strings import STRING_METHODS
from nerve.expr.library.table import LibraryFunction
from nerve.expr.values import Kind

METHODS_BY_KIND: dict[Kind, dict[str, LibraryFunction]] = {
    "string": STRING_METHODS,
    "array": ARRAY_METHODS,
    "number": NUMBER_METHODS,
    "boolean": BOOLEAN_METHODS,
    "object": {},
}
METHODS: dict[str, LibraryFunction] = {**BOOLEAN_METHODS, **NUMBER_METHODS, **STRING_METHODS, **ARRAY_METHODS}
"""All methods by name; a method that several kinds have never takes an arrow function."""

FUNCTIONS: dict[str, LibraryFunction] = {
    **SCALAR_FUNCTIONS,
    **ARRAY_FUNCTIONS,
    **OBJECT_FUNCTIONS,
    **MATH_FUNCTIONS,
    **JSON_FUNCTIONS,
}
NAMESPACES = frozenset(name.split(".")[0] for name in [*FUNCTIONS, *CONSTANTS] if "." in name)

__all__ = ["CONSTANTS", "FUNCTIONS", "METHODS", "METHODS_BY_KIND", "NAMESPACES", "LibraryFunction"]
