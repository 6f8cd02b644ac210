"""The expression language: a subset of JavaScript's expressions over JSON values, with limits."""

from nerve.expr.errors import EvalError, ExprError
from nerve.expr.expression import Expression, compile
from nerve.expr.limits import Limits
from nerve.expr.template import Template, compile_template

__all__ = ["EvalError", "ExprError", "Expression", "Limits", "Template", "compile", "compile_template"]
