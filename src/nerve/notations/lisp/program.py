"""The workflow that is compiled, the problems in it, and readers for the parts of its forms."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection
from dataclasses import field, replace
from typing import Any, Final, NoReturn

from nerve.core.suggest import closest_name
from nerve.lazy_dataclass import dataclass
from nerve.text.sexpr import Form, Keyword, ListForm, MapForm, Number, String, Symbol, VectorForm, print_form
from nerve.text.sexpr.forms import MAX_PROBLEMS
from nerve.text.source import Diagnostics, HasPosition, LocatedList, LocatedMap, Position

MAX_COMPARED_CHARS: Final = 64
"""Longer names are not compared with others, and are truncated in messages."""

MAX_COMPARED_NAMES: Final = 500
"""Maximum number of names to compare for a suggestion."""


MAX_NAME_CHARS: Final = 128
"""Maximum length of a name in the spec."""

FOREIGN_NAMES: Final = {
    **dict.fromkeys(("if", "cond", "case", "unless"), "branch"),
    **dict.fromkeys(("set", "setq", "set!", "setf", "def", "let*"), "let"),
    **dict.fromkeys(("transition", "go", "next", "jump"), "goto"),
    **dict.fromkeys(("print", "println", "echo", "display"), "log"),
    **dict.fromkeys(("prompt", "ask", "send"), "send-prompt"),
    **dict.fromkeys(("progn", "begin", "do"), "action"),
    **dict.fromkeys(("while", "repeat", "dotimes", "for"), "loop"),
    **dict.fromkeys(("sh", "shell", "run"), "bash"),
    **dict.fromkeys(("approve", "approval", "confirm"), "gate"),
    **dict.fromkeys(("return", "output"), "result"),
    **dict.fromkeys(("end", "exit", "stop", "done"), "terminal"),
    **dict.fromkeys(("defun", "define", "fn"), "defn"),
    **dict.fromkeys(("eq", "equal", "equal?", "==", "eq?"), "="),
    **dict.fromkeys(("length", "len", "size"), "count"),
    **dict.fromkeys(("format", "string-append"), "str"),
    "append": "concat",
}
"""Names in other Lisps, and their equivalents here."""


class FormRejected(Exception):
    """Skips a form whose problem was recorded; compilation continues after it."""


def preview_form(form: Form) -> str:
    """Return the start of a form, for messages."""
    if isinstance(form, String):
        form = String(form.value[:40])
    text = " ".join(print_form(form, 10**9)[:50].split())
    return text if len(text) < 40 else f"{text[:40]}…"


def truncate_name(name: str) -> str:
    return name if len(name) <= MAX_COMPARED_CHARS else f"{name[:MAX_COMPARED_CHARS]}…"


def closest_form_name(name: str, known: Collection[str]) -> str | None:
    """Return the likely name: the equivalent of a name in another Lisp, or the closest known name."""
    word = FOREIGN_NAMES.get(name)
    if word in known:
        return word
    return closest_name(name, list(known)[:MAX_COMPARED_NAMES]) if len(name) <= MAX_COMPARED_CHARS else None


def suggest_form_names(name: str, known: Collection[str]) -> str:
    """Return a suggestion, or the list of known names."""
    if word := closest_form_name(name, known):
        return f"Did you mean '{word}'?"
    return f"Available: {', '.join(sorted(known)[:40])}." if known else "None is defined."


# -- state of the compiler -----------------------------------------------------------------------


Names = ChainMap[str, str]
"""The expression of each visible name."""


@dataclass(frozen=True, slots=True)
class Role:
    """The agent that answers a prompt."""

    agent: str | None
    thread: str
    model: str | None
    prompt_options: LocatedMap = field(default_factory=LocatedMap)
    """Options of every prompt of the role: `fallback`, `tools`, `max_turns`."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A `defn`: its expression, with numbered slots for its parameters."""

    parameter_count: int
    text: str


@dataclass(frozen=True, slots=True)
class Env:
    """The context of a form: the visible names, and the list of steps that it appends to.

    In a `test`, a condition does not wait: it yields whether it holds now or, if it is `compared`, its
    current value. Elsewhere it waits. Without `steps`, conditions are not allowed.
    """

    names: Names
    steps: list[LocatedMap] | None
    test: bool = False
    compared: bool = False

    def for_comparison(self, compared: bool = True) -> Env:
        return self if compared is self.compared else replace(self, compared=compared)

    def add_step(self, node: LocatedMap) -> None:
        if self.steps is not None:
            self.steps.append(node)


