"""Steps: the forms of a body that become a node each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nerve.notations.lisp.conditions import condition, keyed, record
from nerve.notations.lisp.expressions import expression, piece, role_of, text_value, value, values
from nerve.notations.lisp.literals import map_of
from nerve.notations.lisp.program import Env, Program, node
from nerve.notations.lisp.shape import (
    Parts,
    glimpse,
    items_of,
    name_of,
    names_of,
    parts,
    seconds_of,
    text_of,
)
from nerve.notations.lisp.text import Hole, Mismatch, Piece, filled, hole, literal, without_variables
from nerve.notations.sexpr import Form, ListForm, MapForm, String, Symbol
from nerve.spec.source import Map, Seq

Step = Callable[[Program, ListForm, Env], Map]


def message(program: Program, form: Form, arguments: Sequence[Piece]) -> str:
    """A `~a` template filled with the texts of its arguments."""
    given = text_of(program.tell, form, "a template")
    try:
        return filled(given, arguments)
    except Mismatch as mismatch:
        program.tell.refuse(form, mismatch.message, mismatch.fix)


def inline(program: Program, found: Parts, env: Env) -> str:
    """The template and the arguments that follow it, as one text."""
    arguments = [piece(program, item, env) for item in found.rest[1:]]
    return message(program, found.rest[0], arguments)


def send_prompt(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, ["agent", "template", "args", "tag", "limits"], most=0)
    agent, text = found.option("agent"), found.option("template")
    if agent is None or text is None:
        missing = ":agent" if agent is None else ":template"
        program.tell.refuse(form, f"(send-prompt …) without {missing}", 'Write :agent ROLE :template "…".')
    name = role_of(program, agent)
    given = found.option("args")
    args = prompt_args(program, given, env) if given is not None else Map((), form.place)
    made = node("prompt", form.place, role=name)
    written = message(program, text, [Hole(f"args.{key}") for key in args])
    made.put("text", without_variables(written), text.place)
    if args:
        made.put("args", args, args.place)
    addressed(program, made, name, agent)
    limited(program, made, found)
    tagged(program, made, found.option("tag"))
    return made.put("detach", True, form.place)


def prompt_args(program: Program, form: Form, env: Env) -> Map:
    args = Map((), form.place)
    for number, item in enumerate(items_of(program.tell, form, "a list of arguments"), 1):
        args.put(f"a{number}", value(program, item, env), item.place)
    return args


def addressed(program: Program, made: Map, name: str, form: Form) -> None:
    """Put whom the prompt is for."""
    role = program.roles.get(name)
    if role is None:
        return
    made.put("thread", role.thread, form.place)
    if role.agent is not None:
        made.put("agent", role.agent, form.place)
    if role.model is not None:
        made.put("model", role.model, form.place)
    for key, said in role.more.items():
        made.put(key, said, role.more.values_at[key])


def limited(program: Program, made: Map, found: Parts) -> Map:
    """Put what the step may spend."""
    if (given := found.option("limits")) is not None:
        made.put("limits", map_of(program.tell, mapped(program, given)), given.place)
    return made


def tagged(program: Program, made: Map, tag: Form | None) -> None:
    program.prompts += 1
    if tag is None:
        program.untagged.append((program.prompts, made))
    else:
        made.put("tag", name_of(program.tell, tag, "a tag"), tag.place)


def wait(program: Program, form: ListForm, env: Env) -> Map:
    [given] = parts(program.tell, form, least=1, most=1).rest
    found = condition(program, given, env)
    return node("wait", form.place, any=Seq((), form.place).push(found, given.place))


def assertion(program: Program, form: ListForm, env: Env) -> Map:
    [given] = parts(program.tell, form, least=1, most=1).rest
    return stated(program, form, given, env, ["key", "scope", "value"])


def retraction(program: Program, form: ListForm, env: Env) -> Map:
    [given] = parts(program.tell, form, least=1, most=1).rest
    return stated(program, form, given, env, ["key", "scope"])


def stated(program: Program, form: ListForm, given: Form, env: Env, options: list[str]) -> Map:
    """A node about a fact or a signal."""
    made = node(form.head, form.place)
    if not isinstance(given, ListForm) or given.head != "signal":
        return made.put("fact", record(program, given, env, form.head == "retract"), given.place)
    found = parts(program.tell, given, options, least=1, most=1)
    label = name_of(program.tell, found.rest[0], "the label of a signal")
    made.put("signal", literal(label), found.rest[0].place)
    keyed(program, made, found.options, env)
    if (said := found.option("value")) is not None:
        made.put("value", value(program, said, env), said.place)
    return made


def log(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, least=1)
    data = Map((), form.place).put("message", inline(program, found, env), found.rest[0].place)
    return node("emit", form.place, event="log", data=data)


def result(program: Program, form: ListForm, env: Env) -> Map:
    """The output of a body that ends here."""
    [given] = parts(program.tell, form, least=1, most=1).rest
    return transform(program, given, env)


def goto(program: Program, form: ListForm, env: Env) -> Map:
    [given] = parts(program.tell, form, least=1, most=1).rest
    state = name_of(program.tell, given, "the name of a state")
    if state not in program.states:
        program.tell.unknown(given, "state", state, sorted(program.states))
    return node("goto", form.place).put("state", state, given.place)


def end(program: Program, form: ListForm, env: Env) -> Map:
    """`(terminal)` inside something else: the machine ends there."""
    parts(program.tell, form, most=0)
    return node("goto", form.place)


def gate(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, ["choices", "reject", "default", "timeout"], least=1)
    made = node("gate", form.place).put("prompt", inline(program, found, env), found.rest[0].place)
    for key in ("choices", "reject"):
        if (given := found.option(key)) is not None:
            made.put(key, strings(program, given), given.place)
    if (given := found.option("default")) is not None:
        made.put("default", name_of(program.tell, given, "an answer"), given.place)
    if (given := found.option("timeout")) is not None:
        made.put("timeout", seconds_of(program.tell, given), given.place)
    return made


def strings(program: Program, form: Form) -> Seq:
    found = Seq((), form.place)
    for name, item in names_of(program.tell, form, "answers"):
        found.push(name, item.place)
    return found


def bash(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, ["env", "input"], least=1, most=1)
    [command] = found.rest
    text = text_of(program.tell, command, "a command")
    made = node("bash", form.place).put("command", literal(text), command.place)
    if (given := found.option("env")) is not None:
        made.put("env", environment(program, given, env), given.place)
    return with_input(program, made, found, env)


def environment(program: Program, form: Form, env: Env) -> Map:
    made = Map((), form.place)
    for key, item in mapped(program, form).items:
        name = key.value if isinstance(key, String) else key.name
        made.put(name, text_value(program, item, env), item.place)
    return made


def mapped(program: Program, form: Form) -> MapForm:
    if not isinstance(form, MapForm):
        program.tell.refuse(form, f"expected a map, found {glimpse(form)}", "Write {:name value …}.")
    return form


def with_input(program: Program, made: Map, found: Parts, env: Env) -> Map:
    given = found.option("input")
    return made if given is None else made.put("input", value(program, given, env), given.place)


def call(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, ["input", "limits"], least=1, most=1)
    target = name_of(program.tell, found.rest[0], "the name of a node")
    made = node("call", form.place).put("target", target, found.rest[0].place)
    return with_input(program, limited(program, made, found), found, env)


def run_workflow(program: Program, form: ListForm, env: Env) -> Map:
    found = parts(program.tell, form, ["input", "params", "limits"], least=1, most=1)
    target = name_of(program.tell, found.rest[0], "the name of a workflow")
    made = node("workflow", form.place).put("workflow", target, found.rest[0].place)
    if (given := found.option("params")) is not None:
        params = values(program, mapped(program, given).items, env, Map((), given.place))
        made.put("params", params, given.place)
    return with_input(program, limited(program, made, found), found, env)


def spec_node(program: Program, form: ListForm, env: Env) -> Map:
    """`(node {:kind …})`: a node of the spec as it is; names in sight and what is computed are filled in."""
    [given] = parts(program.tell, form, least=1, most=1).rest

    def named(form: Form) -> str | None:
        seen = isinstance(form, ListForm) or (isinstance(form, Symbol) and form.name in env.names)
        return hole(expression(program, form, env)) if seen else None

    return map_of(program.tell, mapped(program, given), named)


def transform(program: Program, form: Form, env: Env, **values: Any) -> Map:
    return node("transform", form.place, expression=expression(program, form, env), **values)


VALUED: Final[dict[str, Step]] = {
    "gate": gate,
    "bash": bash,
    "call": call,
    "run-workflow": run_workflow,
    "node": spec_node,
}
"""Steps whose output `let` can bind."""

STEPS: Final[dict[str, Step]] = {
    "send-prompt": send_prompt,
    "wait": wait,
    "await": wait,
    "assert": assertion,
    "retract": retraction,
    "log": log,
    "result": result,
    "goto": goto,
    "terminal": end,
    **VALUED,
}
