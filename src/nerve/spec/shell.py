"""Shell commands with values in them: a value comes in a variable and never becomes part of the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nerve.core.values import encode
from nerve.expr import ExprError, Expression, Template, compile_template
from nerve.expr.values import UNDEFINED
from nerve.spec.shell_rules import Refusal
from nerve.spec.shell_scan import scan
from nerve.spec.shell_words import MARK

VALUE_LIMIT = 100_000
"""Bytes of one value; Linux refuses a variable, and an argument, of 131,072 bytes."""
COMMAND_LIMIT = 100_000


class UnsafeCommand(ExprError):
    """A `{{ }}` that stands where its value could become code, or could not arrive as it is."""

    def __init__(self, message: str, fix: str, source: str, offset: int, length: int) -> None:
        super().__init__(message, source, offset, length)
        self.fix = fix

    def __str__(self) -> str:
        message, pointing = super().__str__().split("\n", 1)
        return f"{message}. {self.fix}\n{pointing}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command whose values come from variables; `text` is what bash is given."""

    template: Template
    text: str
    expressions: tuple[Expression, ...]

    def fill(self, scope: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """The command, and the variables that it needs."""
        values = {variable(n): value(each, scope) for n, each in enumerate(self.expressions)}
        return self.text, values


def compile_command(text: str, names: Iterable[str] | None = None, *, hyphens: Iterable[str] = ()) -> Command:
    """Compile a command with `{{ expressions }}`; `names` and `hyphens` are those of `nerve.expr.compile`."""
    template = compile_template(text, names, hyphens=hyphens)
    found = tuple(part for part in template.parts if isinstance(part, Expression))
    if not found:
        return Command(template, "".join(map(str, template.parts)), ())
    if len(text) > COMMAND_LIMIT:
        raise ExprError(f"a command has at most {COMMAND_LIMIT:,} characters; put it into a script", text)
    if "\0" in text:
        raise ExprError("a command cannot contain a NUL character", text, text.index("\0"))
    marked = "".join(part if isinstance(part, str) else MARK for part in template.parts)
    try:
        inside = scan(marked)
    except Refusal as refusal:
        each = found[refusal.mark]
        raise UnsafeCommand(refusal.message, refusal.fix, text, each.offset, len(each.source)) from None
    pieces = marked.split(MARK)
    filled = pieces[0] + "".join(refer(n, inside[n]) + piece for n, piece in enumerate(pieces[1:]))
    return Command(template, filled, found)


def variable(number: int) -> str:
    return f"NERVE_V{number + 1}"


def refer(number: int, inside: bool) -> str:
    """How a value is used in the command; within double quotes it needs none of its own."""
    return f"${{{variable(number)}}}" if inside else f'"${{{variable(number)}}}"'


def value(expression: Expression, scope: Mapping[str, Any]) -> str:
    """The value as a variable holds it: strings as they are, nothing as nothing, anything else as JSON."""
    given = expression(scope)
    if not isinstance(given, str):
        given = "" if given is None or given is UNDEFINED else encode(given)
    data = given.encode("utf-8", "replace")
    if b"\0" in data:
        raise ValueError(
            f"the value of {{{{ {expression.source} }}}} contains a NUL character; no command can take it"
        )
    if len(data) > VALUE_LIMIT:
        raise ValueError(
            f"the value of {{{{ {expression.source} }}}} has {len(data):,} bytes, and a command can be given"
            f" {VALUE_LIMIT:,}; hand it over as the step's input, which arrives on standard input"
        )
    return data.decode()
