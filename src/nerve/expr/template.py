r"""Templates: text with expressions, as in `Hi {{ inputs.name }}!`; `\{{` is a literal `{{`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from nerve.expr import utf16
from nerve.expr.analysis import NamePath
from nerve.expr.errors import EvaluationRefused, ExprError
from nerve.expr.expression import Expression, build_expression
from nerve.expr.frame import DEFAULT_LIMITS, EvaluationLimits, Frame
from nerve.expr.lexer import Lexer
from nerve.expr.library.json_functions import json_stringify
from nerve.expr.values import UNDEFINED

OPENING_PATTERN = re.compile(r"\\?\{\{")


class Template:
    """A compiled template."""

    __slots__ = ("_limits", "names", "opaque_names", "parts", "paths", "source")

    def __init__(self, source: str, parts: list[str | Expression], limits: EvaluationLimits) -> None:
        self.source, self.parts, self._limits = source, parts, limits
        expressions = [part for part in parts if isinstance(part, Expression)]
        self.names: frozenset[str] = frozenset().union(*(expression.names for expression in expressions))
        self.paths: frozenset[NamePath] = frozenset().union(*(expression.paths for expression in expressions))
        self.opaque_names: frozenset[str] = frozenset().union(
            *(expression.opaque_names for expression in expressions)
        )

    def __call__(self, scope: Mapping[str, Any]) -> str:
        """Return the text: strings unchanged, null and undefined empty, anything else as JSON."""
        frame = Frame(scope, self._limits, self._limits.fuel)
        pieces = [part if isinstance(part, str) else render_expression(frame, part) for part in self.parts]
        return "".join(pieces)

    def value(self, scope: Mapping[str, Any]) -> Any:
        """Return the value if the template is exactly one `{{ }}`, else the text."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0](scope)
        return self(scope)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"


def render_expression(frame: Frame, expression: Expression) -> str:
    """Return the text of an expression in a template."""
    try:
        frame.charge(expression.cost)
        value = expression.evaluate(frame)
        if value is None or value is UNDEFINED or (type(value) is float and value - value != 0):
            return ""
        if type(value) is str:
            frame.charge_text(len(value))
            return utf16.require_whole_characters(value)
        return str(json_stringify(frame, value))
    except EvaluationRefused as error:
        raise expression.error(str(error)) from None


def compile_template(
    source: str,
    names: Iterable[str] | None = None,
    *,
    hyphens: Iterable[str] = (),
    limits: EvaluationLimits = DEFAULT_LIMITS,
) -> Template:
    """Compile a text with `{{ expressions }}`; for `names` and `hyphens` see compile()."""
    return _compile_template(source, None if names is None else frozenset(names), frozenset(hyphens), limits)


@lru_cache(maxsize=256)
def _compile_template(
    source: str, names: frozenset[str] | None, hyphens: frozenset[str], limits: EvaluationLimits
) -> Template:
    if len(source) > limits.template:
        raise ExprError(f"A template can have at most {limits.template:,} characters", source[:100])
    parts: list[str | Expression] = []
    text, offset = "", 0
    while match := OPENING_PATTERN.search(source, offset):
        text += source[offset : match.start()]
        if match[0][0] == "\\":
            text, offset = text + "{{", match.end()
            continue
        if text:
            parts.append(text)
            text = ""
        start = match.end()
        lexer = Lexer(source, start, limits=limits, hyphens=hyphens, closing="}}")
        tokens = lexer.tokens_to_end()
        offset = lexer.offset + 2
        if len(tokens) == 1:
            raise ExprError("Empty expression between `{{` and `}}`", source, start - 2, offset - start + 2)
        end = tokens[-2].offset + len(tokens[-2].text)
        parts.append(build_expression(source, tokens, tokens[0].offset, end, names, limits))
    text += source[offset:]
    return Template(source, [*parts, text] if text else parts, limits)
