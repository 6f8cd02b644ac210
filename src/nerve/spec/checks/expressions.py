"""Checks of expressions, templates, prompts and commands: their syntax and their references."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nerve.core.result import Result
from nerve.expr import ExprError, Expression, compile, compile_template
from nerve.spec import models
from nerve.spec.checks import node_rules
from nerve.spec.checks.node_rules import suggest_known_name
from nerve.spec.checks.visibility import Visibility
from nerve.spec.prompt_variables import PromptVariable, compile_prompt
from nerve.spec.scope import VISIBLE_NAMES, RunVariables, step_view
from nerve.spec.shell.command import UnsafeCommand, compile_command
from nerve.spec.walk import EmbeddedText, SpecNode, TextKind, embedded_texts, hyphenated_names
from nerve.text.source import Document, Loc, Position, Problem

ALWAYS_VISIBLE_NAMES = frozenset({*VISIBLE_NAMES, "given"})
LINE_PATTERN = re.compile(r"[^\n]*\n|[^\n]+")
UNKNOWN_NAME_PATTERN = re.compile(r"Unknown name `([^`]+)`")
COMPARISON_PATTERN = re.compile(r"[=!<>]=*\s*$")
"""A comparison operator at the end of the source before a name."""
STEP_KEYS = tuple(step_view(Result.ok()))
RUN_KEYS = tuple(RunVariables().to_dict())
GITHUB_ACTIONS_PATTERN = re.compile(r"(?<!\\)\$\{\{")
ARCHON_REFERENCE_PATTERN = re.compile(r"(?<!\\)\$([A-Za-z_][\w-]*)\.output\b((?:\.[A-Za-z_]\w*)*)")
PROMPT_VARIABLE_FIXES = {
    "$": "Write the name alone, without ${ }.",
    "$INPUTS": "Write inputs.name.",
    "$USER_MESSAGE": "Write input.",
    "$ARGUMENTS": "Write input.",
    "$WORKFLOW_ID": "Write run.id.",
    "$ARTIFACTS_DIR": "Write run.artifacts.",
}
"""Fixes for prompt variables that are written in an expression."""
COMPILERS: Mapping[TextKind, Callable[..., Any]] = {
    "expression": compile,
    "template": compile_template,
    "command": compile_command,
    "prompt": compile_prompt,
}


def check_embedded_texts(
    document: Document, spec: models.WorkflowSpec, spec_nodes: list[SpecNode]
) -> Iterator[Problem]:
    visibility, hyphenated = Visibility(spec_nodes), hyphenated_names(spec, spec_nodes)
    lines = LINE_PATTERN.findall(document.text)
    for spec_node in spec_nodes:
        for text in embedded_texts(spec_node.spec):
            loc = spec_node.loc + text.loc
            for offset, message, fix in find_foreign_references(text, visibility.nodes_by_id):
                file, at = position_in_source(document, lines, spec_node, text, offset)
                yield Problem(file, at, message, fix)
            names = ALWAYS_VISIBLE_NAMES | spec_node.extra_names | text.extra_names
            options = {"variables": text.variables} if text.kind == "command" else {}
            try:
                compiled = COMPILERS[text.kind](text.source, names=names, hyphens=hyphenated, **options)
            except ExprError as error:
                error_message = (
                    f"Invalid condition: {text.source[:100]}: {error.message}"
                    if is_step_condition(document, spec_node)
                    else error.message
                )
                yield problem_in_text(
                    document, lines, loc, text, error, error_message, suggest_expression_fix(error, names)
                )
                continue
            for warning in getattr(compiled, "warnings", ()):
                problem = problem_in_text(document, lines, loc, text, warning, warning.message, warning.fix)
                yield replace(problem, severity="warning")
            for offset, path in find_references(getattr(compiled, "template", compiled)):
                for message, fix in check_reference(path, spec, visibility, spec_node):
                    file, at = position_in_source(document, lines, spec_node, text, offset)
                    yield Problem(file, at, message, fix)


def position_in_source(
    document: Document, lines: list[str], spec_node: SpecNode, text: EmbeddedText, offset: int
) -> tuple[str, Position]:
    """Return the file and position of a character of a text: in the document, or in a prompt file."""
    if (
        text.kind == "prompt"
        and isinstance(spec_node.spec, models.PromptSpec)
        and spec_node.spec.file in document.prompts
    ):
        return document.prompts[spec_node.spec.file], Position().at_offset(text.source, offset)
    start = document.position_of(spec_node.loc + text.loc)
    return document.file, find_position_in_lines(lines, start, text.source, offset) or start


def is_step_condition(document: Document, spec_node: SpecNode) -> bool:
    """Whether a node is a condition of a step machine: a state whose value selects the next step."""
    if document.state_word != "step" or spec_node.kind != "transform" or not spec_node.ancestors:
        return False
    parent = spec_node.ancestors[-1].spec
    if not isinstance(parent, models.MachineSpec) or not isinstance(n := spec_node.loc[-2], int):
        return False
    return any(transition.when is not None for transition in parent.states[n].next)


def suggest_expression_fix(error: ExprError, names: Iterable[str]) -> str:
    if isinstance(error, UnsafeCommand):
        return error.fix
    if "; " in error.message:
        return ""
    if match := UNKNOWN_NAME_PATTERN.match(error.message):
        if COMPARISON_PATTERN.search(error.source[: error.offset]):
            return f"Put text in quotes: '{match[1]}'."
        return PROMPT_VARIABLE_FIXES.get(match[1]) or f"Available names: {', '.join(sorted(names))}."
    return "See docs/reference/expressions.md for the syntax of expressions."


def problem_in_text(
    document: Document,
    lines: list[str],
    loc: Loc,
    text: EmbeddedText,
    error: ExprError,
    message: str,
    fix: str,
) -> Problem:
    """Return a problem inside a text, at its exact position if the source contains the text verbatim."""
    start = document.position_of(loc)
    at = find_position_in_lines(lines, start, text.source, error.offset)
    line = text.source.split("\n")[error.line - 1]
    where = "" if at else f" (column {error.column} of {line[:60]!r})"
    return Problem(document.file, at or start, f"{message}{where}", fix)


def find_position_in_lines(lines: list[str], start: Position, text: str, offset: int) -> Position | None:
    """Return the source position of a character of a text; None if the source spells the text differently."""
    if start.line > len(lines):
        return None
    last = start.line + text.count("\n") + 1
    first = lines[start.line - 1][start.column - 1 : start.column + len(text)]
    rest = "".join((first, *lines[start.line : last]))
    for skip in (0, 1):
        if rest[skip : skip + len(text)] == text:
            return Position(start.line, start.column + skip).at_offset(text, offset)
    # Like find_position_in_lines(), for a text whose lines are indented in the source.
    before = text[:offset]
    number, column = before.count("\n"), offset - (before.rfind("\n") + 1)
    block = [line.rstrip("\r\n") for line in lines[start.line - 1 : last][: number + 1]]
    expected_lines = text.split("\n")[: number + 1]
    if len(block) <= number or not all(
        line.endswith(end) for line, end in zip(block, expected_lines, strict=True)
    ):
        return None
    return Position(start.line + number, len(block[-1]) - len(expected_lines[-1]) + column + 1)


def find_references(compiled: Any) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the offset and path of each reference in the expressions of a text."""
    for part in getattr(compiled, "parts", [compiled]):
        if isinstance(part, PromptVariable) and part.input is not None:
            yield part.offset, ("inputs", part.input)
        elif isinstance(part, Expression):
            for path in sorted(part.paths):
                yield part.offset + max(part.source.find(".".join(path[:2])), 0), path


