"""Compile `(workflow NAME …)` to a machine."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from nerve.notations.lisp.bodies import compile_body_node
from nerve.notations.lisp.compile_context import LispProgram, make_node
from nerve.notations.lisp.diagnostics import FormRejected, LispDiagnostics
from nerve.notations.lisp.form_parsing import preview_form, require_form_name
from nerve.notations.lisp.sections import SECTIONS, compile_helper, explicit_ids, explicit_tags
from nerve.text.sexpr import Form, ListForm
from nerve.text.sexpr.limits import MAX_SEXPR_DEPTH
from nerve.text.source import LocatedList, LocatedMap

WORKFLOW_FORMS: Final = (*SECTIONS, "defn", "state")


def compile_workflow(diagnostics: LispDiagnostics, form: ListForm, helpers: Sequence[ListForm]) -> LocatedMap:
    """Return the spec of a workflow, without the parts that have problems."""
    program, data = LispProgram(diagnostics), LocatedMap((), form.position)
    if len(form.items) < 2:
        diagnostics.fail(form, "The name of (workflow …) is missing", "Write (workflow NAME (state …) …).")
    data.set_at(
        "name",
        require_form_name(diagnostics, form.items[1], "the name of a workflow"),
        form.items[1].position,
    )
    forms = group_sections(program, form)
    for section in SECTIONS:
        compile_section(program, forms[section], data)
    for item in [*helpers, *forms["defn"]]:
        try:
            compile_helper(program, item)
        except FormRejected:
            continue
    data.set_at("body", compile_machine(program, form, forms["state"]), form.position)
    refuse_deep_nesting(diagnostics, form, data)
    return data


def group_sections(program: LispProgram, form: ListForm) -> dict[str, list[ListForm]]:
    """Return the forms of a workflow by head."""
    forms_by_head: dict[str, list[ListForm]] = {name: [] for name in WORKFLOW_FORMS}
    for item in form.items[2:]:
        if isinstance(item, ListForm) and item.head in forms_by_head:
            forms_by_head[item.head].append(item)
        elif isinstance(item, ListForm) and item.head in ("define", "defun"):
            fix = "Write (defn f (x) EXPR)."
            program.diagnostics.add(item, f"A helper must be defined with (defn …), got ({item.head} …)", fix)
        elif isinstance(item, ListForm) and item.head:
            program.diagnostics.add_unknown_name(item, "form in a workflow", item.head, WORKFLOW_FORMS)
        else:
            fix = f"Available: {', '.join(f'({name} …)' for name in WORKFLOW_FORMS)}."
            program.diagnostics.add(item, f"Expected a form of a workflow, found {preview_form(item)}", fix)
    return forms_by_head


def compile_section(program: LispProgram, forms: Sequence[ListForm], data: LocatedMap) -> None:
    for item in forms[1:]:
        program.diagnostics.add(item, f"({item.head} …) is duplicated", "Merge them into one.")
    for item in forms[:1]:
        try:
            SECTIONS[item.head](program, item, data)
        except FormRejected:
            continue


def compile_machine(program: LispProgram, form: ListForm, forms: Sequence[ListForm]) -> LocatedMap:
    """Compile the machine; a state is followed by the next in the text, unless a goto leaves it."""
    if not forms and not program.diagnostics.problems:
        program.diagnostics.add(form, "A workflow must have at least one state", "Add (state NAME BODY …).")
    state_forms = named_states(program, forms)
    program.tags = explicit_tags([item for _, item in state_forms])
    program.used_ids = explicit_ids([item for _, item in state_forms])
    states = LocatedList((), form.position)
    for number, (name, item) in enumerate(state_forms):
        following = state_forms[number + 1][0] if number + 1 < len(state_forms) else None
        states.append_at(compile_state(program, name, item, following), item.position)
    # Prompts without a wait still need distinct tags.
    for number, prompt in program.untagged_prompts:
        prompt.set_at("tag", f"_prompt_{number}", prompt.position)
    return make_node("machine", form.position, states=states)


def named_states(program: LispProgram, forms: Sequence[ListForm]) -> list[tuple[str, ListForm]]:
    state_forms: list[tuple[str, ListForm]] = []
    for item in forms:
        try:
            if len(item.items) < 2:
                program.diagnostics.fail(
                    item, "The name of (state …) is missing", "Write (state NAME BODY …)."
                )
            name = require_form_name(program.diagnostics, item.items[1], "the name of a state")
        except FormRejected:
            continue
        if name in program.states:
            program.diagnostics.add(item.items[1], f"The state '{name}' is duplicated", "Rename one.")
        program.states.add(name)
        state_forms.append((name, item))
    return state_forms


def compile_state(program: LispProgram, name: str, form: ListForm, following: str | None) -> LocatedMap:
    state_map = LocatedMap((), form.position).set_at("name", name, form.items[1].position)
    forms = form.items[2:]
    ends = [item for item in forms if is_terminal_form(item)]
    if ends and ends[0] is not forms[-1]:
        program.diagnostics.add(
            ends[0], "(terminal) must be the last form of its state", "Remove the forms after it."
        )
    if any(len(item.items) > 1 for item in ends):
        program.diagnostics.add(ends[0], "(terminal) takes no arguments", "Write (terminal).")
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


def refuse_deep_nesting(diagnostics: LispDiagnostics, form: ListForm, data: LocatedMap) -> None:
    """Reject a workflow that is nested too deeply for the full form."""
    rest: list[tuple[Any, int]] = [(data, 1)]
    while rest:
        value, depth = rest.pop()
        if depth > MAX_SEXPR_DEPTH:
            diagnostics.fail(
                form, f"The workflow is nested deeper than {MAX_SEXPR_DEPTH} levels", "Use states instead."
            )
        if isinstance(value, LocatedMap):
            rest.extend((item, depth + 1) for item in value.values() if isinstance(item, dict | list))
        else:
            rest.extend((item, depth + 1) for item in value if isinstance(item, dict | list))
