"""Read a Lisp document: one `(workflow …)` with helpers before it, or one `(spec {…})`."""

from __future__ import annotations

from nerve.notations.lisp.diagnostics import FormRejected, LispDiagnostics, closest_form_name
from nerve.notations.lisp.form_parsing import preview_form
from nerve.notations.lisp.full_form import literal_map
from nerve.notations.lisp.workflow import compile_workflow
from nerve.text.sexpr import Form, ListForm, MapForm, Symbol, read_forms
from nerve.text.sexpr.limits import MAX_SEXPR_DEPTH
from nerve.text.source import Document, LocatedMap

TOP_FORMS = ("workflow", "spec", "defn")
DOCUMENT_SHAPE_FIX = "Write (workflow NAME (state …) …), or (spec {…})."


def read_document(text: str, file: str = "<text>") -> Document:
    """Parse a document; raises `InvalidDefinition` with the positions of the problems."""
    # The spec may be as deep as in other notations; `(spec …)` adds one level.
    forms = read_forms(text, file, depth=MAX_SEXPR_DEPTH + 1)
    diagnostics = LispDiagnostics(file)
    try:
        data = compile_top_form(diagnostics, forms)
    except FormRejected:
        data = LocatedMap()
    diagnostics.raise_if_any()
    return Document(data, "lisp", file, text, diagnostics.notes)


def compile_top_form(diagnostics: LispDiagnostics, forms: list[Form]) -> LocatedMap:
    definitions = [form for form in forms if isinstance(form, ListForm) and form.head in ("workflow", "spec")]
    helpers = [
        form
        for form in forms
        if isinstance(form, ListForm) and closest_form_name(form.head, TOP_FORMS) == "defn"
    ]
    for form in forms:
        if isinstance(form, ListForm) and form.head and form.head not in TOP_FORMS:
            diagnostics.add_unknown_name(form, "form", form.head, TOP_FORMS)
        elif not isinstance(form, ListForm) or not form.head:
            diagnostics.fail(form, f"Expected a workflow, found {preview_form(form)}", top_form_fix(form))
    for form in definitions[1:]:
        diagnostics.add(form, "A file must contain only one workflow", "Put the others into separate files.")
    if not definitions and diagnostics.problems:
        raise FormRejected
    if not definitions:
        diagnostics.fail(
            forms[0] if forms else MapForm(()), "The file contains no workflow", DOCUMENT_SHAPE_FIX
        )
    if definitions[0].head == "workflow":
        return compile_workflow(diagnostics, definitions[0], helpers)
    return read_full_form(diagnostics, definitions[0], helpers)


def top_form_fix(form: Form) -> str:
    comment = isinstance(form, Symbol) and form.name.startswith("//")
    return "Start a comment with ';'." if comment else DOCUMENT_SHAPE_FIX


def read_full_form(diagnostics: LispDiagnostics, form: ListForm, helpers: list[ListForm]) -> LocatedMap:
    for item in helpers:
        diagnostics.add(item, "(spec …) cannot use helpers", "Remove it.")
    spec = form.items[1] if len(form.items) == 2 else form
    if not isinstance(spec, MapForm):
        diagnostics.fail(spec, "(spec …) takes exactly one map", 'Write (spec {:name "…" :body {…}}).')
    return literal_map(diagnostics, spec)
