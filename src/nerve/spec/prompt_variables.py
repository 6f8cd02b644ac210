r"""Prompt variables: `$USER_MESSAGE`, `$1`, `$INPUTS.x` and `{{ expressions }}`, expanded in one pass.

Expanded values are not scanned again, so a message that contains `$1` or `{{` is not changed.
Any other `$NAME` is kept, because prompts often contain shell code; `\$1` is a literal `$1`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from nerve.expr import EvalError, EvaluationLimits, ExprError, Expression, Template, compile_template
from nerve.expr.errors import did_you_mean

VARIABLE_NAMES = ("USER_MESSAGE", "WORKFLOW_ID", "ARGUMENTS", "ARTIFACTS_DIR")
"""The named variables; `$1` to `$9` and `$INPUTS.<name>` are variables too."""

VARIABLE_PATTERN = re.compile(
    r"\\\{\{|(?P<escape>\\)?\$(?P<name>"
    rf"(?:{'|'.join(VARIABLE_NAMES)})(?![A-Za-z0-9_])|[1-9](?![0-9])|INPUTS\.[A-Za-z_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)"
)
CAPITALS_PATTERN = re.compile(r"(?<!\\)\$([A-Z][A-Z_]{3,})\b")


class PromptVariable:
    """A variable in a prompt, and its offset."""

    __slots__ = ("name", "offset")

    def __init__(self, name: str, offset: int) -> None:
        self.name, self.offset = name, offset

    @property
    def input(self) -> str | None:
        """The declared input that it refers to, if any."""
        return self.name.removeprefix("INPUTS.") if self.name.startswith("INPUTS.") else None


class PromptTemplate:
    """A compiled prompt."""

    __slots__ = ("names", "opaque_names", "parts", "paths", "source", "variables")

    def __init__(self, template: Template, parts: list[str | PromptVariable | Expression]) -> None:
        self.source, self.parts = template.source, parts
        self.names, self.opaque_names = template.names, template.opaque_names
        used_variables = [part for part in parts if isinstance(part, PromptVariable)]
        self.variables = frozenset(variable.name for variable in used_variables)
        """The variables it uses, named as in variable_values()."""
        inputs = (variable.input for variable in used_variables if variable.input is not None)
        self.paths = template.paths | {("inputs", name) for name in inputs}
        """The paths that its expressions read; `$INPUTS.x` counts as `inputs.x`."""

    def fill(self, variables: Mapping[str, str], scope: Mapping[str, Any]) -> str:
        """Return the expanded prompt, or raise EvalError for a failed expression or an unknown input."""
        parts = [
            part if isinstance(part, Expression) else self._part_text(part, variables) for part in self.parts
        ]
        return Template(self.source, parts, EvaluationLimits())(scope)

    def _part_text(self, part: str | PromptVariable, variables: Mapping[str, str]) -> str:
        if isinstance(part, str):
            return part
        if part.name in variables:
            return variables[part.name]
        if part.input is not None:
            raise EvalError(f"Unknown input '{part.input}'", self.source, part.offset, len(part.name) + 1)
        return f"${part.name}"

    def __repr__(self) -> str:
        return f"Prompt({self.source!r:.80})"


def compile_prompt(
    text: str,
    names: Iterable[str] | None = None,
    *,
    inputs: Iterable[str] | None = None,
    hyphens: Iterable[str] = (),
) -> PromptTemplate:
    """Compile a prompt, or raise ExprError at the position of the problem.

    `names` are the names that its expressions may use, `inputs` the declared inputs; None allows any.
    """
    prompt = _compile_prompt(text, None if names is None else frozenset(names), frozenset(hyphens))
    if inputs is not None:
        known = frozenset(inputs)
        for part in prompt.parts:
            if isinstance(part, PromptVariable) and part.input is not None and part.input not in known:
                message = f"Unknown input '{part.input}'{did_you_mean(part.input, known)}"
                raise ExprError(message, text, part.offset, len(part.name) + 1)
    return prompt


@lru_cache(maxsize=256)
def _compile_prompt(text: str, names: frozenset[str] | None, hyphens: frozenset[str]) -> PromptTemplate:
    template = compile_template(text, names, hyphens=hyphens)
    parts: list[str | PromptVariable | Expression] = []
    start = 0
    for expression in (part for part in template.parts if isinstance(part, Expression)):
        opening = text.rindex("{{", start, expression.offset)
        parts.extend(_literal_parts(text, start, opening))
        parts.append(expression)
        start = text.index("}}", expression.offset + len(expression.source)) + 2
    parts.extend(_literal_parts(text, start, len(text)))
    return PromptTemplate(template, parts)


def _literal_parts(text: str, start: int, end: int) -> Iterator[str | PromptVariable]:
    """Yield the literals and variables of the text between two expressions."""
    for match in VARIABLE_PATTERN.finditer(text, start, end):
        if match.start() > start:
            yield text[start : match.start()]
        if match["name"] is None:
            yield "{{"
        elif match["escape"]:
            yield f"${match['name']}"
        else:
            yield PromptVariable(match["name"], match.start())
        start = match.end()
    if start < end:
        yield text[start:end]


def find_misspelt_variables(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield names that look like misspelled variables: offset, name and suggestion."""
    for match in CAPITALS_PATTERN.finditer(text):
        name = match[1]
        if name not in VARIABLE_NAMES and (
            close := get_close_matches(name, VARIABLE_NAMES, n=1, cutoff=0.85)
        ):
            yield match.start(), name, close[0]


def variable_values(
    message: Any, run_id: str, artifacts_dir: str, inputs: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Return the values of all variables of a run."""
    text = prompt_value_text(message)
    values = {"USER_MESSAGE": text, "ARGUMENTS": text, "WORKFLOW_ID": run_id, "ARTIFACTS_DIR": artifacts_dir}
    values.update((str(number), word) for number, word in enumerate(split_arguments(text)[:9], start=1))
    values.update((f"INPUTS.{name}", prompt_value_text(value)) for name, value in (inputs or {}).items())
    return values


def split_arguments(message: str) -> list[str]:
    """Split a message into words like a shell; with an unclosed quote, at whitespace."""
    try:
        return shlex.split(message)
    except ValueError:
        return message.split()


def prompt_value_text(value: Any) -> str:
    """Return a value as prompt text: strings unchanged, null empty, anything else as JSON."""
    return value if isinstance(value, str) else compile_template("{{ value }}")({"value": value})
