"""Conditions: signals, answers and facts, waited for or tested; and the records facts are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nerve.notations.lisp.expressions import WORKFLOW_ID, expression, special, text_value, value
from nerve.notations.lisp.program import Env, Program, node
from nerve.notations.lisp.shape import glimpse, name_of, parts
from nerve.notations.lisp.telling import meant
from nerve.notations.lisp.text import hole, literal
from nerve.notations.sexpr import Form, Keyword, ListForm, MapForm, String, Symbol, VectorForm
from nerve.notations.sexpr.forms import key_text
from nerve.spec.source import Map, Seq

ANYTHING: Final = ("_", "...")
KEYS: Final = ("key", "scope")


def condition(program: Program, form: Form, env: Env) -> Map:
    """A condition of the spec."""
    found = conditional(program, form)
    return CONDITIONS[found.head](program, found, env)


def conditional(program: Program, form: Form) -> ListForm:
    if not isinstance(form, ListForm) or form.head not in CONDITIONS:
        known = " or ".join(f"({name} …)" for name in CONDITIONS)
        word = meant(form.head, CONDITIONS) if isinstance(form, ListForm) else None
        fix = f"Did you mean '{word}'?" if word else f"A condition is {known}."
        program.tell.refuse(form, f"expected a condition, found {glimpse(form)}", fix)
    return form


@special("signal", "transcript-response", "fact")
def held(program: Program, form: ListForm, env: Env) -> str:
    """The value a condition comes with, or in a test whether it holds: a step before the one that asks.

    Where it is compared in a test, it is the value that it has now, or nil if it does not hold.
    """
    if env.steps is None:
        program.tell.refuse(form, f"({form.head} …) cannot stand here", "Bind it with let, and use the name.")
    found = condition(program, form, env.comparing())
    step = node("wait", form.place, id=program.new_id(form.head))
    step.put("any", Seq((), form.place).push(found, form.place), form.place)
    if env.test:
        step.put("test", True, form.place)
    env.add(step)
    compared = env.test and env.compared
    return f"(steps.{step['id']}.attributes.value ?? null)" if compared else f"steps.{step['id']}.output"


@special("wait", "await")
def waited(program: Program, form: ListForm, env: Env) -> str:
    """`(await COND)` where a value is wanted is the value of the condition."""
    if env.test:
        program.tell.refuse(form, "a test does not wait", "Write the condition alone.")
    [inner] = parts(program.tell, form, least=1, most=1).rest
    return held(program, conditional(program, inner), env)


def signal(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, KEYS, least=1, most=1)
    label = name_of(program.tell, found.rest[0], "the label of a signal")
    made = Map((), form.place).put("signal", literal(label), found.rest[0].place)
    return keyed(program, made, found.options, env)


def keyed(program: Program, made: Map, options: dict[str, Form], env: Env) -> Map:
    """Put the key of a signal, which may be called its scope."""
    given = [options[name] for name in KEYS if name in options]
    if len(given) > 1:
        program.tell.tell(given[1], ":key and :scope are the same", "Remove one.")
    if given:
        made.put("key", text_value(program, given[0], env), given[0].place)
    return made


def response(program: Program, form: ListForm, env: Env) -> Map:
    given = parts(program.tell, form, ["request-id"], most=0).option("request-id")
    if given is None:
        program.tell.refuse(form, "(transcript-response …) without a :request-id", "Name the prompt's :tag.")
    name = name_of(program.tell, given, "a request id")
    bind(program, name, given)
    return Map((), form.place).put("response", name, given.place)


def bind(program: Program, name: str, form: Form) -> None:
    """Find the prompt that is meant: by its tag, else the nearest above without one (or with this one)."""
    last = program.untagged[-1][0] if program.untagged else -1
    if name in program.tags or program.bound.get(name, -1) > last:
        return
    if not program.untagged:
        fix = f"Add :tag {name} to the send-prompt whose answer it is."
        program.tell.refuse(form, f"no send-prompt above has the request id '{name}'", fix)
    number, prompt = program.untagged.pop()
    prompt.put("tag", name, form.place)
    program.bound[name] = number


def fact(program: Program, form: ListForm, env: Env) -> Map:
    [pattern] = parts(program.tell, form, least=1, most=1).rest
    found = record(program, pattern, env, pattern=True)
    return Map((), form.place).put("fact", found, pattern.place)


CONDITIONS: Final[dict[str, Callable[[Program, ListForm, Env], Map]]] = {
    "signal": signal,
    "transcript-response": response,
    "fact": fact,
}


def record(program: Program, form: Form, env: Env, pattern: bool = False) -> Seq:
    """The JSON form of a record: the label, the fields in order, and an object of those with a name."""
    if not isinstance(form, ListForm) or not form.items:
        fix = "A record is written (label field … :name value …)."
        program.tell.refuse(form, f"expected a record, found {glimpse(form)}", fix)
    label = form.items[0]
    name = name_of(program.tell, label, "the label of a record")
    found = Seq((), form.place).push(
        literal(plain(name, pattern) if isinstance(label, String) else name), label.place
    )
    named = Map((), form.place)
    fields = iter(form.items[1:])
    for item in fields:
        if isinstance(item, Keyword):
            add_named(program, named, item, next(fields, None), env, pattern)
        elif named:
            program.tell.tell(item, "a field without a name stands behind one with a name", "Put it first.")
        else:
            found.push(field(program, item, env, pattern), item.place)
    return closed(found, named)


def closed(found: Seq, named: Map) -> Seq:
    """Named fields come last; an object that is a field itself must not be taken for them."""
    return (
        found.push(named, named.place) if named or (len(found) > 1 and isinstance(found[-1], Map)) else found
    )


def add_named(program: Program, named: Map, key: Keyword, item: Form | None, env: Env, pattern: bool) -> None:
    if item is None or isinstance(item, Keyword):
        program.tell.refuse(key, f":{key.name} has no value", f"Write (… :{key.name} VALUE).")
    if key.name in named:
        program.tell.tell(key, f":{key.name} is there twice", "Remove one.")
    named.put(key.name, field(program, item, env, pattern), item.place)
    named.keys_at[key.name] = key.place


def field(program: Program, form: Form, env: Env, pattern: bool) -> Any:
    """A field of a record. A symbol that is no name in sight stands for itself."""
    match form:
        case Symbol(name) if name in env.names or name == WORKFLOW_ID:
            return hole(expression(program, form, env))
        case Symbol(name):
            return itself(program, form, pattern)
        case String(text):
            return literal(plain(text, pattern))
        case VectorForm(items, place):
            found = Seq((), place)
            for item in items:
                found.push(field(program, item, env, pattern), item.place)
            return found
        case MapForm(items, place):
            inner = Map((), place)
            for key, item in items:
                inner.put(key_text(key), field(program, item, env, pattern), item.place)
            return inner
    return value(program, form, env)


def itself(program: Program, form: Symbol, pattern: bool) -> str:
    name = form.name
    if name in ANYTHING or name.startswith("?"):
        if not pattern:
            program.tell.tell(
                form, f"'{name}' belongs in a pattern", "For the text itself use double quotes."
            )
        return name
    return literal(name)


def plain(text: str, pattern: bool) -> str:
    """A text in a pattern that only it fits."""
    special = text in ANYTHING or text.startswith(("?", "\\"))
    return f"\\{text}" if pattern and special else text
