"""Texts of the spec: literals that must not be read as templates, and `~a` templates."""

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
    """A template that does not go with its arguments, and how to mend it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of a template that an expression fills."""

    expression: str

    def __str__(self) -> str:
        return f"{{{{ {self.expression} }}}}"


Piece = str | Hole
"""A plain text, or a hole."""


def render_hole(expression: str) -> str:
    return str(Hole(expression))


def quote_expression_string(text: str) -> str:
    """A string literal of the expression language."""
    return json.dumps(text, ensure_ascii=False)


def escape_template(text: str) -> str:
    """A template that gives this very text."""
    return text.replace("{{", "\\{{")


def escape_before_hole(text: str) -> str:
    """The same in front of a hole, whose braces must not run together with the end of the text."""
    ending = UNSAFE_BEFORE_HOLE.search(text)
    if ending is None:
        return escape_template(text)
    start = ending.start()
    return escape_template(text[:start]) + UNSAFE_BEFORE_HOLE.sub(
        lambda match: render_hole(quote_expression_string(match[0])), text[start:]
    )


def render_template(pieces: Sequence[Piece]) -> str:
    """The template of some pieces."""
    done, text = [], ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        else:
            done += [escape_before_hole(text), str(piece)]
            text = ""
    return "".join([*done, escape_template(text)])


def escape_prompt_variables(template: str) -> str:
    """The template of a prompt in which `$1` and `$ARGUMENTS` are nothing but text."""
    return VARIABLE_PATTERN.sub(lambda match: escape_variable(match) if match["name"] else match[0], template)


def escape_variable(match: re.Match[str]) -> str:
    return f"{match['escape'] or ''}\\${match['name']}"


def fill_template(source: str, arguments: Sequence[Piece]) -> str:
    """A `~a` template with its arguments in it; `~~` is a tilde."""
    texts = DIRECTIVE_PATTERN.split(source)
    directives = texts[1::2]
    for directive in directives:
        if directive not in ("a", "~"):
            raise TemplateMismatch(
                f"'~{directive}' is unknown in a template", "Write ~a for a value, ~~ for a tilde."
            )
    if (placeholder_count := directives.count("a")) != len(arguments):
        message = f"the template has {placeholder_count} ~a, but {len(arguments)} arguments are given"
        raise TemplateMismatch(message, "Give one for each ~a.")
    rest, pieces = iter(arguments), list[Piece](texts)
    pieces[1::2] = ["~" if directive == "~" else next(rest) for directive in directives]
    return render_template(pieces)
