"""Compile forms to the expression language, and to values of the spec."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from nerve.notations.lisp.compile_context import Env, Helper, LispProgram
from nerve.notations.lisp.diagnostics import suggest_form_names, truncate_name
from nerve.notations.lisp.form_parsing import (
    check_argument_count,
    preview_form,
    require_form_name,
    split_form,
)
from nerve.notations.lisp.functions import FUNCTIONS
from nerve.notations.lisp.templates import (
    Hole,
    Piece,
    escape_template,
    quote_expression_string,
    render_hole,
    render_template,
)
from nerve.text.sexpr import Constant, Form, Keyword, ListForm, MapForm, Number, String, Symbol, VectorForm
from nerve.text.sexpr.forms import map_key_text
from nerve.text.source import LocatedList, LocatedMap

MAX_EXPRESSION_CHARS: Final = 4_000
"""Maximum length of an expression, slightly below that of the expression language."""
MAX_TOTAL_EXPRESSION_CHARS: Final = 1 << 20
"""Maximum total length of the expressions of a workflow, because helpers are inlined."""
SLOT_PATTERN: Final = re.compile("\0([0-9]+)(=?)\0")
"""A parameter slot of a helper: its number, and whether its value is compared."""
WORKFLOW_ID_SYMBOL: Final = "@workflow-id"
CONSTANT_TEXTS: Final = {None: "null", True: "true", False: "false"}

SpecialForm = Callable[[LispProgram, ListForm, Env], str]
SPECIAL_FORMS: Final[dict[str, SpecialForm]] = {}
"""Expression forms that are not functions of values."""


def register_special_form(*names: str) -> Callable[[SpecialForm], SpecialForm]:
    def add(compiler: SpecialForm) -> SpecialForm:
        SPECIAL_FORMS.update(dict.fromkeys(names, compiler))
        return compiler

    return add


def compile_expression(program: LispProgram, form: Form, env: Env) -> str:
    """Return the text of an expression; reject it if the total length exceeds the limit."""
    compiled = compile_expression_text(program, form, env)
    program.expression_chars += len(compiled)
    if program.expression_chars > MAX_TOTAL_EXPRESSION_CHARS:
        program.diagnostics.fail(
            form, "The expressions of the workflow are too long in total", "Use let instead of helpers."
        )
    return compiled


def compile_expression_text(program: LispProgram, form: Form, env: Env) -> str:
    compiled = compile_form_text(program, form, env)
    if len(compiled) > MAX_EXPRESSION_CHARS:
        fix = "Use let, or a template with ~a."
        program.diagnostics.fail(
            form, f"The expression is longer than {MAX_EXPRESSION_CHARS} characters", fix
        )
    return compiled


def compile_form_text(program: LispProgram, form: Form, env: Env) -> str:
    match form:
        case String(value):
            return quote_expression_string(value)
        case Number(value):
            return repr(value) if value >= 0 else f"({value!r})"
        case Constant(value):
            return CONSTANT_TEXTS[value]
        case Symbol():
            return compile_name(program, form, env)
        case VectorForm(items):
            inner = env.for_comparison()
            return f"[{', '.join(compile_expression_text(program, item, inner) for item in items)}]"
        case MapForm(items):
            inner = env.for_comparison()
            pairs = (
                f"{quote_expression_string(map_key_text(key))}: "
                f"{compile_expression_text(program, item, inner)}"
                for key, item in items
            )
            return f"({{{', '.join(pairs)}}})"
        case ListForm():
            return compile_call(program, form, env)
    return program.diagnostics.fail(form, f"':{form.name}' is not a value", f'Write "{form.name}".')


def compile_name(program: LispProgram, form: Symbol, env: Env) -> str:
    if form.name == WORKFLOW_ID_SYMBOL:
        return "run.label"
    if form.name not in env.names:
        fix = (
            f"{suggest_form_names(form.name, [*env.names, WORKFLOW_ID_SYMBOL])} Put strings in double quotes."
        )
        if form.name in ("input", "iteration"):
            fix = f"Write ({form.name}), and in :args (({form.name}))."
        program.diagnostics.fail(form, f"Unknown name '{truncate_name(form.name)}'", fix)
    reference = env.names[form.name]
    return (
        SLOT_PATTERN.sub("\0\\1=\0", reference) if env.compared and reference.startswith("\0") else reference
    )


def compile_call(program: LispProgram, form: ListForm, env: Env) -> str:
    name = form.head
    if name in SPECIAL_FORMS:
        return SPECIAL_FORMS[name](program, form, env)
    if name in program.helpers:
        return inline_helper(program, form, program.helpers[name], env)
    if name not in FUNCTIONS:
        program.diagnostics.add_unknown_name(
            form, "function", name or preview_form(form), [*FUNCTIONS, *SPECIAL_FORMS, *program.helpers]
        )
        return "null"
    function = FUNCTIONS[name]
    check_argument_count(
        program.diagnostics, form, len(form.items) - 1, function.min_arguments, function.max_arguments
    )
    numbered_arguments = enumerate(call_arguments(form))
    return function.render(
        [compile_expression_text(program, item, argument_env(env, name, n)) for n, item in numbered_arguments]
    )


def argument_env(env: Env, function: str, number: int) -> Env:
    """Return the context of an argument: conditions in it are tested, or compared by value."""
    if function in ("and", "or") or (function == "if" and number):
        return env
    return env.for_comparison(function not in ("not", "if"))


def call_arguments(form: ListForm) -> list[Form]:
    """Return the arguments of a call; `(get x :key)` becomes `(get x "key")`."""
    forms = list(form.items[1:])
    if form.head == "get" and len(forms) > 1 and isinstance(forms[1], Keyword):
        forms[1] = String(forms[1].name, forms[1].position)
    return forms


def inline_helper(program: LispProgram, form: ListForm, helper: Helper | None, env: Env) -> str:
    if helper is None:
        fix = "A helper can only call helpers above it."
        program.diagnostics.fail(form, f"The helper '{form.head}' is not defined yet", fix)
    check_argument_count(
        program.diagnostics, form, len(form.items) - 1, helper.parameter_count, helper.parameter_count
    )
    slots = SLOT_PATTERN.findall(helper.text)
    unused = {(str(n), "") for n in range(helper.parameter_count) if str(n) not in dict(slots)}
    argument_texts = {
        (number, compared): compile_expression_text(
            program, form.items[int(number) + 1], env.for_comparison(bool(compared))
        )
        for number, compared in sorted({*slots, *unused}, key=lambda slot: (int(slot[0]), slot[1]))
    }
    size = len(helper.text) + sum(len(argument_texts[slot]) for slot in slots)
    if size > 2 * MAX_EXPRESSION_CHARS:
        program.diagnostics.fail(
            form, f"The expression is longer than {MAX_EXPRESSION_CHARS} characters", "Use let."
        )
    return SLOT_PATTERN.sub(lambda match: argument_texts[match[1], match[2]], helper.text)


@register_special_form("input")
def compile_whole_input(program: LispProgram, form: ListForm, env: Env) -> str:
    split_form(program.diagnostics, form, most=0)
    return "input"


@register_special_form("iteration")
def compile_iteration(program: LispProgram, form: ListForm, env: Env) -> str:
    split_form(program.diagnostics, form, most=0)
    return "iteration"


@register_special_form("inputs")
def compile_declared_input(program: LispProgram, form: ListForm, env: Env) -> str:
    [name_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    name = require_form_name(program.diagnostics, name_form, "the name of an input")
    if name not in program.inputs:
        program.diagnostics.add_unknown_name(
            name_form, "input", name, program.inputs, f"Add (inputs ({name}))."
        )
    return f"inputs[{quote_expression_string(name)}]"


@register_special_form("artifact", "feedback")
def compile_last_answer(program: LispProgram, form: ListForm, env: Env) -> str:
    [role_form] = split_form(program.diagnostics, form, least=1, most=1).rest
    return f"roles[{quote_expression_string(require_role(program, role_form))}]"


def require_role(program: LispProgram, form: Form) -> str:
    name = require_form_name(program.diagnostics, form, "the name of a role")
    if name not in program.roles:
        program.diagnostics.add_unknown_name(form, "role", name, program.roles, f"Add (roles ({name})).")
    return name


def compile_value(program: LispProgram, form: Form, env: Env) -> Any:
    """Return a value of the spec: literals as plain data, other forms as templates."""
    match form:
        case String(constant):
            return escape_template(constant)
        case Number(constant) | Constant(constant):
            return constant
        case VectorForm(items, position):
            result = LocatedList((), position)
            for item in items:
                result.append_at(compile_value(program, item, env), item.position)
            return result
        case MapForm(items, position):
            return compile_map_values(program, items, env, LocatedMap((), position))
    return render_hole(compile_expression(program, form, env))


def compile_map_values(
    program: LispProgram, items: tuple[tuple[Keyword | String, Form], ...], env: Env, target: LocatedMap
) -> LocatedMap:
    for key, item in items:
        target.set_at(map_key_text(key), compile_value(program, item, env), item.position)
        target.key_positions[map_key_text(key)] = key.position
    return target


def compile_piece(program: LispProgram, form: Form, env: Env) -> Piece:
    """Return a piece of a template: a literal as text, another form as a hole."""
    if isinstance(form, String):
        return form.value
    if isinstance(form, Number):
        return str(form.value)
    return Hole(compile_expression(program, form, env))


def compile_text_value(program: LispProgram, form: Form, env: Env) -> str:
    """Return a value of the spec that is always a string."""
    return render_template([compile_piece(program, form, env)])
