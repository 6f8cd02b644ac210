"""A text in Lisp: one `(workflow …)`, with helpers before it, or one `(spec {…})`."""

from __future__ import annotations

from nerve.notations.lisp.literals import map_of
from nerve.notations.lisp.shape import glimpse
from nerve.notations.lisp.telling import Refused, Teller, meant
from nerve.notations.lisp.workflow import workflow
from nerve.notations.sexpr import Form, ListForm, MapForm, Symbol, read_all
from nerve.notations.sexpr.limits import DEPTH
from nerve.spec.source import Document, Map

TOP = ("workflow", "spec", "defn")
SHAPE = "Write (workflow NAME (state …) …), or (spec {…})."


def read(text: str, file: str = "<text>") -> Document:
    """The document of a text; raises `Unreadable` with the places of what is wrong."""
    # The spec itself may be as deep as in any notation; `(spec …)` is around it.
    forms = read_all(text, file, depth=DEPTH + 1)
    tell = Teller(file)
    try:
        data = top(tell, forms)
    except Refused:
        data = Map()
    tell.done()
    return Document(data, "lisp", file, text, tell.notes)


def top(tell: Teller, forms: list[Form]) -> Map:
    definitions = [form for form in forms if isinstance(form, ListForm) and form.head in ("workflow", "spec")]
    helpers = [form for form in forms if isinstance(form, ListForm) and meant(form.head, TOP) == "defn"]
    for form in forms:
        if isinstance(form, ListForm) and form.head and form.head not in TOP:
            tell.unknown(form, "form", form.head, TOP)
        elif not isinstance(form, ListForm) or not form.head:
            tell.refuse(form, f"expected a workflow, found {glimpse(form)}", out_of_place(form))
    for form in definitions[1:]:
        tell.tell(form, "a text holds one workflow", "Put the others into files of their own.")
    if not definitions and tell.problems:
        raise Refused
    if not definitions:
        tell.refuse(forms[0] if forms else MapForm(()), "there is no workflow in this text", SHAPE)
    if definitions[0].head == "workflow":
        return workflow(tell, definitions[0], helpers)
    return full_form(tell, definitions[0], helpers)


def out_of_place(form: Form) -> str:
    comment = isinstance(form, Symbol) and form.name.startswith("//")
    return "A comment begins with ';'." if comment else SHAPE


def full_form(tell: Teller, form: ListForm, helpers: list[ListForm]) -> Map:
    for item in helpers:
        tell.tell(item, "(spec …) uses no helpers", "Remove it.")
    spec = form.items[1] if len(form.items) == 2 else form
    if not isinstance(spec, MapForm):
        tell.refuse(spec, "(spec …) takes one map", 'Write (spec {:name "…" :body {…}}).')
    return map_of(tell, spec)