def find_foreign_references(text: EmbeddedText, ids: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield references in the syntax of other tools, which are not expanded here."""
    if text.kind == "expression":
        return
    if text.kind != "command":  # compile_command() reports these itself
        for match in GITHUB_ACTIONS_PATTERN.finditer(text.source):
            yield match.start(), "`${{ … }}` must not start with a `$` here", "Write {{ … }}."
    if text.kind in ("prompt", "command"):
        for match in ARCHON_REFERENCE_PATTERN.finditer(text.source):
            name, rest = match[1], match[2]
            assigned = re.search(
                rf"\b{re.escape(name)}=|\b(for|read)\b[^\n;]*\b{re.escape(name)}\b", text.source
            )
            if name in ids and not (text.kind == "command" and assigned):
                fix = f"Write {{{{ steps.{name}.output{rest} }}}}."
                yield match.start(), f"`{match[0]}` is not expanded here", fix


def check_reference(
    path: tuple[str, ...], spec: models.WorkflowSpec, visibility: Visibility, spec_node: SpecNode
) -> Iterator[tuple[str, str]]:
    """Yield the problems of a reference to a step, an input or the run."""
    if len(path) < 2:
        return
    root, name = path[0], path[1]
    if root == "run" and name not in RUN_KEYS:
        yield (
            f"run has no field '{name}'{suggest_known_name(name, RUN_KEYS)}",
            f"Fields: {', '.join(RUN_KEYS)}.",
        )
    if root == "steps" and len(path) > 2 and path[2] not in STEP_KEYS and name in visibility.nodes_by_id:
        fix = f"Fields: {', '.join(STEP_KEYS)}."
        yield f"steps.{name} has no field '{path[2]}'{suggest_known_name(path[2], STEP_KEYS)}", fix
    if root == "inputs" and name not in spec.inputs:
        yield f"Unknown input '{name}'{suggest_known_name(name, spec.inputs)}", "Declare it under inputs."
    if root not in ("steps", "results", "outputs", "fields", "context") or (
        root == "context" and name in spec.context
    ):
        return
    if name not in visibility.nodes_by_id:
        yield node_rules.describe_unknown_name(f"Unknown step '{name}'", name, visibility.nodes_by_id)
    elif not visibility.can_read(spec_node, name):
        in_graph = any(up.kind == "graph" for up in spec_node.ancestors)
        fix = "Make this step depend on it." if in_graph else "Read it in a step after the parallel step."
        yield f"Step '{name}' runs in parallel with this one", fix
