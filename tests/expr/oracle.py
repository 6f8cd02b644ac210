"""QuickJS as the oracle: compare results exactly, including the sign of zero."""

from __future__ import annotations

import json
import math
from typing import Any

import quickjs

from nerve.expr import EvalError, ExprError, compile
from nerve.expr.frame import DEFAULT_LIMITS, Frame
from nerve.expr.numbers import number_to_text
from nerve.expr.property_access import own_entries
from nerve.expr.values import UNDEFINED, value_kind

DUMP = """
function dump(value) {
  if (value === undefined) return "undefined";
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (value === null || typeof value === "boolean" || typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return "[" + value.map(dump).join(",") + "]";
  if (typeof value !== "object") return "a " + typeof value;
  return "{" + Object.keys(value).map(key => JSON.stringify(key) + ":" + dump(value[key])).join(",") + "}";
}
function both(value) { return JSON.stringify([dump(value), JSON.stringify(value) ?? "null"]) }
"""


class Refusal(Exception):
    """One of the two engines rejected the expression."""


class Oracle:
    """A JavaScript engine that has the scope as its global names."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.context = quickjs.Context()
        self.context.eval(DUMP)
        for name, value in scope.items():
            self.context.eval(f"globalThis[{json.dumps(name)}] = JSON.parse({json.dumps(json.dumps(value))})")

    def __call__(self, source: str) -> tuple[str, Any]:
        """The exact value as text, and the value as JSON."""
        try:
            exact, text = json.loads(self.context.eval(f"both((\n{source}\n))"))
        except (quickjs.JSException, quickjs.StackOverflow) as error:
            raise Refusal(str(error)) from None
        return exact, json.loads(text, parse_int=float)


def ours(source: str, scope: dict[str, Any]) -> tuple[str, Any]:
    """The exact value and the JSON value of our evaluator."""
    try:
        expression = compile(source)
        frame = Frame(scope, DEFAULT_LIMITS, DEFAULT_LIMITS.fuel)
        exact = dump(expression.evaluate(frame))
        return exact, expression(scope)
    except (ExprError, EvalError) as error:
        raise Refusal(str(error)) from None


def dump(value: Any) -> str:
    match value_kind(value):
        case "number":
            return "-0" if value == 0 and math.copysign(1, value) < 0 else number_to_text(value)
        case "string":
            return quoted(value)
        case "array":
            return f"[{','.join(map(dump, value))}]"
        case "object":
            entries = own_entries(Frame({}, DEFAULT_LIMITS, DEFAULT_LIMITS.fuel), value)
            return f"{{{','.join(f'{quoted(key)}:{dump(item)}' for key, item in entries)}}}"
        case _:
            return "undefined" if value is UNDEFINED else json.dumps(value)


def quoted(text: str) -> str:
    written = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in written)
