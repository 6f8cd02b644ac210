"""Compile conditions (signals, responses, facts), and the records of facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nerve.notations.lisp.compile_context import Env, LispProgram, make_node
from nerve.notations.lisp.diagnostics import closest_form_name
from nerve.notations.lisp.expressions import (
    WORKFLOW_ID_SYMBOL,
    compile_expression,
    compile_text_value,
    compile_value,
    register_special_form,
)
from nerve.notations.lisp.form_parsing import preview_form, require_form_name, split_form
from nerve.notations.lisp.templates import escape_template, render_hole
from nerve.text.sexpr import Form, Keyword, ListForm, MapForm, String, Symbol, VectorForm
from nerve.text.sexpr.forms import map_key_text
from nerve.text.source import LocatedList, LocatedMap

WILDCARDS: Final = ("_", "...")
SIGNAL_KEYS: Final = ("key", "scope")


def compile_condition(program: LispProgram, form: Form, env: Env) -> LocatedMap:
    """Return the condition of the spec."""
    condition_form = require_condition_form(program, form)
    return CONDITION_FORMS[condition_form.head](program, condition_form, env)


def require_condition_form(program: LispProgram, form: Form) -> ListForm:
    if not isinstance(form, ListForm) or form.head not in CONDITION_FORMS:
        known = " or ".join(f"({name} …)" for name in CONDITION_FORMS)
        word = closest_form_name(form.head, CONDITION_FORMS) if isinstance(form, ListForm) else None
        fix = f"Did you mean '{word}'?" if word else f"Write {known}."
        program.diagnostics.fail(form, f"Expected a condition, found {preview_form(form)}", fix)
    return form


@register_special_form("signal", "transcript-response", "fact")
def compile_condition_value(program: LispProgram, form: ListForm, env: Env) -> str:
    """Add a step that waits for a condition, and return the expression of its value.

    In a test, the step does not wait and the value says whether the condition holds. If that value is
    compared, it is the current value of the condition, or nil if the condition does not hold.
    """
    if env.steps is None:
        program.diagnostics.fail(
            form, f"({form.head} …) is not allowed here", "Bind it with let, and use the name."
        )
    condition_map = compile_condition(program, form, env.for_comparison())
    step = make_node("wait", form.position, id=program.new_id(form.head))
    step.set_at("any", LocatedList((), form.position).append_at(condition_map, form.position), form.position)
    if env.test:
        step.set_at("test", True, form.position)
    env.add_step(step)
    compared = env.test and env.compared
    return f"(steps.{step['id']}.attributes.value ?? null)" if compared else f"steps.{step['id']}.output"


@register_special_form("wait", "await")
def compile_await_value(program: LispProgram, form: ListForm, env: Env) -> str:
    """Compile `(await COND)` in an expression to the value of the condition."""
    if env.test:
        program.diagnostics.fail(form, "A test cannot wait", "Write only the condition.")
    [inner] = split_form(program.diagnostics, form, least=1, most=1).rest
    return compile_condition_value(program, require_condition_form(program, inner), env)


def compile_signal(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    form_parts = split_form(program.diagnostics, form, SIGNAL_KEYS, least=1, most=1)
    label = require_form_name(program.diagnostics, form_parts.rest[0], "the label of a signal")
    condition_map = LocatedMap((), form.position).set_at(
        "signal", escape_template(label), form_parts.rest[0].position
    )
    return put_signal_key(program, condition_map, form_parts.options, env)


def put_signal_key(
    program: LispProgram, target: LocatedMap, options: dict[str, Form], env: Env
) -> LocatedMap:
    """Set the key of a signal, from :key or its synonym :scope."""
    key_forms = [options[name] for name in SIGNAL_KEYS if name in options]
    if len(key_forms) > 1:
        program.diagnostics.add(key_forms[1], ":key and :scope are synonyms", "Remove one.")
    if key_forms:
        target.set_at("key", compile_text_value(program, key_forms[0], env), key_forms[0].position)
    return target


def compile_response(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    request_id = split_form(program.diagnostics, form, ["request-id"], most=0).option("request-id")
    if request_id is None:
        program.diagnostics.fail(
            form, ":request-id of (transcript-response …) is missing", "Name the prompt's :tag."
        )
    name = require_form_name(program.diagnostics, request_id, "a request id")
    bind_response_prompt(program, name, request_id)
    return LocatedMap((), form.position).set_at("response", name, request_id.position)


def bind_response_prompt(program: LispProgram, name: str, form: Form) -> None:
    """Find the prompt of a response: by tag, else the nearest untagged prompt above (or with this tag)."""
    last = program.untagged_prompts[-1][0] if program.untagged_prompts else -1
    if name in program.tags or program.prompt_number_by_tag.get(name, -1) > last:
        return
    if not program.untagged_prompts:
        fix = f"Add :tag {name} to its send-prompt."
        program.diagnostics.fail(form, f"No send-prompt above has the request id '{name}'", fix)
    number, prompt = program.untagged_prompts.pop()
    prompt.set_at("tag", name, form.position)
    program.prompt_number_by_tag[name] = number


def compile_fact(program: LispProgram, form: ListForm, env: Env) -> LocatedMap:
    [pattern] = split_form(program.diagnostics, form, least=1, most=1).rest
    fact_record = compile_record(program, pattern, env, pattern=True)
    return LocatedMap((), form.position).set_at("fact", fact_record, pattern.position)


CONDITION_FORMS: Final[dict[str, Callable[[LispProgram, ListForm, Env], LocatedMap]]] = {
    "signal": compile_signal,
    "transcript-response": compile_response,
    "fact": compile_fact,
}


def compile_record(program: LispProgram, form: Form, env: Env, pattern: bool = False) -> LocatedList:
    """Return a record as JSON: the label, the positional fields, and an object of the named fields."""
    if not isinstance(form, ListForm) or not form.items:
        fix = "Write a record as (label field … :name value …)."
        program.diagnostics.fail(form, f"Expected a record, found {preview_form(form)}", fix)
    label = form.items[0]
    name = require_form_name(program.diagnostics, label, "the label of a record")
    values = LocatedList((), form.position).append_at(
        escape_template(escape_fact_pattern(name, pattern) if isinstance(label, String) else name),
        label.position,
    )
    named_fields = LocatedMap((), form.position)
    fields = iter(form.items[1:])
    for item in fields:
        if isinstance(item, Keyword):
            add_named_field(program, named_fields, item, next(fields, None), env, pattern)
        elif named_fields:
            program.diagnostics.add(
                item, "A positional field follows a named field", "Put it before the named fields."
            )
        else:
            values.append_at(compile_field(program, item, env, pattern), item.position)
    return append_named_fields(values, named_fields)


def append_named_fields(values: LocatedList, named_fields: LocatedMap) -> LocatedList:
    """Append the named fields; an empty object keeps a last field that is an object apart from them."""
    return (
        values.append_at(named_fields, named_fields.position)
        if named_fields or (len(values) > 1 and isinstance(values[-1], LocatedMap))
        else values
    )


def add_named_field(
    program: LispProgram, named_fields: LocatedMap, key: Keyword, item: Form | None, env: Env, pattern: bool
) -> None:
    if item is None or isinstance(item, Keyword):
        program.diagnostics.fail(key, f":{key.name} has no value", f"Write (… :{key.name} VALUE).")
    if key.name in named_fields:
        program.diagnostics.add(key, f":{key.name} is duplicated", "Remove one.")
    named_fields.set_at(key.name, compile_field(program, item, env, pattern), item.position)
    named_fields.key_positions[key.name] = key.position


def compile_field(program: LispProgram, form: Form, env: Env, pattern: bool) -> Any:
    """Compile a field of a record. A symbol that is not a visible name is a string."""
    match form:
        case Symbol(name) if name in env.names or name == WORKFLOW_ID_SYMBOL:
            return render_hole(compile_expression(program, form, env))
        case Symbol(name):
            return compile_bare_symbol(program, form, pattern)
        case String(text):
            return escape_template(escape_fact_pattern(text, pattern))
        case VectorForm(items, position):
            values = LocatedList((), position)
            for item in items:
                values.append_at(compile_field(program, item, env, pattern), item.position)
            return values
        case MapForm(items, position):
            inner = LocatedMap((), position)
            for key, item in items:
                inner.set_at(map_key_text(key), compile_field(program, item, env, pattern), item.position)
            return inner
    return compile_value(program, form, env)


def compile_bare_symbol(program: LispProgram, form: Symbol, pattern: bool) -> str:
    name = form.name
    if name in WILDCARDS or name.startswith("?"):
        if not pattern:
            program.diagnostics.add(
                form,
                f"'{name}' is only allowed in a pattern",
                "Put it in double quotes for the literal text.",
            )
        return name
    return escape_template(name)


def escape_fact_pattern(text: str, pattern: bool) -> str:
    """Escape a string in a pattern so that it only matches itself."""
    special = text in WILDCARDS or text.startswith(("?", "\\"))
    return f"\\{text}" if pattern and special else text
