r"""Variables of prompts: `$USER_MESSAGE`, `$1`, `$INPUTS.x` and `{{ expressions }}`, filled in one pass.

What is filled in is never looked at again, so a message that contains `$1` or `{{` stays as it was typed.
Any other `$NAME` stays as it is, because prompts are full of shell; `\$1` stands for `$1` itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from nerve.expr import EvalError, ExprError, Expression, Limits, Template, compile_template
from nerve.expr.errors import did_you_mean

NAMES = ("USER_MESSAGE", "WORKFLOW_ID", "ARGUMENTS", "ARTIFACTS_DIR")
"""The variables with names of their own; beside them there are `$1` to `$9` and `$INPUTS.<name>`."""

MARK = re.compile(
    r"\\\{\{|(?P<escape>\\)?\$(?P<name>"
    rf"(?:{'|'.join(NAMES)})(?![A-Za-z0-9_])|[1-9](?![0-9])|INPUTS\.[A-Za-z_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)"
)
CAPITALS = re.compile(r"(?<!\\)\$([A-Z][A-Z_]{3,})\b")


class Variable:
    """A variable in a prompt, and where it stands."""

    __slots__ = ("name", "offset")

    def __init__(self, name: str, offset: int) -> None:
        self.name, self.offset = name, offset

    @property
    def input(self) -> str | None:
        """The declared input it stands for, if it is one."""
        return self.name.removeprefix("INPUTS.") if self.name.startswith("INPUTS.") else None


class Prompt:
    """A compiled prompt."""

    __slots__ = ("names", "opaque_names", "parts", "paths", "source", "variables")

    def __init__(self, source: str, parts: list[str | Variable | Expression]) -> None:
        self.source, self.parts = source, parts
        found = [part for part in parts if isinstance(part, Variable)]
        expressions = [part for part in parts if isinstance(part, Expression)]
        inputs = frozenset(("inputs", each.input) for each in found if each.input is not None)
        self.variables = frozenset(each.name for each in found)
        """The variables it uses, as `variables_of` names them."""
        self.names: frozenset[str] = frozenset().union(*(each.names for each in expressions))
        self.paths: frozenset[tuple[str, ...]] = inputs.union(*(each.paths for each in expressions))
        """What its expressions read, as those of a template; `$INPUTS.x` counts as `inputs.x`."""
        self.opaque_names: frozenset[str] = frozenset().union(*(each.opaque_names for each in expressions))

    def fill(self, variables: Mapping[str, str], scope: Mapping[str, Any]) -> str:
        """The text for an agent; `EvalError` for an expression that fails and an input that is not there."""
        parts = [part if isinstance(part, Expression) else self._text(part, variables) for part in self.parts]
        return Template(self.source, parts, Limits())(scope)

    def _text(self, part: str | Variable, variables: Mapping[str, str]) -> str:
        if isinstance(part, str):
            return part
        if part.name in variables:
            return variables[part.name]
        if part.input is not None:
            raise EvalError(f"there is no input '{part.input}'", self.source, part.offset, len(part.name) + 1)
        return f"${part.name}"

    def __repr__(self) -> str:
        return f"Prompt({self.source!r:.80})"


def compile_prompt(
    text: str,
    names: Iterable[str] | None = None,
    *,
    inputs: Iterable[str] | None = None,
    hyphens: Iterable[str] = (),
) -> Prompt:
    """Compile a prompt; `ExprError` points at what is wrong.

    `names` are those that its expressions may use, `inputs` the declared inputs; None for any.
    """
    prompt = _compiled(text, None if names is None else frozenset(names), frozenset(hyphens))
    if inputs is not None:
        known = frozenset(inputs)
        for part in prompt.parts:
            if isinstance(part, Variable) and part.input is not None and part.input not in known:
                said = f"there is no input '{part.input}'{did_you_mean(part.input, known)}"
                raise ExprError(said, text, part.offset, len(part.name) + 1)
    return prompt


@lru_cache(maxsize=256)
def _compiled(text: str, names: frozenset[str] | None, hyphens: frozenset[str]) -> Prompt:
    template = compile_template(text, names, hyphens=hyphens)
    parts: list[str | Variable | Expression] = []
    start = 0
    for expression in (part for part in template.parts if isinstance(part, Expression)):
        opening = text.rindex("{{", start, expression.offset)
        parts.extend(_literal(text, start, opening))
        parts.append(expression)
        start = text.index("}}", expression.offset + len(expression.source)) + 2
    parts.extend(_literal(text, start, len(text)))
    return Prompt(text, parts)


def _literal(text: str, start: int, end: int) -> Iterator[str | Variable]:
    """The parts of a stretch of text between expressions."""
    for found in MARK.finditer(text, start, end):
        if found.start() > start:
            yield text[start : found.start()]
        if found["name"] is None:
            yield "{{"
        elif found["escape"]:
            yield f"${found['name']}"
        else:
            yield Variable(found["name"], found.start())
        start = found.end()
    if start < end:
        yield text[start:end]


def misspelt(text: str) -> Iterator[tuple[int, str, str]]:
    """Names that look like a variable written wrong: where, what, and what was probably meant."""
    for found in CAPITALS.finditer(text):
        name = found[1]
        if name not in NAMES and (close := get_close_matches(name, NAMES, n=1, cutoff=0.85)):
            yield found.start(), name, close[0]


def variables_of(
    message: Any, run_id: str, artifacts_dir: str, inputs: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The values of all variables of a run."""
    text = text_of(message)
    given = {"USER_MESSAGE": text, "ARGUMENTS": text, "WORKFLOW_ID": run_id, "ARTIFACTS_DIR": artifacts_dir}
    given.update((str(number), word) for number, word in enumerate(arguments(text)[:9], start=1))
    given.update((f"INPUTS.{name}", text_of(value)) for name, value in (inputs or {}).items())
    return given


def arguments(message: str) -> list[str]:
    """The words of a message, as a shell would split them; with an open quote, at blanks."""
    try:
        return shlex.split(message)
    except ValueError:
        return message.split()


def text_of(value: Any) -> str:
    """A value as it stands in a prompt: a text as it is, nothing for null, anything else as JSON."""
    return value if isinstance(value, str) else compile_template("{{ value }}")({"value": value})
