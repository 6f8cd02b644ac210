"""S-expressions: a reader that records positions, and a printer."""

from nerve.text.sexpr.forms import (
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
from nerve.text.sexpr.printer import print_form
from nerve.text.sexpr.reader import read_forms, read_single_form

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
    "read_forms",
    "read_single_form",
]
