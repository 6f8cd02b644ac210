"""Print forms as text that the reader parses back into equal forms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import chain
from typing import Final

from nerve.text.sexpr.forms import (
    CONSTANTS,
    MAX_INTEGER,
    MAX_SYMBOL_CHARS,
    NUMBER_LIKE_PATTERN,
    SYMBOL_PATTERN,
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

LINE_WIDTH: Final = 100
SURROGATE_PATTERN: Final = re.compile("[\ud800-\udfff]")
NONCHARACTER_ESCAPES: Final = {"\ufffe": "\\ufffe", "\uffff": "\\uffff"}


def print_form(form: Form, width: int = LINE_WIDTH) -> str:
    """Return a form as text, with lines of at most `width` columns where possible."""
    return layout_form(form, 0, width)


def layout_form(form: Form, indent: int, width: int) -> str:
    line = form_on_one_line(form)
    if indent + len(line) <= width:
        return line
    match form:
        case MapForm(items) if items:
            return f"{{{layout_items(chain.from_iterable(items), indent + 1, width)}}}"
        case VectorForm(items) if items:
            return f"[{layout_items(items, indent + 1, width)}]"
        case ListForm(items) if len(items) > 1:
            # Lay out a list: its head and name on the first line, the rest below, indented by two.
            first = 2 if isinstance(items[1], Symbol) else 1
            head = " ".join(layout_form(item, indent + 1, width) for item in items[:first])
            if len(items) == first:
                return f"({head})"
            return f"({head}\n{' ' * (indent + 2)}{layout_items(items[first:], indent + 2, width)})"
        case _:
            return line


def layout_items(items: Iterable[Form], indent: int, width: int) -> str:
    """Lay out one item per line; a keyword shares a line with its value if both fit."""
    lines: list[str] = []
    after_key = False
    for item in items:
        line = form_on_one_line(item)
        if after_key and indent + len(lines[-1]) + 1 + len(line) <= width:
            lines[-1] += f" {line}"
        else:
            lines.append(layout_form(item, indent, width))
        after_key = not after_key and isinstance(item, Keyword)
    return ("\n" + " " * indent).join(lines)


def form_on_one_line(form: Form) -> str:
    """Return a form on one line."""
    match form:
        case Symbol(name):
            if name in CONSTANTS or NUMBER_LIKE_PATTERN.match(name):
                raise ValueError(f"{name!r} is not a symbol")
            return check_symbol_name(name)
        case Keyword(name):
            return f":{check_symbol_name(name)}"
        case String(value):
            if SURROGATE_PATTERN.search(value):
                raise ValueError(f"{value[:40]!r} contains an unpaired surrogate")
            text = json.dumps(value, ensure_ascii=False)
            for raw, escape in NONCHARACTER_ESCAPES.items():
                text = text.replace(raw, escape)
            return text
        case Number(value):
            if not math.isfinite(value) or (isinstance(value, int) and abs(value) > MAX_INTEGER):
                raise ValueError(f"the number {value} cannot be written")
            return repr(value)
        case Constant(value):
            return "nil" if value is None else "true" if value else "false"
        case ListForm(items):
            return f"({' '.join(map(form_on_one_line, items))})"
        case MapForm(items):
            return (
                "{"
                + " ".join(f"{form_on_one_line(key)} {form_on_one_line(value)}" for key, value in items)
                + "}"
            )
        case VectorForm(items):
            return f"[{' '.join(map(form_on_one_line, items))}]"


def check_symbol_name(name: str) -> str:
    if len(name) > MAX_SYMBOL_CHARS or not SYMBOL_PATTERN.fullmatch(name):
        raise ValueError(f"{name[:MAX_SYMBOL_CHARS]!r} cannot be the name of a symbol or keyword")
    return name
