"""`(workflow NAME …)`: a machine of its states."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from nerve.notations.lisp.bodies import body_node
from nerve.notations.lisp.program import Program, node
from nerve.notations.lisp.sections import SECTIONS, explicit_ids, explicit_tags, helper
from nerve.notations.lisp.shape import glimpse, name_of
from nerve.notations.lisp.telling import Refused, Teller
from nerve.notations.sexpr import Form, ListForm
from nerve.notations.sexpr.limits import DEPTH
from nerve.spec.source import Map, Seq

FORMS: Final = (*SECTIONS, "defn", "state")


def workflow(tell: Teller, form: ListForm, helpers: Sequence[ListForm]) -> Map:
    """The spec of a workflow, as far as it could be read."""
    program, data = Program(tell), Map((), form.place)
    if len(form.items) < 2:
        tell.refuse(form, "(workflow …) without a name", "Write (workflow NAME (state …) …).")
    data.put("name", name_of(tell, form.items[1], "the name of a workflow"), form.items[1].place)
    forms = sorted_out(program, form)
    for section in SECTIONS:
        read_section(program, forms[section], data)
    for item in [*helpers, *forms["defn"]]:
        try:
            helper(program, item)
        except Refused:
            continue
    data.put("body", machine(program, form, forms["state"]), form.place)
    refuse_depth(tell, form, data)
    return data


def sorted_out(program: Program, form: ListForm) -> dict[str, list[ListForm]]:
    """The forms of a workflow by their heads."""
    found: dict[str, list[ListForm]] = {name: [] for name in FORMS}
    for item in form.items[2:]:
        if isinstance(item, ListForm) and item.head in found:
            found[item.head].append(item)
        elif isinstance(item, ListForm) and item.head in ("define", "defun"):
            fix = "Write (defn f (x) EXPR)."
            program.tell.tell(item, f"a helper is defined by (defn …), not by ({item.head} …)", fix)
        elif isinstance(item, ListForm) and item.head:
            program.tell.unknown(item, "form in a workflow", item.head, FORMS)
        else:
            fix = f"There is: {', '.join(f'({name} …)' for name in FORMS)}."
            program.tell.tell(item, f"expected a form of a workflow, found {glimpse(item)}", fix)
    return found


def read_section(program: Program, forms: Sequence[ListForm], data: Map) -> None:
    for item in forms[1:]:
        program.tell.tell(item, f"({item.head} …) is there twice", "Put all of it into one.")
    for item in forms[:1]:
        try:
            SECTIONS[item.head](program, item, data)
        except Refused:
            continue


def machine(program: Program, form: ListForm, forms: Sequence[ListForm]) -> Map:
    """States follow each other as they stand in the text, unless a goto says otherwise."""
    if not forms and not program.tell.problems:
        program.tell.tell(form, "a workflow needs a state", "Add (state NAME BODY …).")
    named = named_states(program, forms)
    program.tags = explicit_tags([item for _, item in named])
    program.taken = explicit_ids([item for _, item in named])
    states = Seq((), form.place)
    for number, (name, item) in enumerate(named):
        following = named[number + 1][0] if number + 1 < len(named) else None
        states.push(state(program, name, item, following), item.place)
    # Those that nobody waits for must not be taken for each other either.
    for number, prompt in program.untagged:
        prompt.put("tag", f"_prompt_{number}", prompt.place)
    return node("machine", form.place, states=states)


def named_states(program: Program, forms: Sequence[ListForm]) -> list[tuple[str, ListForm]]:
    found: list[tuple[str, ListForm]] = []
    for item in forms:
        try:
            if len(item.items) < 2:
                program.tell.refuse(item, "(state …) without a name", "Write (state NAME BODY …).")
            name = name_of(program.tell, item.items[1], "the name of a state")
        except Refused:
            continue
        if name in program.states:
            program.tell.tell(item.items[1], f"the state '{name}' is there twice", "Rename one.")
        program.states.add(name)
        found.append((name, item))
    return found


def state(program: Program, name: str, form: ListForm, following: str | None) -> Map:
    made = Map((), form.place).put("name", name, form.items[1].place)
    forms = form.items[2:]
    ends = [item for item in forms if is_end(item)]
    if ends and ends[0] is not forms[-1]:
        program.tell.tell(ends[0], "(terminal) must stand last in its state", "Nothing behind it is done.")
    if any(len(item.items) > 1 for item in ends):
        program.tell.tell(ends[0], "(terminal) takes nothing", "Write (terminal).")
    rest = [item for item in forms if not is_end(item)]
    if rest:
        made.put("body", body_node(program, rest, ChainMap(), form.place), rest[0].place)
    if ends:
        made.put("terminal", True, ends[0].place)
    elif following is not None:
        to = Map((), form.place).put("to", following, form.place)
        made.put("next", Seq((), form.place).push(to, form.place), form.place)
    return made


def is_end(form: Form) -> TypeGuard[ListForm]:
    return isinstance(form, ListForm) and form.head == "terminal"


def refuse_depth(tell: Teller, form: ListForm, data: Map) -> None:
    """Refuse what could not be written down in the full form."""
    rest: list[tuple[Any, int]] = [(data, 1)]
    while rest:
        value, depth = rest.pop()
        if depth > DEPTH:
            tell.refuse(form, f"the workflow is nested more than {DEPTH} deep", "Use states instead.")
        if isinstance(value, Map):
            rest.extend((item, depth + 1) for item in value.values() if isinstance(item, dict | list))
        else:
            rest.extend((item, depth + 1) for item in value if isinstance(item, dict | list))
