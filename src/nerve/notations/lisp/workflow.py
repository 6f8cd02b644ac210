"""Read a Lisp document: one `(workflow …)` with helpers before it, or one `(spec {…})`."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, TypeGuard

from nerve.core.json_codec import is_too_deep
from nerve.notations.lisp.bodies import BLOCK_FORMS, compile_body_node
from nerve.notations.lisp.duet_forms import rewrite_duet_forms
from nerve.notations.lisp.expressions import (
    FUNCTIONS,
    SPECIAL_FORMS,
    compile_expression,
    literal_value,
)
from nerve.notations.lisp.program import (
    Env,
    FormRejected,
    Helper,
    LispProgram,
    Role,
    closest_form_name,
    make_node,
    preview_form,
)
from nerve.notations.lisp.steps import (
    STEPS,
    ValueReader,
    name_reader,
    names_reader,
    put_options,
    read_workspace,
)
from nerve.project.agent_settings import STEP_SETTING_KEYS
from nerve.spec.models import InputSpec, LimitsSpec
from nerve.text.sexpr import Form, Keyword, ListForm, MapForm, String, Symbol, VectorForm, read_forms
from nerve.text.sexpr.forms import MAX_SEXPR_DEPTH, map_key_text
from nerve.text.source import Document, LocatedList, LocatedMap

# -- sections before the states ------------------------------------------------------------------


ROLE_OPTIONS: Final = ("agent-kind", "handle-ref", "model")
PROMPT_OPTIONS: Final[dict[str, ValueReader]] = {
    "fallback": name_reader("a provider"),
    "tools": names_reader("tools"),
    "max-turns": lambda program, form, env: program.require_count(form),
    **dict.fromkeys(STEP_SETTING_KEYS, lambda program, form, env: literal_value(program, form)),
}
"""Role options that apply to every prompt of the role, and their readers."""
INPUT_OPTIONS: Final = tuple(InputSpec.model_fields)
LIMIT_OPTIONS: Final = {name.replace("_", "-"): name for name in LimitsSpec.model_fields}


def section_entries(program: LispProgram, form: ListForm, shape: str) -> list[ListForm]:
    """Return the lists of a section; reject other forms."""
    lists: list[ListForm] = []
    for item in form.items[1:]:
        if isinstance(item, ListForm) and item.items:
            lists.append(item)
        else:
            program.fail_expected(item, shape, "Put it in parentheses.")
    return lists


def compile_metadata(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    """Compile the metadata; the label is the default of the description."""
    fields = LocatedMap((), form.position)
    for item in section_entries(program, form, "(key value)"):
        key = program.require_name(item.items[0], "a key")
        program.check_argument_count(item, len(item.items) - 1, 1, 1)
        if key in fields:
            program.add(item, f"'{key}' is duplicated", "Remove one.")
        fields.set_at(key, literal_value(program, item.items[1]), item.items[1].position)
        fields.key_positions[key] = item.items[0].position
        if key in ("label", "description"):
            program.require_string(item.items[1], f"a {key}")
    data.set_at("metadata", fields, form.position)
    about = next((key for key in ("description", "label") if key in fields), None)
    if about:
        data.set_at("description", fields[about], fields.value_positions[about])


def compile_roles(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    for item in section_entries(program, form, '(name :agent-kind "…")'):
        name = program.require_name(item.items[0], "the name of a role")
        if name in program.roles:
            program.add(item, f"The role '{name}' is duplicated", "Rename one.")
        program.roles[name] = Role(None, name, None)
        _, options = program.split_form(item, (*ROLE_OPTIONS, *PROMPT_OPTIONS), most=0)
        role_options = {
            key: program.require_name(options[key], f"the {key}") for key in ROLE_OPTIONS if key in options
        }
        more = LocatedMap()
        put_options(program, more, options, PROMPT_OPTIONS, Env(ChainMap(), None))
        program.roles[name] = Role(
            role_options.get("agent-kind"),
            role_options.get("handle-ref", name),
            role_options.get("model"),
            more,
        )


def compile_inputs(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    for item in section_entries(program, form, "(name :type string)"):
        name = program.require_name(item.items[0], "the name of an input")
        if name in program.inputs:
            program.add(item, f"The input '{name}' is duplicated", "Rename one.")
        declared = LocatedMap((), item.position)
        program.inputs.set_at(name, declared, item.position)
        program.inputs.key_positions[name] = item.items[0].position
        for key, value in program.split_form(item, INPUT_OPTIONS, most=0)[1].items():
            option_value = (
                value.name if key == "type" and isinstance(value, Symbol) else literal_value(program, value)
            )
            declared.set_at(key, option_value, value.position)
    data.set_at("inputs", program.inputs, form.position)


def compile_limits(program: LispProgram, form: ListForm, data: LocatedMap) -> None:
    limit_map = LocatedMap((), form.position)
    for key, value in program.split_form(form, LIMIT_OPTIONS, most=0)[1].items():
        limit_map.set_at(LIMIT_OPTIONS[key], literal_value(program, value), value.position)
    data.set_at("limits", limit_map, form.position)


def compile_helper(program: LispProgram, form: ListForm) -> None:
    """Compile `(defn name (parameter …) EXPR)`, which is inlined where it is called."""
    if len(form.items) > 1 and isinstance(form.items[1], ListForm) and form.items[1].head:
        words = [item.name if isinstance(item, Symbol) else "…" for item in form.items[1].items]
        fix = f"Write (defn {words[0]} ({' '.join(words[1:])}) EXPR)."
        program.fail(form.items[1], "The name of a helper must precede its parameters", fix)
    program.check_argument_count(form, len(form.items) - 1, 3, 3)
    name = program.require_symbol(form.items[1], "the name of a helper")
    if name in program.helpers or name in {*FUNCTIONS, *SPECIAL_FORMS, *STEPS, *BLOCK_FORMS}:
        program.fail(form.items[1], f"'{name}' is already defined", "Give the helper another name.")
    program.helpers[name] = None
    parameter_forms = program.require_items(form.items[2], "the parameters of a helper")
    names = [program.require_symbol(item, "a parameter") for item in parameter_forms]
    if len(set(names)) < len(names):
        program.fail(form.items[2], "Duplicate parameter", "Rename one.")
    slots = {name: f"\0{number}\0" for number, name in enumerate(names)}
    try:
        text = compile_expression(program, form.items[3], Env(ChainMap(slots), None))
    except FormRejected:
        # Defined all the same, so that its callers do not report it again.
        text = "null"
    program.helpers[name] = Helper(len(names), text)


def collect_explicit_names(program: LispProgram, forms: Sequence[Form]) -> None:
    """Record every tag that a send-prompt sets with `:tag`, and every id in the map of a node."""
    rest = list(forms)
    while rest:
        form = rest.pop()
        if isinstance(form, ListForm | VectorForm):
            rest.extend(form.items)
            if isinstance(form, ListForm) and form.head == "send-prompt":
                for key, value in pairwise(form.items):
                    if isinstance(key, Keyword) and key.name == "tag" and isinstance(value, Symbol | String):
                        program.tags.add(value.name if isinstance(value, Symbol) else value.value)
        elif isinstance(form, MapForm):
            for key, value in form.items:
                rest.append(value)
                if map_key_text(key) == "id" and isinstance(value, String):
                    program.used_ids.add(value.value)


SECTIONS: Final = {
    "metadata": compile_metadata,
    "roles": compile_roles,
    "inputs": compile_inputs,
    "limits": compile_limits,
}


# -- states --------------------------------------------------------------------------------------


WORKFLOW_FORMS: Final = (*SECTIONS, "workspace", "defn", "state")


def compile_workflow(program: LispProgram, form: ListForm, helpers: Sequence[ListForm]) -> LocatedMap:
    """Return the spec of a workflow, without the parts that have problems."""
    data = LocatedMap((), form.position)
    if len(form.items) < 2:
        program.fail(form, "The name of (workflow …) is missing", "Write (workflow NAME (state …) …).")
    data.set_at(
        "name",
        program.require_name(form.items[1], "the name of a workflow"),
        form.items[1].position,
    )
    forms = group_sections(program, form)
    for section, compile_section in SECTIONS.items():
        for item in forms[section][1:]:
            program.add(item, f"({item.head} …) is duplicated", "Merge them into one.")
        for item in forms[section][:1]:
            with suppress(FormRejected):
                compile_section(program, item, data)
    for item in [*helpers, *forms["defn"]]:
        with suppress(FormRejected):
            compile_helper(program, item)
    machine = compile_machine(program, form, forms["state"])
    for item in forms["workspace"][1:]:
        program.add(item, "(workspace …) is duplicated", "Merge them into one.")
    for item in forms["workspace"][:1]:
        with suppress(FormRejected):
            [value], _ = program.split_form(item, least=1, most=1)
            machine.set_at("workspace", read_workspace(program, value), value.position)
    data.set_at("body", machine, form.position)
    if is_too_deep(data, MAX_SEXPR_DEPTH):  # for the full form
        message = f"The workflow is nested deeper than {MAX_SEXPR_DEPTH} levels"
        program.fail(form, message, "Use states instead.")
    return data


def group_sections(program: LispProgram, form: ListForm) -> dict[str, list[ListForm]]:
    """Return the forms of a workflow by head."""
    forms_by_head: dict[str, list[ListForm]] = {name: [] for name in WORKFLOW_FORMS}
    for item in form.items[2:]:
        if isinstance(item, ListForm) and item.head in forms_by_head:
            forms_by_head[item.head].append(item)
        elif isinstance(item, ListForm) and item.head in ("define", "defun"):
            fix = "Write (defn f (x) EXPR)."
            program.add(item, f"A helper must be defined with (defn …), got ({item.head} …)", fix)
        elif isinstance(item, ListForm) and item.head:
            program.add_unknown_name(item, "form in a workflow", item.head, WORKFLOW_FORMS)
        else:
            fix = f"Available: {', '.join(f'({name} …)' for name in WORKFLOW_FORMS)}."
            program.add(item, f"Expected a form of a workflow, found {preview_form(item)}", fix)
    return forms_by_head


def compile_machine(program: LispProgram, form: ListForm, forms: Sequence[ListForm]) -> LocatedMap:
    """Compile the machine; a state is followed by the next in the text, unless a goto leaves it."""
    if not forms and not program.problems:
        program.add(form, "A workflow must have at least one state", "Add (state NAME BODY …).")
    state_forms: list[tuple[str, ListForm]] = []
    for item in forms:
        with suppress(FormRejected):
            if len(item.items) < 2:
                program.fail(item, "The name of (state …) is missing", "Write (state NAME BODY …).")
            name = program.require_name(item.items[1], "the name of a state")
            if name in program.states:
                program.add(item.items[1], f"The state '{name}' is duplicated", "Rename one.")
            program.states.add(name)
            state_forms.append((name, item))
    collect_explicit_names(program, [item for _, item in state_forms])
    states = LocatedList((), form.position)
    for number, (name, item) in enumerate(state_forms):
        following = state_forms[number + 1][0] if number + 1 < len(state_forms) else None
        states.append_at(compile_state(program, name, item, following), item.position)
    # Prompts without a wait still need distinct tags.
    for number, prompt in program.untagged_prompts:
        prompt.set_at("tag", f"_prompt_{number}", prompt.position)
    return make_node("machine", form.position, states=states)


def compile_state(program: LispProgram, name: str, form: ListForm, following: str | None) -> LocatedMap:
    state_map = LocatedMap((), form.position).set_at("name", name, form.items[1].position)
    forms = form.items[2:]
    ends = [item for item in forms if is_terminal_form(item)]
    if ends and ends[0] is not forms[-1]:
        program.add(ends[0], "(terminal) must be the last form of its state", "Remove the forms after it.")
    if any(len(item.items) > 1 for item in ends):
        program.add(ends[0], "(terminal) takes no arguments", "Write (terminal).")
    rest = [item for item in forms if not is_terminal_form(item)]
    if rest:
        state_map.set_at(
            "body", compile_body_node(program, rest, ChainMap(), form.position), rest[0].position
        )
    if ends:
        state_map.set_at("terminal", True, ends[0].position)
    elif following is not None:
        to = LocatedMap((), form.position).set_at("to", following, form.position)
        state_map.set_at("next", LocatedList((), form.position).append_at(to, form.position), form.position)
    return state_map


def is_terminal_form(form: Form) -> TypeGuard[ListForm]:
    return isinstance(form, ListForm) and form.head == "terminal"


# -- documents -----------------------------------------------------------------------------------


TOP_FORMS = ("workflow", "spec", "defn")
DOCUMENT_SHAPE_FIX = "Write (workflow NAME (state …) …), or (spec {…})."


def read_document(text: str, file: str = "<text>") -> Document:
    """Parse a document; raises `InvalidDefinition` with the positions of the problems."""
    # The spec may be as deep as in other notations; `(spec …)` adds one level.
    forms = read_forms(text, file, depth=MAX_SEXPR_DEPTH + 1)
    program = LispProgram(file)
    try:
        data = compile_top_form(program, rewrite_duet_forms(program, forms))
    except FormRejected:
        data = LocatedMap()
    program.raise_if_any()
    return Document(data, "lisp", file, text, program.notes)


def compile_top_form(program: LispProgram, forms: list[Form]) -> LocatedMap:
    definitions = [form for form in forms if isinstance(form, ListForm) and form.head in ("workflow", "spec")]
    helpers = [
        form
        for form in forms
        if isinstance(form, ListForm) and closest_form_name(form.head, TOP_FORMS) == "defn"
    ]
    for form in forms:
        if isinstance(form, ListForm) and form.head and form.head not in TOP_FORMS:
            program.add_unknown_name(form, "form", form.head, TOP_FORMS)
        elif not isinstance(form, ListForm) or not form.head:
            comment = isinstance(form, Symbol) and form.name.startswith("//")
            program.fail_expected(
                form, "a workflow", ("Start a comment with ';'." if comment else DOCUMENT_SHAPE_FIX)
            )
    for form in definitions[1:]:
        program.add(form, "A file must contain only one workflow", "Put the others into separate files.")
    if not definitions and program.problems:
        raise FormRejected
    if not definitions:
        program.fail(forms[0] if forms else MapForm(()), "The file contains no workflow", DOCUMENT_SHAPE_FIX)
    if definitions[0].head == "workflow":
        return compile_workflow(program, definitions[0], helpers)
    for item in helpers:
        program.add(item, "(spec …) cannot use helpers", "Remove it.")
    spec = definitions[0].items[1] if len(definitions[0].items) == 2 else definitions[0]
    if not isinstance(spec, MapForm):
        program.fail(spec, "(spec …) takes exactly one map", 'Write (spec {:name "…" :body {…}}).')
    document: LocatedMap = literal_value(program, spec)
    return document
