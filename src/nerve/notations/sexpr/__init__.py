"""S-expressions: a reader that knows where everything stands, and a printer."""

from nerve.notations.sexpr.forms import (
    Constant,
    Form,
    Keyword,
    ListForm,
    MapForm,
    Number,
    String,
    Symbol,
    VectorForm,
)
from nerve.notations.sexpr.printer import print_form
from nerve.notations.sexpr.reader import read_all, read_one

__all__ = [
    "Constant",
    "Form",
    "Keyword",
    "ListForm",
    "MapForm",
    "Number",
    "String",
    "Symbol",
    "VectorForm",
    "print_form",
    "read_all",
    "read_one",
]
