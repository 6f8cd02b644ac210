"""The expression language: a subset of JavaScript's expressions over JSON values, with limits."""

from nerve.expr.errors import EvalError, ExprError
from nerve.expr.expression import Expression, compile
from nerve.expr.frame import EvaluationLimits
from nerve.expr.template import Template, compile_template

__all__ = [
    "EvalError",
    "EvaluationLimits",
    "ExprError",
    "Expression",
    "Template",
    "compile",
    "compile_template",
]
