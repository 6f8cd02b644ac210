"""Expressions, templates, prompts and commands: whether they can be read, and what they refer to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from nerve.core.result import Result
from nerve.expr import ExprError, Expression, compile, compile_template
from nerve.spec import models
from nerve.spec.checks import rules
from nerve.spec.checks.order import Sight
from nerve.spec.checks.rules import near
from nerve.spec.scope import SEEN, Facts, step
from nerve.spec.shell import UnsafeCommand, compile_command
from nerve.spec.source import Document, Loc, Place, Problem
from nerve.spec.variables import Variable, compile_prompt
from nerve.spec.walk import Found, Written, hyphens, written

ALWAYS = frozenset({*SEEN, "given"})
LINE = re.compile(r"[^\n]*\n|[^\n]+")
NO_NAME = re.compile(r"there is no `([^`]+)` here")
COMPARED = re.compile(r"[=!<>]=*\s*$")
"""A comparison, with which the text before a name ends."""
STEP_KEYS = tuple(step(Result.ok()))
RUN_KEYS = tuple(Facts().to_dict())
ACTIONS = re.compile(r"(?<!\\)\$\{\{")
ARCHON = re.compile(r"(?<!\\)\$([A-Za-z_][\w-]*)\.output\b((?:\.[A-Za-z_]\w*)*)")
VARIABLES = {
    "$": "Write the name alone, without ${ }.",
    "$INPUTS": "Write inputs.name.",
    "$USER_MESSAGE": "Write input.",
    "$ARGUMENTS": "Write input.",
    "$WORKFLOW_ID": "Write run.id.",
    "$ARTIFACTS_DIR": "Write run.artifacts.",
}
"""Variables of prompts, which are no names of expressions, and what to write for them."""


def wrong_texts(document: Document, spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Problem]:
    sight, hyphenated = Sight(found), hyphens(spec, found)
    lines = LINE.findall(document.text)
    for each in found:
        for text in written(each.spec):
            loc = each.loc + text.loc
            for offset, message, fix in foreign(text, sight.ids):
                file, at = place_in(document, lines, each, text, offset)
                yield Problem(file, at, message, fix)
            names = ALWAYS | each.extra | text.extra
            try:
                compiled = read(text, names, hyphenated)
            except ExprError as error:
                told = called_invalid(text, error) if is_condition(document, each) else error.message
                yield problem_in(document, lines, loc, text, error, told, fix_of(error, names))
                continue
            for warning in getattr(compiled, "warnings", ()):
                found_at = problem_in(document, lines, loc, text, warning, warning.message, warning.fix)
                yield replace(found_at, severity="warning")
            for offset, path in references(getattr(compiled, "template", compiled)):
                for message, fix in unknown(path, spec, sight, each):
                    file, at = place_in(document, lines, each, text, offset)
                    yield Problem(file, at, message, fix)


def place_in(
    document: Document, lines: list[str], each: Found, text: Written, offset: int
) -> tuple[str, Place]:
    """Where a character of a text stands: in the document, or in the file of a prompt."""
    if text.way == "prompt" and isinstance(each.spec, models.Prompt) and each.spec.file in document.prompts:
        return document.prompts[each.spec.file], Place().after(text.source, offset)
    start = document.place(each.loc + text.loc)
    return document.file, inside(lines, start, text.source, offset) or start


def read(text: Written, names: frozenset[str], hyphens: frozenset[str]) -> Any:
    match text.way:
        case "expression":
            return compile(text.source, names=names, hyphens=hyphens)
        case "template":
            return compile_template(text.source, names=names, hyphens=hyphens)
        case "command":
            return compile_command(text.source, names=names, hyphens=hyphens, variables=text.variables)
        case "prompt":
            return compile_prompt(text.source, names=names, hyphens=hyphens)


def is_condition(document: Document, each: Found) -> bool:
    """Whether a node is a condition of a step machine: a state that goes one of two ways by its value."""
    if document.states != "step" or each.kind != "transform" or not each.above:
        return False
    around = each.above[-1].spec
    if not isinstance(around, models.Machine) or not isinstance(n := each.loc[-2], int):
        return False
    return any(way.when is not None for way in around.states[n].next)


def called_invalid(text: Written, error: ExprError) -> str:
    return f"Invalid condition: {text.source[:100]}: {error.message}"


def fix_of(error: ExprError, names: Iterable[str]) -> str:
    if isinstance(error, UnsafeCommand):
        return error.fix
    if "; " in error.message:
        return ""
    if found := NO_NAME.match(error.message):
        if COMPARED.search(error.source[: error.offset]):
            return f"Put text in quotes: '{found[1]}'."
        return VARIABLES.get(found[1]) or f"An expression here sees: {', '.join(sorted(names))}."
    return "What an expression can be stands in docs/expressions.md."


def problem_in(
    document: Document, lines: list[str], loc: Loc, text: Written, error: ExprError, message: str, fix: str
) -> Problem:
    """An error inside a text, at its own line and column if the text stands in the source as it is."""
    start = document.place(loc)
    at = inside(lines, start, text.source, error.offset)
    line = text.source.split("\n")[error.line - 1]
    where = "" if at else f" (column {error.column} of {line[:60]!r})"
    return Problem(document.file, at or start, f"{message}{where}", fix)


def inside(lines: list[str], start: Place, text: str, offset: int) -> Place | None:
    """Where a character of a text stands in the source, or None if it is written another way there."""
    if start.line > len(lines):
        return None
    last = start.line + text.count("\n") + 1
    first = lines[start.line - 1][start.column - 1 : start.column + len(text)]
    rest = "".join((first, *lines[start.line : last]))
    for skip in (0, 1):
        if rest[skip : skip + len(text)] == text:
            return Place(start.line, start.column + skip).after(text, offset)
    return in_block(lines[start.line - 1 : last], start, text, offset)


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


def foreign(text: Written, ids: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """References as other tools write them, which would stay in the text as they are."""
    if text.way == "expression":
        return
    if text.way != "command":  # a command has an error of its own for that
        for found in ACTIONS.finditer(text.source):
            yield found.start(), "`${{ … }}` is not written with a `$` here", "Write {{ … }}."
    if text.way in ("prompt", "command"):
        for found in ARCHON.finditer(text.source):
            name, rest = found[1], found[2]
            assigned = re.search(
                rf"\b{re.escape(name)}=|\b(for|read)\b[^\n;]*\b{re.escape(name)}\b", text.source
            )
            if name in ids and not (text.way == "command" and assigned):
                fix = f"Write {{{{ steps.{name}.output{rest} }}}}."
                yield found.start(), f"`{found[0]}` is not filled in here", fix


def unknown(
    path: tuple[str, ...], spec: models.WorkflowSpec, sight: Sight, each: Found
) -> Iterator[tuple[str, str]]:
    """What is wrong with a reference to a step or an input."""
    if len(path) < 2:
        return
    root, name = path[0], path[1]
    if root == "run" and name not in RUN_KEYS:
        yield f"run has no '{name}'{near(name, RUN_KEYS)}", f"It has: {', '.join(RUN_KEYS)}."
    if root == "steps" and len(path) > 2 and path[2] not in STEP_KEYS and name in sight.ids:
        fix = f"A step has: {', '.join(STEP_KEYS)}."
        yield f"steps.{name} has no '{path[2]}'{near(path[2], STEP_KEYS)}", fix
    if root == "inputs" and name not in spec.inputs:
        yield f"there is no input '{name}'{near(name, spec.inputs)}", "Declare it under inputs."
    if root not in ("steps", "results", "context") or (root == "context" and name in spec.context):
        return
    if name not in sight.ids:
        yield rules.unknown(f"there is no step '{name}'", name, sight.ids)
    elif not sight.sees(each, name):
        in_graph = any(up.kind == "graph" for up in each.above)
        fix = "Make this one depend on it." if in_graph else "Read it in a step after the parallel one."
        yield f"step '{name}' runs side by side with this one", fix
