"""Texts of the spec: literals that must not be read as templates, and `~a` templates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nerve.spec.variables import MARK

UNSAFE_BEFORE_HOLE: Final = re.compile(r"[\\{]{1,100}(?=[\\{]*\Z)")
DIRECTIVE: Final = re.compile(r"~(.?)", re.DOTALL)


class Mismatch(ValueError):
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


def hole(expression: str) -> str:
    return str(Hole(expression))


def quoted(text: str) -> str:
    """A string literal of the expression language."""
    return json.dumps(text, ensure_ascii=False)


def literal(text: str) -> str:
    """A template that gives this very text."""
    return text.replace("{{", "\\{{")


def before_hole(text: str) -> str:
    """The same in front of a hole, whose braces must not run together with the end of the text."""
    ending = UNSAFE_BEFORE_HOLE.search(text)
    if ending is None:
        return literal(text)
    start = ending.start()
    return literal(text[:start]) + UNSAFE_BEFORE_HOLE.sub(lambda found: hole(quoted(found[0])), text[start:])


def template(pieces: Sequence[Piece]) -> str:
    """The template of some pieces."""
    done, text = [], ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
        else:
            done += [before_hole(text), str(piece)]
            text = ""
    return "".join([*done, literal(text)])


def without_variables(template: str) -> str:
    """The template of a prompt in which `$1` and `$ARGUMENTS` are nothing but text."""
    return MARK.sub(lambda found: escaped(found) if found["name"] else found[0], template)


def escaped(found: re.Match[str]) -> str:
    return f"{found['escape'] or ''}\\${found['name']}"


def filled(given: str, arguments: Sequence[Piece]) -> str:
    """A `~a` template with its arguments in it; `~~` is a tilde."""
    texts = DIRECTIVE.split(given)
    directives = texts[1::2]
    for directive in directives:
        if directive not in ("a", "~"):
            raise Mismatch(
                f"'~{directive}' is unknown in a template", "Write ~a for a value, ~~ for a tilde."
            )
    if (wanted := directives.count("a")) != len(arguments):
        said = f"the template has {wanted} ~a, but {len(arguments)} arguments are given"
        raise Mismatch(said, "Give one for each ~a.")
    rest, pieces = iter(arguments), list[Piece](texts)
    pieces[1::2] = ["~" if directive == "~" else next(rest) for directive in directives]
    return template(pieces)
