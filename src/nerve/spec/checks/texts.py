"""Expressions, templates, prompts and commands: whether they can be read, and what they refer to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nerve.core.nodes.graph import suggest
from nerve.expr import ExprError, Expression, compile, compile_template
from nerve.spec import models
from nerve.spec.checks.order import before
from nerve.spec.scope import SEEN
from nerve.spec.shell import compile_command
from nerve.spec.source import Document, Place, Problem
from nerve.spec.variables import Variable, compile_prompt
from nerve.spec.walk import Found, Written, written

ALWAYS = frozenset({*SEEN, "given"})


def wrong_texts(document: Document, spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Problem]:
    ids = {each.spec.id for each in found if each.spec.id}
    for each in found:
        reachable: set[str] | None = None
        for text in written(each.spec):
            loc = each.loc + text.loc
            try:
                compiled = read(text, ALWAYS | each.extra | text.extra, ids)
            except ExprError as error:
                yield problem_in(document, loc, text, error)
                continue
            if reachable is None:
                reachable = before(each, found)
            for offset, path in references(compiled):
                for message, fix in unknown(path, spec, ids, reachable):
                    at = inside(document.text, document.place(loc), text.source, offset)
                    yield Problem(document.file, at or document.place(loc), message, fix)


def read(text: Written, names: frozenset[str], ids: set[str]) -> Any:
    hyphens = frozenset(id for id in ids if "-" in id)
    match text.way:
        case "expression":
            return compile(text.source, names=names, hyphens=hyphens)
        case "template":
            return compile_template(text.source, names=names, hyphens=hyphens)
        case "command":
            return compile_command(text.source, names=names, hyphens=hyphens).template
        case "prompt":
            return compile_prompt(text.source, names=names, hyphens=hyphens)


def problem_in(document: Document, loc: tuple[str | int, ...], text: Written, error: ExprError) -> Problem:
    """An error inside a text, at its own line and column if the text stands in the source as it is."""
    start = document.place(loc)
    at = inside(document.text, start, text.source, error.offset)
    where = "" if at else f" (column {error.column} of {text.source.splitlines()[0][:60]!r})"
    return Problem(document.file, at or start, f"{error.message}{where}")


def inside(source: str, start: Place, text: str, offset: int) -> Place | None:
    """Where a character of a text stands in the source, or None if it is written another way there."""
    lines = source.splitlines(keepends=True)
    if start.line > len(lines):
        return None
    rest = "".join(lines[start.line - 1 :])[start.column - 1 :][: len(text) + 200]
    for skip in (0, 1):
        if rest[skip : skip + len(text)] == text:
            return Place(start.line, start.column + skip).after(text, offset)
    return in_block(lines[start.line - 1 :], start, text, offset)


def in_block(lines: list[str], start: Place, text: str, offset: int) -> Place | None:
    """The same for a text whose lines are indented in the source."""
    before = text[:offset]
    number, column = before.count("\n"), offset - (before.rfind("\n") + 1)
    block = [line.rstrip("\r\n") for line in lines[: number + 1]]
    wanted = text.split("\n")[: number + 1]
    if len(block) <= number or not all(line.endswith(end) for line, end in zip(block, wanted, strict=True)):
        return None
    return Place(start.line + number, len(block[-1]) - len(wanted[-1]) + column + 1)


def references(compiled: Any) -> Iterator[tuple[int, tuple[str, ...]]]:
    """What the expressions of a text refer to, and where in it that stands."""
    for part in getattr(compiled, "parts", [compiled]):
        if isinstance(part, Variable) and part.input is not None:
            yield part.offset, ("inputs", part.input)
        elif isinstance(part, Expression):
            for path in sorted(part.paths):
                yield part.offset + max(part.source.find(".".join(path[:2])), 0), path


def unknown(
    path: tuple[str, ...], spec: models.WorkflowSpec, ids: set[str], reachable: set[str]
) -> Iterator[tuple[str, str]]:
    """What is wrong with a reference to a step or an input."""
    if len(path) < 2:
        return
    root, name = path[0], path[1]
    if root == "inputs" and name not in spec.inputs:
        yield f"there is no input '{name}'{suggest(name, spec.inputs)}", "Declare it under inputs."
    if root not in ("steps", "results", "context") or (root == "context" and name in spec.context):
        return
    if name not in ids:
        yield f"there is no step '{name}'{suggest(name, ids)}", "Name a step of this workflow."
    elif name not in reachable:
        yield f"step '{name}' runs side by side with this one", "Make this one depend on it."
