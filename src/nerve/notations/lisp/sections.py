"""The sections of a workflow before its states: metadata, roles, inputs, limits, helpers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Final

from nerve.notations.lisp.bodies import BLOCKS
from nerve.notations.lisp.expressions import SPECIAL, expression
from nerve.notations.lisp.functions import FUNCTIONS
from nerve.notations.lisp.literals import value_of
from nerve.notations.lisp.program import Env, Helper, Program, Role
from nerve.notations.lisp.shape import (
    count_of,
    counted,
    glimpse,
    items_of,
    name_of,
    names_of,
    parts,
    symbol_of,
    text_of,
)
from nerve.notations.lisp.steps import STEPS
from nerve.notations.lisp.telling import Refused
from nerve.notations.sexpr import Form, Keyword, ListForm, MapForm, String, Symbol, VectorForm
from nerve.notations.sexpr.forms import key_text
from nerve.spec.models import Input, LimitsSpec
from nerve.spec.source import Map, Seq

ROLE: Final = ("agent-kind", "handle-ref", "model")
OF_PROMPTS: Final = {"fallback": "fallback", "tools": "tools", "max-turns": "max_turns"}
"""What a role says for every prompt that it answers."""
INPUT: Final = tuple(Input.model_fields)
LIMITS: Final = {name.replace("_", "-"): name for name in LimitsSpec.model_fields}


def entries(program: Program, form: ListForm, shape: str) -> list[ListForm]:
    """The lists in a section."""
    found: list[ListForm] = []
    for item in form.items[1:]:
        if isinstance(item, ListForm) and item.items:
            found.append(item)
        else:
            program.tell.refuse(item, f"expected {shape}, found {glimpse(item)}", "Put it in parentheses.")
    return found


def metadata(program: Program, form: ListForm, data: Map) -> None:
    """The label is the description too, unless there is one."""
    found = Map((), form.place)
    for item in entries(program, form, "(key value)"):
        key = name_of(program.tell, item.items[0], "a key")
        counted(program.tell, item, len(item.items) - 1, 1, 1)
        if key in found:
            program.tell.tell(item, f"'{key}' is there twice", "Remove one.")
        found.put(key, value_of(program.tell, item.items[1]), item.items[1].place)
        found.keys_at[key] = item.items[0].place
        if key in ("label", "description"):
            text_of(program.tell, item.items[1], f"a {key}")
    data.put("metadata", found, form.place)
    about = next((key for key in ("description", "label") if key in found), None)
    if about:
        data.put("description", found[about], found.values_at[about])


def roles(program: Program, form: ListForm, data: Map) -> None:
    for item in entries(program, form, '(name :agent-kind "…")'):
        name = name_of(program.tell, item.items[0], "the name of a role")
        if name in program.roles:
            program.tell.tell(item, f"the role '{name}' is there twice", "Rename one.")
        program.roles[name] = Role(None, name, None)
        options = parts(program.tell, item, (*ROLE, *OF_PROMPTS), most=0).options
        found = {key: name_of(program.tell, options[key], f"the {key}") for key in ROLE if key in options}
        more = of_prompts(program, options)
        program.roles[name] = Role(
            found.get("agent-kind"), found.get("handle-ref", name), found.get("model"), more
        )


def of_prompts(program: Program, options: Mapping[str, Form]) -> Map:
    made = Map()
    for key, form in options.items():
        if key == "fallback":
            made.put(key, name_of(program.tell, form, "a provider"), form.place)
        elif key == "tools":
            tools = Seq((), form.place)
            for name, item in names_of(program.tell, form, "tools"):
                tools.push(name, item.place)
            made.put(key, tools, form.place)
        elif key == "max-turns":
            made.put("max_turns", count_of(program.tell, form), form.place)
    return made


def inputs(program: Program, form: ListForm, data: Map) -> None:
    for item in entries(program, form, "(name :type string)"):
        name = name_of(program.tell, item.items[0], "the name of an input")
        if name in program.inputs:
            program.tell.tell(item, f"the input '{name}' is there twice", "Rename one.")
        declared = Map((), item.place)
        program.inputs.put(name, declared, item.place)
        program.inputs.keys_at[name] = item.items[0].place
        for key, value in parts(program.tell, item, INPUT, most=0).options.items():
            given = (
                value.name if key == "type" and isinstance(value, Symbol) else value_of(program.tell, value)
            )
            declared.put(key, given, value.place)
    data.put("inputs", program.inputs, form.place)


def limits(program: Program, form: ListForm, data: Map) -> None:
    found = Map((), form.place)
    for key, value in parts(program.tell, form, LIMITS, most=0).options.items():
        found.put(LIMITS[key], value_of(program.tell, value), value.place)
    data.put("limits", found, form.place)


def helper(program: Program, form: ListForm) -> None:
    """`(defn name (parameter …) EXPR)`: it is written out wherever it is called."""
    if len(form.items) > 1 and isinstance(form.items[1], ListForm) and form.items[1].head:
        words = [item.name if isinstance(item, Symbol) else "…" for item in form.items[1].items]
        fix = f"Write (defn {words[0]} ({' '.join(words[1:])}) EXPR)."
        program.tell.refuse(form.items[1], "the name of a helper stands before its parameters", fix)
    counted(program.tell, form, len(form.items) - 1, 3, 3)
    name = symbol_of(program.tell, form.items[1], "the name of a helper")
    if name in program.helpers or name in {*FUNCTIONS, *SPECIAL, *STEPS, *BLOCKS}:
        program.tell.refuse(form.items[1], f"'{name}' is there already", "Give the helper another name.")
    program.helpers[name] = None
    given = items_of(program.tell, form.items[2], "the parameters of a helper")
    names = [symbol_of(program.tell, item, "a parameter") for item in given]
    if len(set(names)) < len(names):
        program.tell.refuse(form.items[2], "a parameter is there twice", "Rename one.")
    slots = {name: f"\0{number}\0" for number, name in enumerate(names)}
    try:
        text = expression(program, form.items[3], Env(ChainMap(slots), None))
    except Refused:
        # What calls it is not to be told about it as well.
        text = "null"
    program.helpers[name] = Helper(len(names), text)


def explicit_tags(forms: list[ListForm]) -> set[str]:
    """Every name that stands behind `:tag` in a send-prompt."""
    found: set[str] = set()
    rest: list[Form] = list(forms)
    while rest:
        form = rest.pop()
        if not isinstance(form, ListForm):
            continue
        rest.extend(form.items)
        if form.head == "send-prompt":
            found.update(tags(form))
    return found


def explicit_ids(forms: Sequence[Form]) -> set[str]:
    """Every id that stands in the map of a node."""
    found: set[str] = set()
    rest = list(forms)
    while rest:
        form = rest.pop()
        if isinstance(form, ListForm | VectorForm):
            rest.extend(form.items)
        elif isinstance(form, MapForm):
            rest.extend(value for _, value in form.items)
            found |= {
                value.value
                for key, value in form.items
                if key_text(key) == "id" and isinstance(value, String)
            }
    return found


def tags(form: ListForm) -> list[str]:
    following = zip(form.items, form.items[1:], strict=False)
    named = (value for key, value in following if isinstance(key, Keyword) and key.name == "tag")
    return [
        value.name if isinstance(value, Symbol) else value.value
        for value in named
        if isinstance(value, Symbol | String)
    ]


SECTIONS: Final = {"metadata": metadata, "roles": roles, "inputs": inputs, "limits": limits}
