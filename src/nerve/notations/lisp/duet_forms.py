"""The forms of Duet's own files, rewritten into those of this notation.

Duet writes the sections and states of a workflow after an empty `(workflow NAME)`, asks an agent with an
`agent-request` record, waits for the `agent-response` with its id, and reads its text as a field of the last
wait.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeGuard

from nerve.notations.lisp.program import LispProgram, preview_form
from nerve.text.sexpr import Form, Keyword, ListForm, Number, String, Symbol
from nerve.text.source import Position

MOVED_HEADS = frozenset({"metadata", "roles", "inputs", "limits", "workspace", "state"})
RESPONSE_TEXT_FIELD = 3


def rewrite_duet_forms(program: LispProgram, forms: list[Form]) -> list[Form]:
    """Return the forms of a file with those of Duet rewritten; forms of this notation stay as they are."""
    return DuetRewriter(program).rewrite(forms)


class DuetRewriter:
    """Rewrites the forms of one file."""

    def __init__(self, program: LispProgram) -> None:
        self.program = program
        self.macros: dict[str, ListForm] = {}
        self.role_by_request: dict[str, str] = {}
        self.awaited: str | None = None
        """The request whose response was awaited last."""
        self.is_linear = True

    def rewrite(self, forms: list[Form]) -> list[Form]:
        """Move the sections and states into the workflow, and rewrite its states."""
        moved = [form for form in forms if is_list(form, MOVED_HEADS)]
        workflows = [form for form in forms if isinstance(form, ListForm) and form.head == "workflow"]
        if not moved or len(workflows) != 1 or len(workflows[0].items) != 2:
            return forms
        self.macros = {
            name: form
            for form in forms
            if isinstance(form, ListForm) and is_macro(form) and (name := symbol_name(form.items[1]))
        }
        kept = [form for form in forms if form not in moved and not is_macro(form)]
        states = [form for form in moved if is_list(form, {"state"})]
        self.is_linear = all(map(self.leads_to, states, [*states[1:], None]))
        rewritten = [self.rewrite_form(form, {}) if form in states else form for form in moved]
        workflow = replace(workflows[0], items=(*workflows[0].items, *(each for each in rewritten if each)))
        return [workflow if form is workflows[0] else form for form in kept]

    def leads_to(self, state: Form, following: Form | None) -> bool:
        """Whether a state is only followed by the next one in the text."""
        assert isinstance(state, ListForm)
        name = symbol_name(following.items[1]) if isinstance(following, ListForm) else ""
        return all(symbol_name(goto.items[1]) == name for goto in find_forms(state, "goto"))

    def rewrite_form(self, form: Form, values: Mapping[str, Form]) -> Form | None:
        """Return a form with the parameters of a macro replaced; None for one without a meaning here."""
        if isinstance(form, Symbol):
            return values.get(form.name, form)
        if not isinstance(form, ListForm):
            return form
        if form.head in self.macros:
            return self.expand(self.macros[form.head], form, values)
        match form.head:
            case "attach-entity":  # a role has its agent without being attached to it
                return None
            case "last-wait-field":
                return self.last_response(form)
            case "assert" if is_list(second := item_at(form, 1), {"record"}):
                return self.rewrite_request(form, second, values)
            case "await" | "wait" if is_list(second := item_at(form, 1), {"record"}):
                return self.rewrite_wait(form, second, values)
            case "string-append":
                form = replace(form, items=(Symbol("str", form.items[0].position), *form.items[1:]))
        items = tuple(item for each in form.items if (item := self.rewrite_form(each, values)) is not None)
        return (
            None
            if form.head == "action" and len(items) == 1 < len(form.items)
            else replace(form, items=items)
        )

    def expand(self, macro: ListForm, call: ListForm, values: Mapping[str, Form]) -> Form | None:
        """Return the action of a macro with the arguments of a call."""
        parameters = macro.items[2].items if isinstance(macro.items[2], ListForm) else ()
        if len(parameters) != len(call.items) - 1:
            message = f"({call.head} …) takes {len(parameters)} arguments, got {len(call.items) - 1}"
            self.program.fail(call, message, "Change the call.")
        arguments = [self.rewrite_form(item, values) or item for item in call.items[1:]]
        given = {symbol_name(name): value for name, value in zip(parameters, arguments, strict=True)}
        return self.rewrite_form(macro.items[3], given)

    def rewrite_request(self, form: ListForm, record: ListForm, values: Mapping[str, Form]) -> Form:
        """Return `(record agent-request (role-property ROLE "entity") ID PROMPT)` as a prompt."""
        match [self.rewrite_form(item, values) for item in record.items[1:]]:
            case [
                Symbol(name="agent-request"),
                ListForm(items=(Symbol(name="role-property"), Symbol() as role, _)),
                String() as id,
                prompt,
            ] if prompt is not None:
                self.role_by_request[id.value] = role.name
                rewritten = self.prompt_form(form.position, role, id, prompt)
            case _:
                fix = 'Write (record agent-request (role-property ROLE "entity") ID PROMPT).'
                self.program.fail(record, f"Unknown record of Duet: {preview_form(record)}", fix)
        return rewritten

    def prompt_form(self, at: Position, role: Symbol, id: String, prompt: Form) -> Form:
        """Return `(send-prompt …)` of a text with an id."""
        options: dict[str, Form] = {
            "agent": role,
            "template": String("~a", at),
            "args": ListForm((prompt,), at),
            "tag": id,
        }
        items = [item for name, value in options.items() for item in (Keyword(name, at), value)]
        return ListForm((Symbol("send-prompt", at), *items), at)

    def rewrite_wait(self, form: ListForm, record: ListForm, values: Mapping[str, Form]) -> Form:
        """Return `(record agent-response :field 1 :equals ID)` as a wait for a response."""
        match [self.rewrite_form(item, values) for item in record.items[1:]]:
            case [
                Symbol(name="agent-response"),
                Keyword(name="field"),
                Number(value=1),
                Keyword(name="equals"),
                String() | Symbol() as id,
            ]:
                self.awaited = id.value if isinstance(id, String) else id.name
            case _:
                fix = "Write (record agent-response :field 1 :equals ID)."
                self.program.fail(record, f"Unknown record of Duet: {preview_form(record)}", fix)
        at = record.position
        response = (Symbol("transcript-response", at), Keyword("request-id", at), id)
        return replace(form, items=(form.items[0], ListForm(response, at)))

    def last_response(self, form: ListForm) -> Form:
        """Return the text of the response that was awaited last."""
        role = self.role_by_request.get(self.awaited or "")
        number = item_at(form, 1)
        if not isinstance(number, Number) or number.value != RESPONSE_TEXT_FIELD:
            fix = f"Write (last-wait-field {RESPONSE_TEXT_FIELD}), the text of the response."
            self.program.fail(form, f"Unknown field of a response: {preview_form(form)}", fix)
        if role is None or not self.is_linear:
            message = "(last-wait-field …) is only supported after a wait, in states that follow each other"
            self.program.fail(form, message, "Bind the answer: (let ((answer (await …))) …).")
        return ListForm((Symbol("artifact", form.position), Symbol(role, form.position)), form.position)


def is_list(form: Form | None, heads: Collection[str]) -> TypeGuard[ListForm]:
    return isinstance(form, ListForm) and form.head in heads


def is_macro(form: Form) -> bool:
    """Whether a form is a `defn` with an action as its body."""
    return isinstance(form, ListForm) and form.head == "defn" and is_list(item_at(form, 3), {"action"})


def item_at(form: ListForm, index: int) -> Form | None:
    return form.items[index] if index < len(form.items) else None


def symbol_name(form: Form | None) -> str:
    return form.name if isinstance(form, Symbol) else ""


def find_forms(form: Form, head: str) -> list[ListForm]:
    """Return all forms with a head inside a form that have an argument."""
    if not isinstance(form, ListForm):
        return []
    own = [form] if form.head == head and len(form.items) > 1 else []
    return own + [each for item in form.items for each in find_forms(item, head)]
