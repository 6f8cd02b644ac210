"""Parse the parts of a form: positional parts, options and names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from nerve.notations.lisp.diagnostics import LispDiagnostics, closest_form_name
from nerve.text.sexpr import Form, Keyword, ListForm, Number, String, Symbol, VectorForm, print_form

MAX_NAME_CHARS = 128
"""Maximum length of a name in the spec."""


@dataclass(slots=True)
class FormParts:
    """The positional parts and the options of a form."""

    rest: list[Form] = field(default_factory=list)
    options: dict[str, Form] = field(default_factory=dict)

    def option(self, *names: str) -> Form | None:
        return next((self.options[name] for name in names if name in self.options), None)


def split_form(
    diagnostics: LispDiagnostics,
    form: ListForm,
    options: Collection[str] = (),
    least: int = 0,
    most: int | None = None,
) -> FormParts:
    """Split a form into parts; `least` to `most` positional parts must follow its head."""
    form_parts = FormParts()
    items = iter(form.items[1:])
    for item in items:
        if not isinstance(item, Keyword):
            form_parts.rest.append(item)
            continue
        value = next(items, None)
        if value is None or isinstance(value, Keyword):
            diagnostics.fail(item, f":{item.name} has no value", f"Write (… :{item.name} VALUE).")
        if item.name not in options:
            diagnostics.add_unknown_name(
                item, f"option of ({form.head} …)", item.name, options, "It has no options."
            )
            if (word := closest_form_name(item.name, options)) is not None:
                form_parts.options.setdefault(word, value)
        elif item.name in form_parts.options:
            diagnostics.add(item, f":{item.name} is duplicated", "Remove one.")
        else:
            form_parts.options[item.name] = value
    check_argument_count(diagnostics, form, len(form_parts.rest), least, most)
    return form_parts


def check_argument_count(
    diagnostics: LispDiagnostics, form: ListForm, count: int, least: int, most: int | None
) -> None:
    """Reject a form with too few or too many parts."""
    if least <= count and (most is None or count <= most):
        return
    expected = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
    noun = "argument" if expected == "1" else "arguments"
    fix = "Add the missing arguments." if count < least else "Remove the extra arguments."
    diagnostics.fail(form, f"({form.head} …) takes {expected} {noun}, got {count}", fix)


def require_form_name(diagnostics: LispDiagnostics, form: Form, what: str) -> str:
    """Return a name, which is a symbol or a string."""
    name = form.name if isinstance(form, Symbol) else form.value if isinstance(form, String) else None
    if name is None:
        diagnostics.fail(
            form, f"Expected {what}, found {preview_form(form)}", "A name is a symbol or a string."
        )
    if not 0 < len(name) <= MAX_NAME_CHARS:
        message = f"Expected 1 to {MAX_NAME_CHARS} characters for {what}, got {len(name)}"
        diagnostics.fail(form, message, "Give it another name.")
    return name


def require_symbol(diagnostics: LispDiagnostics, form: Form, what: str) -> str:
    if not isinstance(form, Symbol):
        diagnostics.fail(form, f"Expected {what}, found {preview_form(form)}", "It must be a symbol.")
    return require_form_name(diagnostics, form, what)


def require_string(diagnostics: LispDiagnostics, form: Form, what: str) -> str:
    if not isinstance(form, String):
        diagnostics.fail(
            form, f"Expected {what}, found {preview_form(form)}", "Put strings in double quotes."
        )
    return form.value


def require_names(diagnostics: LispDiagnostics, form: Form, what: str) -> list[tuple[str, Form]]:
    """Return the names in a list or vector, each with its form."""
    return [
        (require_form_name(diagnostics, item, what), item)
        for item in require_items(diagnostics, form, f"a list of {what}")
    ]


def require_items(diagnostics: LispDiagnostics, form: Form, what: str) -> tuple[Form, ...]:
    if not isinstance(form, ListForm | VectorForm):
        diagnostics.fail(form, f"Expected {what}, found {preview_form(form)}", "Put it in parentheses.")
    return form.items


def require_form_seconds(diagnostics: LispDiagnostics, form: Form) -> float:
    if not isinstance(form, Number) or form.value < 0:
        diagnostics.fail(
            form, f"Expected seconds, found {preview_form(form)}", "Write a number such as 30 or 1.5."
        )
    return form.value


def require_count(diagnostics: LispDiagnostics, form: Form, least: int = 1) -> int:
    if not isinstance(form, Number) or not isinstance(form.value, int) or form.value < least:
        message = f"Expected an integer of at least {least}, found {preview_form(form)}"
        diagnostics.fail(form, message, "Write a number such as 3.")
    return form.value


def preview_form(form: Form) -> str:
    """Return the start of a form, for messages."""
    if isinstance(form, String):
        form = String(form.value[:40])
    text = " ".join(print_form(form, 10**9)[:50].split())
    return text if len(text) < 40 else f"{text[:40]}…"
