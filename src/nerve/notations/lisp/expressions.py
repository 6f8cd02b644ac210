"""Expressions: forms to text of the expression language, and to values of the spec."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from nerve.notations.lisp.functions import FUNCTIONS
from nerve.notations.lisp.program import Env, Helper, Program
from nerve.notations.lisp.shape import counted, glimpse, name_of, parts
from nerve.notations.lisp.telling import instead, shown
from nerve.notations.lisp.text import Hole, Piece, hole, literal, quoted, template
from nerve.notations.sexpr import (
    Constant,
    Form,
    Keyword,
    ListForm,
    MapForm,
    Number,
    String,
    Symbol,
    VectorForm,
)
from nerve.notations.sexpr.forms import key_text
from nerve.spec.source import Map, Seq

LONGEST: Final = 4_000
"""Characters of one expression; the expression language reads a little more."""
ALTOGETHER: Final = 1 << 20
"""Characters of all expressions of a workflow: helpers are written out wherever they are used."""
SLOT: Final = re.compile("\0([0-9]+)(=?)\0")
"""A parameter of a helper: its number, and whether its value is compared there."""
WORKFLOW_ID: Final = "@workflow-id"
CONSTANTS: Final = {None: "null", True: "true", False: "false"}

Special = Callable[[Program, ListForm, Env], str]
SPECIAL: Final[dict[str, Special]] = {}
"""Forms of an expression that are no functions of values."""


def special(*names: str) -> Callable[[Special], Special]:
    def add(write: Special) -> Special:
        SPECIAL.update(dict.fromkeys(names, write))
        return write

    return add


def expression(program: Program, form: Form, env: Env) -> str:
    """The text of an expression, as long as a workflow may have it."""
    found = text(program, form, env)
    program.written += len(found)
    if program.written > ALTOGETHER:
        program.tell.refuse(form, "the expressions are too long altogether", "Use let instead of helpers.")
    return found


def text(program: Program, form: Form, env: Env) -> str:
    found = unbounded(program, form, env)
    if len(found) > LONGEST:
        fix = "Use let, or a template with ~a."
        program.tell.refuse(form, f"the expression is longer than {LONGEST} characters", fix)
    return found


def unbounded(program: Program, form: Form, env: Env) -> str:
    match form:
        case String(value):
            return quoted(value)
        case Number(value):
            return repr(value) if value >= 0 else f"({value!r})"
        case Constant(value):
            return CONSTANTS[value]
        case Symbol():
            return named(program, form, env)
        case VectorForm(items):
            return f"[{', '.join(text(program, item, env.comparing()) for item in items)}]"
        case MapForm(items):
            inner = env.comparing()
            pairs = (f"{quoted(key_text(key))}: {text(program, item, inner)}" for key, item in items)
            return f"({{{', '.join(pairs)}}})"
        case ListForm():
            return called(program, form, env)
    return program.tell.refuse(form, f"':{form.name}' is not a value", f'Write "{form.name}".')


def named(program: Program, form: Symbol, env: Env) -> str:
    if form.name == WORKFLOW_ID:
        return "run.label"
    if form.name not in env.names:
        fix = f"{instead(form.name, [*env.names, WORKFLOW_ID])} Text belongs in double quotes."
        if form.name in ("input", "iteration"):
            fix = f"Write ({form.name}), and in :args (({form.name}))."
        program.tell.refuse(form, f"unknown name '{shown(form.name)}'", fix)
    found = env.names[form.name]
    return SLOT.sub("\0\\1=\0", found) if env.compared and found.startswith("\0") else found


def called(program: Program, form: ListForm, env: Env) -> str:
    name = form.head
    if name in SPECIAL:
        return SPECIAL[name](program, form, env)
    if name in program.helpers:
        return inlined(program, form, program.helpers[name], env)
    if name not in FUNCTIONS:
        program.tell.unknown(
            form, "function", name or glimpse(form), [*FUNCTIONS, *SPECIAL, *program.helpers]
        )
        return "null"
    function = FUNCTIONS[name]
    counted(program.tell, form, len(form.items) - 1, function.least, function.most)
    given = enumerate(arguments(form))
    return function.write([text(program, item, argument_env(env, name, n)) for n, item in given])


def argument_env(env: Env, function: str, number: int) -> Env:
    """Where an argument stands: a condition in it is tested, or compared by its value."""
    if function in ("and", "or") or (function == "if" and number):
        return env
    return env.comparing(function not in ("not", "if"))


def arguments(form: ListForm) -> list[Form]:
    """What a function is given; `(get x :key)` is `(get x "key")`."""
    given = list(form.items[1:])
    if form.head == "get" and len(given) > 1 and isinstance(given[1], Keyword):
        given[1] = String(given[1].name, given[1].place)
    return given


def inlined(program: Program, form: ListForm, helper: Helper | None, env: Env) -> str:
    if helper is None:
        fix = "A helper calls only those above it, never itself."
        program.tell.refuse(form, f"the helper '{form.head}' is not complete here", fix)
    counted(program.tell, form, len(form.items) - 1, helper.parameters, helper.parameters)
    slots = SLOT.findall(helper.text)
    unused = {(str(n), "") for n in range(helper.parameters) if str(n) not in dict(slots)}
    given = {
        (number, compared): text(program, form.items[int(number) + 1], env.comparing(bool(compared)))
        for number, compared in sorted({*slots, *unused}, key=lambda slot: (int(slot[0]), slot[1]))
    }
    size = len(helper.text) + sum(len(given[slot]) for slot in slots)
    if size > 2 * LONGEST:
        program.tell.refuse(form, f"the expression is longer than {LONGEST} characters", "Use let.")
    return SLOT.sub(lambda found: given[found[1], found[2]], helper.text)


@special("input")
def whole_input(program: Program, form: ListForm, env: Env) -> str:
    parts(program.tell, form, most=0)
    return "input"


@special("iteration")
def iteration(program: Program, form: ListForm, env: Env) -> str:
    parts(program.tell, form, most=0)
    return "iteration"


@special("inputs")
def declared_input(program: Program, form: ListForm, env: Env) -> str:
    [given] = parts(program.tell, form, least=1, most=1).rest
    name = name_of(program.tell, given, "the name of an input")
    if name not in program.inputs:
        program.tell.unknown(given, "input", name, program.inputs, f"Add (inputs ({name})).")
    return f"inputs[{quoted(name)}]"


@special("artifact", "feedback")
def last_answer(program: Program, form: ListForm, env: Env) -> str:
    [given] = parts(program.tell, form, least=1, most=1).rest
    return f"roles[{quoted(role_of(program, given))}]"


def role_of(program: Program, form: Form) -> str:
    name = name_of(program.tell, form, "the name of a role")
    if name not in program.roles:
        program.tell.unknown(form, "role", name, program.roles, f"Add (roles ({name})).")
    return name


def value(program: Program, form: Form, env: Env) -> Any:
    """A value of the spec: plain where it is a literal, with templates where it is computed."""
    match form:
        case String(given):
            return literal(given)
        case Number(given) | Constant(given):
            return given
        case VectorForm(items, place):
            found = Seq((), place)
            for item in items:
                found.push(value(program, item, env), item.place)
            return found
        case MapForm(items, place):
            return values(program, items, env, Map((), place))
    return hole(expression(program, form, env))


def values(program: Program, items: tuple[tuple[Keyword | String, Form], ...], env: Env, found: Map) -> Map:
    for key, item in items:
        found.put(key_text(key), value(program, item, env), item.place)
        found.keys_at[key_text(key)] = key.place
    return found


def piece(program: Program, form: Form, env: Env) -> Piece:
    """A part of a text: plain where it is a literal."""
    if isinstance(form, String):
        return form.value
    if isinstance(form, Number):
        return str(form.value)
    return Hole(expression(program, form, env))


def text_value(program: Program, form: Form, env: Env) -> str:
    """A value of the spec that is always a text."""
    return template([piece(program, form, env)])