class LispProgram(Diagnostics):
    """The workflow being compiled, the problems in it, and readers of the parts of its forms."""

    def __init__(self, file: str) -> None:
        super().__init__(file, MAX_PROBLEMS)
        self.roles: dict[str, Role] = {}
        self.inputs = LocatedMap()
        self.states: set[str] = set()
        self.helpers: dict[str, Helper | None] = {}
        self.tags: set[str] = set()
        """Tags set with `:tag`."""
        self.prompt_count = 0
        """Number of prompts so far."""
        self.untagged_prompts: list[tuple[int, LocatedMap]] = []
        """Prompts without a tag so far, each with its number."""
        self.prompt_number_by_tag: dict[str, int] = {}
        """Numbers of the prompts that got their tag from a wait, by tag."""
        self.used_ids: set[str] = set()
        """Ids set in the source."""
        self.expression_chars = 0
        """Total length of all expressions so far."""
        self.id_count = 0

    def claim_id(self, name: str) -> str:
        """Return the name as an id if it is free, for gates that users answer by name; else a new id."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name) or name in self.used_ids | self.states:
            return self.new_id(name)
        self.used_ids.add(name)
        return name

    def new_id(self, name: str) -> str:
        """Return a unique id; ids that start with an underscore are reserved for the compiler."""
        self.id_count += 1
        return f"_{re.sub(r'[^a-z0-9]+', '_', name.lower())[:40].strip('_')}_{self.id_count}"

    def fail(self, at: Position | HasPosition | None, message: str, fix: str = "") -> NoReturn:
        """Record a problem, and skip the form that has it."""
        self.add(at, message, fix)
        raise FormRejected

    def fail_expected(self, form: Form, what: str, fix: str) -> NoReturn:
        """Report a form in the place of something else."""
        self.fail(form, f"Expected {what}, found {preview_form(form)}", fix)

    def add_warning(self, at: LocatedMap, message: str, fix: str = "") -> None:
        if len(self.notes) < MAX_PROBLEMS:
            self.add_note(at, message, fix, "warning")

    def add_unknown_name(
        self, at: Form, what: str, name: str, known: Collection[str], none: str = ""
    ) -> None:
        """Report an unknown name; `none` is the fix if no names are known."""
        self.add(
            at, f"Unknown {what} '{truncate_name(name)}'", suggest_form_names(name, known) if known else none
        )

    def split_form(
        self,
        form: ListForm,
        options: Collection[str] = (),
        least: int = 0,
        most: int | None = None,
    ) -> tuple[list[Form], dict[str, Form]]:
        """Return the parts and the options of a form; `least` to `most` parts must follow its head."""
        parts: list[Form] = []
        values: dict[str, Form] = {}
        items = iter(form.items[1:])
        for item in items:
            if not isinstance(item, Keyword):
                parts.append(item)
                continue
            value = next(items, None)
            if value is None or isinstance(value, Keyword):
                self.fail(item, f":{item.name} has no value", f"Write (… :{item.name} VALUE).")
            if item.name not in options:
                self.add_unknown_name(
                    item, f"option of ({form.head} …)", item.name, options, "It has no options."
                )
                if (word := closest_form_name(item.name, options)) is not None:
                    values.setdefault(word, value)
            elif item.name in values:
                self.add(item, f":{item.name} is duplicated", "Remove one.")
            else:
                values[item.name] = value
        self.check_argument_count(form, len(parts), least, most)
        return parts, values

    def check_argument_count(self, form: ListForm, count: int, least: int, most: int | None) -> None:
        """Reject a form with too few or too many parts."""
        if least <= count and (most is None or count <= most):
            return
        expected = (
            f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        )
        noun = "argument" if expected == "1" else "arguments"
        fix = "Add the missing arguments." if count < least else "Remove the extra arguments."
        self.fail(form, f"({form.head} …) takes {expected} {noun}, got {count}", fix)

    def require_name(self, form: Form, what: str) -> str:
        """Return a name, which is a symbol or a string."""
        name = form.name if isinstance(form, Symbol) else form.value if isinstance(form, String) else None
        if name is None:
            self.fail_expected(form, what, "A name is a symbol or a string.")
        if not 0 < len(name) <= MAX_NAME_CHARS:
            message = f"Expected 1 to {MAX_NAME_CHARS} characters for {what}, got {len(name)}"
            self.fail(form, message, "Give it another name.")
        return name

    def require_symbol(self, form: Form, what: str) -> str:
        if not isinstance(form, Symbol):
            self.fail_expected(form, what, "It must be a symbol.")
        return self.require_name(form, what)

    def require_string(self, form: Form, what: str) -> str:
        if not isinstance(form, String):
            self.fail_expected(form, what, "Put strings in double quotes.")
        return form.value

    def require_items(self, form: Form, what: str) -> tuple[Form, ...]:
        if not isinstance(form, ListForm | VectorForm):
            self.fail_expected(form, what, "Put it in parentheses.")
        return form.items

    def require_seconds(self, form: Form) -> float:
        if not isinstance(form, Number) or form.value < 0:
            self.fail_expected(form, "seconds", "Write a number such as 30 or 1.5.")
        return form.value

    def require_count(self, form: Form, least: int = 1) -> int:
        if not isinstance(form, Number) or not isinstance(form.value, int) or form.value < least:
            self.fail_expected(form, f"an integer of at least {least}", "Write a number such as 3.")
        return form.value

    def require_map(self, form: Form) -> MapForm:
        if not isinstance(form, MapForm):
            self.fail_expected(form, "a map", "Write {:name value …}.")
        return form


def make_node(kind: str, position: Position, **values: Any) -> LocatedMap:
    """Return a node of the spec; values keep their positions, others get that of the node."""
    result = LocatedMap((), position).set_at("kind", kind, position)
    for key, value in values.items():
        result.set_at(key, value, getattr(value, "position", None) or position)
    return result


def join_steps(steps: list[LocatedMap], position: Position) -> LocatedMap:
    """Return several steps as one node; no steps become a node that returns its input."""
    if not steps:
        return make_node("transform", position, expression="given")
    return (
        steps[0] if len(steps) == 1 else make_node("sequence", position, steps=located_steps(steps, position))
    )


def located_steps(items: list[LocatedMap], position: Position) -> LocatedList:
    return LocatedList.of(((item, item.position) for item in items), position)
