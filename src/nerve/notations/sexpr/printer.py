"""The printer: forms to text that the reader reads back as the same forms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import chain
from typing import Final

from nerve.notations.sexpr.atoms import CONSTANTS, NUMBER_LIKE, SYMBOL
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
from nerve.notations.sexpr.limits import LARGEST, NAME

WIDTH: Final = 100
SURROGATE: Final = re.compile("[\ud800-\udfff]")
RAW: Final = {"\ufffe": "\\ufffe", "\uffff": "\\uffff"}


def print_form(form: Form, width: int = WIDTH) -> str:
    """A form as text, broken into lines where one would be longer than `width`."""
    return laid_out(form, 0, width)


def laid_out(form: Form, indent: int, width: int) -> str:
    line = flat(form)
    if indent + len(line) <= width:
        return line
    match form:
        case MapForm(items) if items:
            return f"{{{broken(chain.from_iterable(items), indent + 1, width)}}}"
        case VectorForm(items) if items:
            return f"[{broken(items, indent + 1, width)}]"
        case ListForm(items) if len(items) > 1:
            return opened(items, indent, width)
        case _:
            return line


def opened(items: tuple[Form, ...], indent: int, width: int) -> str:
    """A list: its head and the name behind it on the first line, the rest below, indented by two."""
    first = 2 if isinstance(items[1], Symbol) else 1
    head = " ".join(laid_out(item, indent + 1, width) for item in items[:first])
    if len(items) == first:
        return f"({head})"
    return f"({head}\n{' ' * (indent + 2)}{broken(items[first:], indent + 2, width)})"


def broken(items: Iterable[Form], indent: int, width: int) -> str:
    """One item a line; a keyword shares its line with what follows it, if that fits."""
    lines: list[str] = []
    after_key = False
    for item in items:
        line = flat(item)
        if after_key and indent + len(lines[-1]) + 1 + len(line) <= width:
            lines[-1] += f" {line}"
        else:
            lines.append(laid_out(item, indent, width))
        after_key = not after_key and isinstance(item, Keyword)
    return ("\n" + " " * indent).join(lines)


def flat(form: Form) -> str:
    """A form on one line."""
    match form:
        case Symbol(name):
            return symbol(name)
        case Keyword(name):
            return f":{checked(name)}"
        case String(value):
            return string(value)
        case Number(value):
            return number(value)
        case Constant(value):
            return "nil" if value is None else "true" if value else "false"
        case ListForm(items):
            return f"({' '.join(map(flat, items))})"
        case MapForm(items):
            return "{" + " ".join(f"{flat(key)} {flat(value)}" for key, value in items) + "}"
        case VectorForm(items):
            return f"[{' '.join(map(flat, items))}]"


def symbol(name: str) -> str:
    if name in CONSTANTS or NUMBER_LIKE.match(name):
        raise ValueError(f"{name!r} is not a symbol")
    return checked(name)


def checked(name: str) -> str:
    if len(name) > NAME or not SYMBOL.fullmatch(name):
        raise ValueError(f"{name[:NAME]!r} cannot be the name of a symbol or keyword")
    return name


def string(value: str) -> str:
    if SURROGATE.search(value):
        raise ValueError(f"{value[:40]!r} has half a character in it")
    text = json.dumps(value, ensure_ascii=False)
    for raw, escape in RAW.items():
        text = text.replace(raw, escape)
    return text


def number(value: int | float) -> str:
    if not math.isfinite(value) or (isinstance(value, int) and abs(value) > LARGEST):
        raise ValueError(f"the number {value} cannot be written")
    return repr(value)
