"""The sections of a workflow before its states: metadata, roles, inputs, limits, helpers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Final

from nerve.notations.lisp.bodies import BLOCK_FORMS
from nerve.notations.lisp.compile_context import Env, Helper, LispProgram, Role
from nerve.notations.lisp.diagnostics import FormRejected
from nerve.notations.lisp.expressions import SPECIAL_FORMS, compile_expression
from nerve.notations.lisp.form_parsing import (
    check_argument_count,
    preview_form,
    require_count,
    require_form_name,
    require_items,
    require_names,
    require_string,
    require_symbol,
    split_form,
)
from nerve.notations.lisp.full_form import literal_value
from nerve.notations.lisp.functions import FUNCTIONS
from nerve.notations.lisp.steps import STEPS
from nerve.spec.models import InputSpec, LimitsSpec
from nerve.text.sexpr import Form, Keyword, ListForm, MapForm, String, Symbol, VectorForm
from nerve.text.sexpr.forms import map_key_text
from nerve.text.source import LocatedList, LocatedMap

ROLE_OPTIONS: Final = ("agent-kind", "handle-ref", "model")
PROMPT_OPTIONS: Final = {"fallback": "fallback", "tools": "tools", "max-turns": "max_turns"}
"""Role options that apply to every prompt of the role."""
INPUT_OPTIONS: Final = tuple(InputSpec.model_fields)
LIMIT_OPTIONS: Final = {name.replace("_", "-"): name for name in LimitsSpec.model_fields}


def section_entries(program: LispProgram, form: ListForm, shape: str) -> list[ListForm]:
    """Return the lists of a section; reject other forms."""
    lists: list[ListForm] = []
    for item in form.items[1:]:
        if isinstance(item, ListForm) and item.items:
            lists.append(item)
        else:
            program.diagnostics.fail(
                item, f"Expected {shape}, found {preview_form(item)}", "Put it in parentheses."
            )
    return lists


def compile_metadata(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    """Compile the metadata; the label is the default of the description."""
    fields = LocatedMap((), form.position)
    for item in section_entries(program, form, "(key value)"):
        key = require_form_name(program.diagnostics, item.items[0], "a key")
        check_argument_count(program.diagnostics, item, len(item.items) - 1, 1, 1)
        if key in fields:
            program.diagnostics.add(item, f"'{key}' is duplicated", "Remove one.")
        fields.set_at(key, literal_value(program.diagnostics, item.items[1]), item.items[1].position)
        fields.key_positions[key] = item.items[0].position
        if key in ("label", "description"):
            require_string(program.diagnostics, item.items[1], f"a {key}")
    data.set_at("metadata", fields, form.position)
    about = next((key for key in ("description", "label") if key in fields), None)
    if about:
        data.set_at("description", fields[about], fields.value_positions[about])


def compile_roles(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    for item in section_entries(program, form, '(name :agent-kind "…")'):
        name = require_form_name(program.diagnostics, item.items[0], "the name of a role")
        if name in program.roles:
            program.diagnostics.add(item, f"The role '{name}' is duplicated", "Rename one.")
        program.roles[name] = Role(None, name, None)
        options = split_form(program.diagnostics, item, (*ROLE_OPTIONS, *PROMPT_OPTIONS), most=0).options
        role_options = {
            key: require_form_name(program.diagnostics, options[key], f"the {key}")
            for key in ROLE_OPTIONS
            if key in options
        }
        more = compile_prompt_options(program, options)
        program.roles[name] = Role(
            role_options.get("agent-kind"),
            role_options.get("handle-ref", name),
            role_options.get("model"),
            more,
        )


def compile_prompt_options(program: LispProgram, options: Mapping[str, Form]) -> LocatedMap:
    prompt_options = LocatedMap()
    for key, form in options.items():
        if key == "fallback":
            prompt_options.set_at(
                key, require_form_name(program.diagnostics, form, "a provider"), form.position
            )
        elif key == "tools":
            tools = LocatedList((), form.position)
            for name, item in require_names(program.diagnostics, form, "tools"):
                tools.append_at(name, item.position)
            prompt_options.set_at(key, tools, form.position)
        elif key == "max-turns":
            prompt_options.set_at("max_turns", require_count(program.diagnostics, form), form.position)
    return prompt_options


def compile_inputs(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    for item in section_entries(program, form, "(name :type string)"):
        name = require_form_name(program.diagnostics, item.items[0], "the name of an input")
        if name in program.inputs:
            program.diagnostics.add(item, f"The input '{name}' is duplicated", "Rename one.")
        declared = LocatedMap((), item.position)
        program.inputs.set_at(name, declared, item.position)
        program.inputs.key_positions[name] = item.items[0].position
        for key, value in split_form(program.diagnostics, item, INPUT_OPTIONS, most=0).options.items():
            option_value = (
                value.name
                if key == "type" and isinstance(value, Symbol)
                else literal_value(program.diagnostics, value)
            )
            declared.set_at(key, option_value, value.position)
    data.set_at("inputs", program.inputs, form.position)


def compile_limits(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    limit_map = LocatedMap((), form.position)
    for key, value in split_form(program.diagnostics, form, LIMIT_OPTIONS, most=0).options.items():
        limit_map.set_at(LIMIT_OPTIONS[key], literal_value(program.diagnostics, value), value.position)
    data.set_at("limits", limit_map, form.position)


def compile_helper(program: LispProgram, form: ListForm) -> None:
    """Compile `(defn name (parameter …) EXPR)`, which is inlined where it is called."""
    if len(form.items) > 1 and isinstance(form.items[1], ListForm) and form.items[1].head:
        words = [item.name if isinstance(item, Symbol) else "…" for item in form.items[1].items]
        fix = f"Write (defn {words[0]} ({' '.join(words[1:])}) EXPR)."
        program.diagnostics.fail(form.items[1], "The name of a helper must precede its parameters", fix)
    check_argument_count(program.diagnostics, form, len(form.items) - 1, 3, 3)
    name = require_symbol(program.diagnostics, form.items[1], "the name of a helper")
    if name in program.helpers or name in {*FUNCTIONS, *SPECIAL_FORMS, *STEPS, *BLOCK_FORMS}:
        program.diagnostics.fail(
            form.items[1], f"'{name}' is already defined", "Give the helper another name."
        )
    program.helpers[name] = None
    parameter_forms = require_items(program.diagnostics, form.items[2], "the parameters of a helper")
    names = [require_symbol(program.diagnostics, item, "a parameter") for item in parameter_forms]
    if len(set(names)) < len(names):
        program.diagnostics.fail(form.items[2], "Duplicate parameter", "Rename one.")
    slots = {name: f"\0{number}\0" for number, name in enumerate(names)}
    try:
        text = compile_expression(program, form.items[3], Env(ChainMap(slots), None))
    except FormRejected:
        # Defined all the same, so that its callers do not report it again.
        text = "null"
    program.helpers[name] = Helper(len(names), text)


def explicit_tags(forms: list[ListForm]) -> set[str]:
    """Return every tag that a send-prompt sets with `:tag`."""
    tag_names: set[str] = set()
    rest: list[Form] = list(forms)
    while rest:
        form = rest.pop()
        if not isinstance(form, ListForm):
            continue
        rest.extend(form.items)
        if form.head == "send-prompt":
            tag_names.update(prompt_tags(form))
    return tag_names


def explicit_ids(forms: Sequence[Form]) -> set[str]:
    """Return every id in the map of a node."""
    ids: set[str] = set()
    rest = list(forms)
    while rest:
        form = rest.pop()
        if isinstance(form, ListForm | VectorForm):
            rest.extend(form.items)
        elif isinstance(form, MapForm):
            rest.extend(value for _, value in form.items)
            ids |= {
                value.value
                for key, value in form.items
                if map_key_text(key) == "id" and isinstance(value, String)
            }
    return ids


def prompt_tags(form: ListForm) -> list[str]:
    following = zip(form.items, form.items[1:], strict=False)
    tag_forms = (value for key, value in following if isinstance(key, Keyword) and key.name == "tag")
    return [
        value.name if isinstance(value, Symbol) else value.value
        for value in tag_forms
        if isinstance(value, Symbol | String)
    ]


SECTIONS: Final = {
    "metadata": compile_metadata,
    "roles": compile_roles,
    "inputs": compile_inputs,
    "limits": compile_limits,
}
