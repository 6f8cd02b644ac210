"""The shape of a form: its positional parts, its options, its names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from nerve.notations.lisp.telling import Teller, meant
from nerve.notations.sexpr import Form, Keyword, ListForm, Number, String, Symbol, VectorForm, print_form

NAME = 128
"""Characters of a name in the spec."""


@dataclass(slots=True)
class Parts:
    """What stands behind the head of a form."""

    rest: list[Form] = field(default_factory=list)
    options: dict[str, Form] = field(default_factory=dict)

    def option(self, *names: str) -> Form | None:
        return next((self.options[name] for name in names if name in self.options), None)


def parts(
    tell: Teller, form: ListForm, options: Collection[str] = (), least: int = 0, most: int | None = None
) -> Parts:
    """Split a form; `least` to `most` positional parts are expected behind its head."""
    found = Parts()
    items = iter(form.items[1:])
    for item in items:
        if not isinstance(item, Keyword):
            found.rest.append(item)
            continue
        value = next(items, None)
        if value is None or isinstance(value, Keyword):
            tell.refuse(item, f":{item.name} has no value", f"Write (… :{item.name} VALUE).")
        if item.name not in options:
            tell.unknown(item, f"option of ({form.head} …)", item.name, options, "It takes none.")
            if (word := meant(item.name, options)) is not None:
                found.options.setdefault(word, value)
        elif item.name in found.options:
            tell.tell(item, f":{item.name} is there twice", "Remove one.")
        else:
            found.options[item.name] = value
    counted(tell, form, len(found.rest), least, most)
    return found


def counted(tell: Teller, form: ListForm, count: int, least: int, most: int | None) -> None:
    """Refuse a form with too few or too many parts."""
    if least <= count and (most is None or count <= most):
        return
    expected = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
    noun = "argument" if expected == "1" else "arguments"
    fix = "Add what is missing." if count < least else "Remove what is too much."
    tell.refuse(form, f"({form.head} …) takes {expected} {noun}, not {count}", fix)


def name_of(tell: Teller, form: Form, what: str) -> str:
    """A name: a symbol or a string."""
    name = form.name if isinstance(form, Symbol) else form.value if isinstance(form, String) else None
    if name is None:
        tell.refuse(form, f"expected {what}, found {glimpse(form)}", "A name is a symbol or a string.")
    if not 0 < len(name) <= NAME:
        message = f"{what} must have 1 to {NAME} characters, not {len(name)}"
        tell.refuse(form, message, "Give it another name.")
    return name


def symbol_of(tell: Teller, form: Form, what: str) -> str:
    if not isinstance(form, Symbol):
        tell.refuse(form, f"expected {what}, found {glimpse(form)}", "It must be a symbol.")
    return name_of(tell, form, what)


def text_of(tell: Teller, form: Form, what: str) -> str:
    if not isinstance(form, String):
        tell.refuse(form, f"expected {what}, found {glimpse(form)}", "Text belongs in double quotes.")
    return form.value


def names_of(tell: Teller, form: Form, what: str) -> list[tuple[str, Form]]:
    """The names in a list or vector, each with its form."""
    return [(name_of(tell, item, what), item) for item in items_of(tell, form, f"a list of {what}")]


def items_of(tell: Teller, form: Form, what: str) -> tuple[Form, ...]:
    if not isinstance(form, ListForm | VectorForm):
        tell.refuse(form, f"expected {what}, found {glimpse(form)}", "Put it in parentheses.")
    return form.items


def seconds_of(tell: Teller, form: Form) -> float:
    if not isinstance(form, Number) or form.value < 0:
        tell.refuse(form, f"expected seconds, found {glimpse(form)}", "Write a number such as 30 or 1.5.")
    return form.value


def count_of(tell: Teller, form: Form, least: int = 1) -> int:
    if not isinstance(form, Number) or not isinstance(form.value, int) or form.value < least:
        message = f"expected a whole number from {least} on, found {glimpse(form)}"
        tell.refuse(form, message, "Write a number such as 3.")
    return form.value


def glimpse(form: Form) -> str:
    """The beginning of a form, for messages."""
    if isinstance(form, String):
        form = String(form.value[:40])
    text = " ".join(print_form(form, 10**9)[:50].split())
    return text if len(text) < 40 else f"{text[:40]}…"
