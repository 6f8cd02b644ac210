"""Compile forms to expressions, templates and values of the spec."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from nerve.lazy_dataclass import dataclass
from nerve.notations.lisp.program import (
    Env,
    LispProgram,
    preview_form,
    suggest_form_names,
    truncate_name,
)
from nerve.spec.prompt_variables import VARIABLE_PATTERN
from nerve.text.sexpr import (
    Constant,
    Form,
    Keyword,
    ListForm,
    MapForm,
    Number,
    String,
    Symbol,
    VectorForm,
    print_form,
)
from nerve.text.sexpr.forms import MAX_SEXPR_DEPTH, map_key_text
from nerve.text.source import LocatedList, LocatedMap

# -- functions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpressionFunction:
    """A function: its number of arguments, and the renderer of a call."""

    min_arguments: int
    max_arguments: int | None
    render: Callable[..., str]


def infix_operator(operator: str, least: int = 2, most: int | None = None) -> ExpressionFunction:
    return ExpressionFunction(least, most, lambda *values: f"({f' {operator} '.join(values)})")


def method_call(name: str, count: int = 1) -> ExpressionFunction:
    return ExpressionFunction(count, count, lambda value, *rest: f"({value}).{name}({', '.join(rest)})")


def chain_operator(operator: str) -> ExpressionFunction:
    """Return a function that compares each argument with the next."""

    def render(*values: str) -> str:
        return f"({' && '.join(f'{left} {operator} {right}' for left, right in pairwise(values))})"

    return ExpressionFunction(2, None, render)


VALUE_TEXT: Final = 'v !== null && typeof v === "object" ? JSON.stringify(v) : v'
"""The text of a value `v` as `~a` formats it: nil as nothing, lists and objects as JSON."""
FUNCTIONS: Final = {
    "str": ExpressionFunction(
        0, None, lambda *values: f'[{", ".join(values)}].map((v) => {VALUE_TEXT}).join("")'
    ),
    "+": infix_operator("+", 1),
    "-": ExpressionFunction(
        1, None, lambda first, *rest: f"({' - '.join((first, *rest))})" if rest else f"(-{first})"
    ),
    "*": infix_operator("*"),
    "/": infix_operator("/"),
    "mod": ExpressionFunction(2, 2, lambda left, right: f"((({left}) % ({right}) + ({right})) % ({right}))"),
    "=": chain_operator("==="),
    "!=": infix_operator("!==", 2, 2),
    "<": chain_operator("<"),
    ">": chain_operator(">"),
    "<=": chain_operator("<="),
    ">=": chain_operator(">="),
    "not": ExpressionFunction(1, 1, lambda value: f"(!{value})"),
    "and": infix_operator("&&", 1),
    "or": infix_operator("||", 1),
    "if": ExpressionFunction(2, 3, lambda test, then, other="null": f"({test} ? {then} : {other})"),
    "get": ExpressionFunction(2, 3, lambda value, key, other="null": f"({value}?.[{key}] ?? {other})"),
    "count": ExpressionFunction(1, 1, lambda value: f"Object.keys({value}).length"),
    "concat": ExpressionFunction(0, None, lambda *lists: f"[{', '.join(f'...{item}' for item in lists)}]"),
    "join": method_call("join", 2),
    "contains": method_call("includes", 2),
    "lower": method_call("toLowerCase"),
    "upper": method_call("toUpperCase"),
    "trim": method_call("trim"),
    "json": ExpressionFunction(1, 1, lambda value: f"JSON.stringify({value})"),
    "parse-json": ExpressionFunction(1, 1, lambda value: f"JSON.parse({value})"),
}


# -- strings and templates -----------------------------------------------------------------------


UNSAFE_BEFORE_HOLE: Final = re.compile(r"[\\{]{1,100}(?=[\\{]*\Z)")
DIRECTIVE_PATTERN: Final = re.compile(r"~(.?)", re.DOTALL)


class Hole(str):
    """A piece of a template that is not plain text: the expression that fills a hole."""

    __slots__ = ()


def render_hole(expression: str) -> str:
    return f"{{{{ {expression} }}}}"


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


def render_template(pieces: Sequence[str]) -> str:
    """Return the template of some pieces."""
    parts, text = [], ""
    for piece in pieces:
        if isinstance(piece, Hole):
            parts += [escape_before_hole(text), render_hole(piece)]
            text = ""
        else:
            text += piece
    return "".join([*parts, escape_template(text)])


def escape_prompt_variables(template: str) -> str:
    """Escape `$1` and `$ARGUMENTS` in a prompt template, so that they stay literal text."""
    return VARIABLE_PATTERN.sub(
        lambda match: f"{match['escape'] or ''}\\${match['name']}" if match["name"] else match[0], template
    )


def fill_message_template(program: LispProgram, form: Form, arguments: Sequence[str]) -> str:
    """Return a `~a` template filled with its arguments; `~~` is a tilde."""
    pieces = DIRECTIVE_PATTERN.split(program.require_string(form, "a template"))
    directives = pieces[1::2]
    for directive in directives:
        if directive not in ("a", "~"):
            message = f"Unknown directive '~{directive}' in a template"
            program.fail(form, message, "Write ~a for a value, ~~ for a tilde.")
    if (placeholder_count := directives.count("a")) != len(arguments):
        message = f"The template has {placeholder_count} ~a, got {len(arguments)} arguments"
        program.fail(form, message, "Pass one argument for each ~a.")
    rest = iter(arguments)
    pieces[1::2] = ["~" if directive == "~" else next(rest) for directive in directives]
    return render_template(pieces)


# -- the spec as literals ------------------------------------------------------------------------


PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}", re.ASCII)


NameResolver = Callable[[Form], str | None]
"""Returns the template of a visible name or a call; None for another form."""


def literal_value(program: LispProgram, form: Form, resolve_name: NameResolver = lambda form: None) -> Any:
    """Return the JSON value of a literal, with positions."""

    def convert(form: Form) -> Any:
        if (template := resolve_name(form)) is not None:
            return template
        match form:
            case String(value) | Number(value) | Constant(value):
                return value
            case Symbol(name):
                program.add(form, f"'{name}' is not a value", "Put strings in double quotes.")
            case _:
                fix = "Write a list as [a b c] and an object as {:key value}."
                program.add(form, f"Expected a value, found {preview_form(form)}", fix)
        return None

    return convert_literal(form, convert)


def convert_literal(form: Form, convert: Callable[[Form], Any]) -> Any:
    """Return a vector or map with its items converted, however deep; any other form is converted itself."""
    if isinstance(form, VectorForm):
        items = ((convert_literal(item, convert), item.position) for item in form.items)
        return LocatedList.of(items, form.position)
    if not isinstance(form, MapForm):
        return convert(form)
    result = LocatedMap((), form.position)
    for key, item in form.items:
        result.set_at(map_key_text(key), convert_literal(item, convert), item.position)
        result.key_positions[map_key_text(key)] = key.position
    return result


def write_document(data: Mapping[str, Any]) -> str:
    """Return the full form of a spec."""
    return print_form(ListForm((Symbol("spec"), literal_form(data)))) + "\n"


def literal_form(value: Any, depth: int = 1) -> Form:
    """Return the literal of a JSON value."""
    if depth > MAX_SEXPR_DEPTH + 1:
        raise ValueError(f"Cannot write Lisp: nested deeper than {MAX_SEXPR_DEPTH} levels")
    match value:
        case None | bool():
            return Constant(value)
        case int() | float():
            return Number(value)
        case str():
            return String(value)
        case Mapping():
            return MapForm(
                tuple((literal_key(key), literal_form(item, depth + 1)) for key, item in value.items())
            )
        case list() | tuple():
            return VectorForm(tuple(literal_form(item, depth + 1) for item in value))
    raise ValueError(f"Cannot write Lisp: unsupported type {type(value).__name__}")


def literal_key(key: object) -> Keyword | String:
    if not isinstance(key, str):
        raise ValueError(f"Cannot write Lisp: a key must be a string, got {key!r}")
    return Keyword(key) if PLAIN_KEY.fullmatch(key) else String(key)


# -- expressions ---------------------------------------------------------------------------------


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
        program.fail(
            form, "The expressions of the workflow are too long in total", "Use let instead of helpers."
        )
    return compiled


def compile_expression_text(program: LispProgram, form: Form, env: Env) -> str:
    compiled = compile_form_text(program, form, env)
    if len(compiled) > MAX_EXPRESSION_CHARS:
        fix = "Use let, or a template with ~a."
        program.fail(form, f"The expression is longer than {MAX_EXPRESSION_CHARS} characters", fix)
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
    return program.fail(form, f"':{form.name}' is not a value", f'Write "{form.name}".')


def compile_name(program: LispProgram, form: Symbol, env: Env) -> str:
    if form.name == WORKFLOW_ID_SYMBOL:
        return "run.label"
    if form.name not in env.names:
        fix = (
            f"{suggest_form_names(form.name, [*env.names, WORKFLOW_ID_SYMBOL])} Put strings in double quotes."
        )
        if form.name in ("input", "iteration"):
            fix = f"Write ({form.name}), and in :args (({form.name}))."
        program.fail(form, f"Unknown name '{truncate_name(form.name)}'", fix)
    reference = env.names[form.name]
    return (
        SLOT_PATTERN.sub("\0\\1=\0", reference) if env.compared and reference.startswith("\0") else reference
    )


def compile_call(program: LispProgram, form: ListForm, env: Env) -> str:
    name = form.head
    if name in SPECIAL_FORMS:
        return SPECIAL_FORMS[name](program, form, env)
    if name in program.helpers:
        helper = program.helpers[name]
        if helper is None:
            fix = "A helper can only call helpers above it."
            program.fail(form, f"The helper '{form.head}' is not defined yet", fix)
        program.check_argument_count(
            form, len(form.items) - 1, helper.parameter_count, helper.parameter_count
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
            program.fail(form, f"The expression is longer than {MAX_EXPRESSION_CHARS} characters", "Use let.")
        return SLOT_PATTERN.sub(lambda match: argument_texts[match[1], match[2]], helper.text)
    if name not in FUNCTIONS:
        program.add_unknown_name(
            form, "function", name or preview_form(form), [*FUNCTIONS, *SPECIAL_FORMS, *program.helpers]
        )
        return "null"
    function = FUNCTIONS[name]
    program.check_argument_count(form, len(form.items) - 1, function.min_arguments, function.max_arguments)
    forms = list(form.items[1:])
    if form.head == "get" and len(forms) > 1 and isinstance(forms[1], Keyword):
        forms[1] = String(forms[1].name, forms[1].position)
    return function.render(
        *(compile_expression_text(program, item, argument_env(env, name, n)) for n, item in enumerate(forms))
    )


def argument_env(env: Env, function: str, number: int) -> Env:
    """Return the context of an argument: conditions in it are tested, or compared by value."""
    if function in ("and", "or") or (function == "if" and number):
        return env
    return env.for_comparison(function not in ("not", "if"))


@register_special_form("input", "iteration")
def compile_scope_name(program: LispProgram, form: ListForm, env: Env) -> str:
    program.split_form(form, most=0)
    return form.head


@register_special_form("inputs")
def compile_declared_input(program: LispProgram, form: ListForm, env: Env) -> str:
    [name_form], _ = program.split_form(form, least=1, most=1)
    name = program.require_name(name_form, "the name of an input")
    if name not in program.inputs:
        program.add_unknown_name(name_form, "input", name, program.inputs, f"Add (inputs ({name})).")
    return f"inputs[{quote_expression_string(name)}]"


@register_special_form("artifact", "feedback")
def compile_last_answer(program: LispProgram, form: ListForm, env: Env) -> str:
    [role_form], _ = program.split_form(form, least=1, most=1)
    return f"roles[{quote_expression_string(require_role(program, role_form))}]"


def require_role(program: LispProgram, form: Form) -> str:
    name = program.require_name(form, "the name of a role")
    if name not in program.roles:
        program.add_unknown_name(form, "role", name, program.roles, f"Add (roles ({name})).")
    return name


def compile_value(program: LispProgram, form: Form, env: Env) -> Any:
    """Return a value of the spec: literals as plain data, other forms as templates."""

    def convert(form: Form) -> Any:
        match form:
            case String(constant):
                return escape_template(constant)
            case Number(constant) | Constant(constant):
                return constant
        return render_hole(compile_expression(program, form, env))

    return convert_literal(form, convert)


def compile_piece(program: LispProgram, form: Form, env: Env) -> str:
    """Return a piece of a template: a literal as text, another form as a hole."""
    if isinstance(form, String):
        return form.value
    if isinstance(form, Number):
        return str(form.value)
    return Hole(compile_expression(program, form, env))


def compile_text_value(program: LispProgram, form: Form, env: Env) -> str:
    """Return a value of the spec that is always a string."""
    return render_template([compile_piece(program, form, env)])
