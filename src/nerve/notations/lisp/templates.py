"""Strings of the spec: escaped literals, and `~a` templates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nerve.spec.prompt_variables import VARIABLE_PATTERN

UNSAFE_BEFORE_HOLE: Final = re.compile(r"[\\{]{1,100}(?=[\\{]*\Z)")
DIRECTIVE_PATTERN: Final = re.compile(r"~(.?)", re.DOTALL)


class TemplateMismatch(ValueError):
    """A template does not match its arguments."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole of a template that an expression fills."""

    expression: str

    def __str__(self) -> str:
        return f"{{{{ {self.expression} }}}}"


Piece = str | Hole
"""Plain text or a hole."""


def render_hole(expression: str) -> str:
    return str(Hole(expression))


def quote_expression_string(text: str) -> str:
    """Return a string literal of the expression language."""
    return json.dumps(text, ensure_ascii=False)


def escape_template(text: str) -> str:
    """Return a template that renders to a text."""
    return text.replace("{{", "\\{{")


def escape_before_hole(text: str) -> str:
    """Escape text before a hole, so that its last characters do not merge with the braces of the hole."""
    ending = UNSAFE_BEFORE_HOLE.search(text)
    if ending is None:
        return escape_template(text)
    start = ending.start()
    return escape_template(text[:start]) + UNSAFE_BEFORE_HOLE.sub(
        lambda match: render_hole(quote_expression_string(match[0])), text[start:]
    )


def render_template(pieces: Sequence[Piece]) -> str:
    """Return the template of some pieces."""
    parts, text = [], ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        else:
            parts += [escape_before_hole(text), str(piece)]
            text = ""
    return "".join([*parts, escape_template(text)])


def escape_prompt_variables(template: str) -> str:
    """Escape `$1` and `$ARGUMENTS` in a prompt template, so that they stay literal text."""
    return VARIABLE_PATTERN.sub(lambda match: escape_variable(match) if match["name"] else match[0], template)


def escape_variable(match: re.Match[str]) -> str:
    return f"{match['escape'] or ''}\\${match['name']}"


def fill_template(source: str, arguments: Sequence[Piece]) -> str:
    """Fill a `~a` template with its arguments; `~~` is a tilde."""
    texts = DIRECTIVE_PATTERN.split(source)
    directives = texts[1::2]
    for directive in directives:
        if directive not in ("a", "~"):
            raise TemplateMismatch(
                f"Unknown directive '~{directive}' in a template", "Write ~a for a value, ~~ for a tilde."
            )
    if (placeholder_count := directives.count("a")) != len(arguments):
        message = f"The template has {placeholder_count} ~a, got {len(arguments)} arguments"
        raise TemplateMismatch(message, "Pass one argument for each ~a.")
    rest, pieces = iter(arguments), list[Piece](texts)
    pieces[1::2] = ["~" if directive == "~" else next(rest) for directive in directives]
    return render_template(pieces)
