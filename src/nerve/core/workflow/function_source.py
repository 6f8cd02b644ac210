"""The source of a function, exactly as `inspect.getsource` gives it: runs are pinned to its hash.

`inspect` finds the end of a function by regular expressions, and to compile these takes longer than to replay
a hundred steps. Here the end is the first line outside the function up to which the text can be parsed.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Sequence
from itertools import islice
from types import FunctionType
from typing import Any

DEFINITIONS = ("def ", "async def ")
MAX_PARSED_ENDS = 5
"""The number of lines at which a function may seem to end, as in a long text without indentation."""


def read_source(thing: Any) -> str:
    """Return the source of a function or class; raise OSError or TypeError if there is none."""
    function = inspect.unwrap(thing) if isinstance(thing, FunctionType) else None
    source = read_function_source(function) if isinstance(function, FunctionType) else None
    return inspect.getsource(thing) if source is None else source


def read_function_source(function: FunctionType) -> str | None:
    """Return the source of a function; None if only `inspect` can find it, as for a lambda."""
    file = inspect.getsourcefile(function)
    if file is None:
        return None
    linecache.checkcache(file)
    module = inspect.getmodule(function, file)
    file_lines = linecache.getlines(file, None if module is None else module.__dict__)
    lines = file_lines[function.__code__.co_firstlineno - 1 :]
    if not lines or not lines[0].lstrip().startswith((*DEFINITIONS, "@")):
        return None
    margin = margin_of(lines[0])
    for end in islice(find_possible_ends(lines, margin), MAX_PARSED_ENDS):
        # An indented function is parsed as the body of a statement.
        head = "if True:\n" if margin else ""
        try:
            [statement] = ast.parse(head + "".join(lines[:end])).body
        except SyntaxError:
            continue  # the line is in a string or in brackets
        [defined] = statement.body if isinstance(statement, ast.If) else [statement]
        if not isinstance(defined, ast.FunctionDef | ast.AsyncFunctionDef) or has_lambda(defined):
            return None
        # Of a function in one line, no comment is in its block.
        first = defined.body[0]
        indent = lines[first.lineno - 1 - bool(head)][: first.col_offset]
        return "".join(lines[: skip_outer_lines(lines, end, len(indent) if indent.isspace() else None)])
    return None


def margin_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def find_possible_ends(lines: Sequence[str], margin: int) -> Iterator[int]:
    """Yield the numbers of lines after which a function with this margin may have ended."""
    is_defined = False
    for number, line in enumerate(lines):
        text = line.lstrip()
        if is_defined and text and not text.startswith("#") and margin_of(line) <= margin:
            yield number
        is_defined = is_defined or text.startswith(DEFINITIONS)
    yield len(lines)


def has_lambda(defined: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator contains a lambda, for which `inspect` does not return the function."""
    inner_nodes = (inner for decorator in defined.decorator_list for inner in ast.walk(decorator))
    return any(isinstance(inner, ast.Lambda) for inner in inner_nodes)


def skip_outer_lines(lines: Sequence[str], end: int, block_margin: int | None) -> int:
    """Return the end without empty lines, and without the comments that are not in the block."""
    while (text := lines[end - 1].lstrip()) == "" or text.startswith("#"):
        if text and block_margin is not None and margin_of(lines[end - 1]) >= block_margin:
            break
        end -= 1
    return end
