"""Gates on pages: what a card shows of an open gate, and how a gate that is not open any more ended."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from nerve.api.errors import ApiError
from nerve.core.events import GATE_END_EVENTS, WorkflowEventType
from nerve.core.gates import EDITABLE
from nerve.core.json_codec import encode_json
from nerve.core.people import PERSON_IDENTITY
from nerve.lazy_dataclass import dataclass
from nerve.ui.diffs import diff_file_name, format_diff_counts, is_diff, tool_input_diff
from nerve.ui.display_values import DisplayValue, display_value
from nerve.ui.formatting import format_value
from nerve.ui.gate_names import (
    APPROVE_WORDS,
    REJECT_WORDS,
    gate_display_name,
    gate_preview,
    split_gate_question,
)
from nerve.ui.gate_votes import describe_answerers, gate_vote_lines
from nerve.ui.sanitize import markdown_first_line, sanitize_text
from nerve.web.json_form import FormField, ParsedForm, Texts, encode_value, parse_form, show_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nerve.api.models import EventResponse, GateResponse
    from nerve.web.site import Visit

FORM_NAME = "answer"
"""The first part of the names of the fields of a gate's form."""
URGENT_S = 3600
"""Seconds before its deadline from which a gate is urgent."""
MAX_BUTTONS, MAX_BUTTON_CHARS = 6, 40
"""Choices that are buttons; more or longer ones are a list."""
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
SHOWN_PARTS = {
    "prompt": "the question",
    "choices": "the choices",
    "options": "the suggested answers",
    "note": "the note",
    "input_preview": "what is to be reviewed",
    "action": "what will be run",
    "form": "the form",
    "created_at": "when it was asked",
}


class GateChoice(NamedTuple):
    """A possible answer, and whether it approves or rejects."""

    text: str
    tone: Literal["approve", "reject", "other"]


class ActionField(NamedTuple):
    """A field of the input of a tool."""

    name: str
    text: str


@dataclass(slots=True)
class GateAction:
    """Exactly what will be run if the gate is approved."""

    tool: str
    folder: str
    fields: list[ActionField]
    file: str = ""
    counts: str = ""
    """The numbers of lines that a diff adds and removes."""
    diff: DisplayValue | None = None
    edit_form: FormField | None = None
    """The fields of the input, if the user may edit them."""
    is_edited: bool = False
    """Whether the fields have what the user has entered."""


@dataclass(slots=True)
class GateView:
    """An open gate, with what the user has entered so far."""

    gate: GateResponse
    title: str
    question: str
    """Markdown below the title."""
    name: str
    choices: list[GateChoice]
    has_buttons: bool
    accepts_text: bool
    action: GateAction | None
    preview: DisplayValue | None
    form: FormField | None
    deadline: datetime | None
    is_urgent: bool
    text: str = ""
    choice: str = ""
    reason: str = ""
    error: str = ""
    key: str = ""
    """The idempotency key of the form; empty for a new one."""
    is_embedded: bool = False
    """Whether the card is on another page than that of its gate, which stays open after the answer."""
    is_open: ClassVar[bool] = True

    @property
    def vote_lines(self) -> list[str]:
        """Who has answered a gate that several people decide, and what is missing."""
        return list(gate_vote_lines(self.gate))

    @property
    def shown_hashes(self) -> str:
        """Short hashes of the parts of the gate, by which a form that is too old says what has changed."""
        return " ".join(f"{name}={value}" for name, value in hash_parts(self.gate).items())


class ClosedGate(NamedTuple):
    """How a gate ended."""

    kind: Literal["answered", "timed out", "cancelled"]
    answer: str
    by: str
    reason: str
    key: str | None
    at: datetime
    people: str = ""
    """The people who have decided, with their way and address."""
    is_embedded: bool = False
    is_open: Literal[False] = False


def make_card(
    gate: GateResponse, texts: Texts | None = None, errors: Mapping[str, str] | None = None, **entered: Any
) -> GateView:
    """Return the card of a gate; `texts` are those of a submitted form."""
    title, question = split_gate_question(gate)
    if gate.action and gate.action.get("cwd"):  # shown with the action
        paragraphs = question.split("\n\n")
        question = "\n\n".join(part for part in paragraphs if not part.startswith("In the folder "))
    known = list(gate.choices or gate.options or [])
    form = None
    if gate.form is not None:
        given = encode_value(gate.form, FORM_NAME) if texts is None else texts
        form = show_form(gate.form, FORM_NAME, given, errors)
        form.label = form.label or "Answer"
    deadline = datetime.fromtimestamp(gate.deadline, UTC) if gate.deadline is not None else None
    preview = gate_preview(gate.input_preview)
    return GateView(
        gate,
        markdown_first_line(title) or gate_display_name(gate),
        question,
        gate_display_name(gate),
        [GateChoice(text, find_tone(text)) for text in known],
        len(known) <= MAX_BUTTONS and all(len(text) <= MAX_BUTTON_CHARS for text in known),
        gate.choices is None and gate.form is None,
        describe_action(gate.action, texts, errors) if gate.action else None,
        display_value(sanitize_text(preview)) if preview else None,
        form,
        deadline,
        deadline is not None and (deadline - datetime.now(UTC)).total_seconds() < URGENT_S,
        **entered,
    )


def find_tone(choice: str) -> Literal["approve", "reject", "other"]:
    word = choice.casefold()
    return "approve" if word in APPROVE_WORDS else "reject" if word in REJECT_WORDS else "other"


def edit_schema(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the form that edits the input of an action."""
    properties: dict[str, Any] = {}
    for name, value in action["input"].items():
        type = JSON_TYPES.get(value.__class__)
        properties[name] = {"default": value} | ({"type": type} if type else {})
        if type == "string":
            properties[name]["format"] = "multiline"
    return {"type": "object", "properties": properties}


def describe_action(
    action: Mapping[str, Any], texts: Texts | None = None, errors: Mapping[str, str] | None = None
) -> GateAction:
    """Return the action with every field of its input; a change of a file is a diff."""
    described = describe_tool_use(action)
    if action.get(EDITABLE) and action.get("input"):
        schema = edit_schema(action)
        given = encode_value(schema, FORM_NAME) if texts is None else texts
        described.edit_form = show_form(schema, FORM_NAME, given, errors)
        described.is_edited = texts is not None
    return described


def parse_edited_input(action: Mapping[str, Any], texts: Texts) -> ParsedForm:
    """Return the input of an action as the user has edited it; a field that is left empty is removed."""
    value, errors = parse_form(edit_schema(action), FORM_NAME, texts)
    if value is not None:  # what is null has an empty field
        value = {name: None for name, given in action["input"].items() if given is None} | value
    return ParsedForm(value, errors)


def describe_tool_use(action: Mapping[str, Any]) -> GateAction:
    tool_input = action.get("input")
    fields = [
        ActionField(sanitize_text(str(name)), sanitize_text(format_value(value)))
        for name, value in (tool_input.items() if isinstance(tool_input, dict) else ())
    ]
    diff = tool_input_diff(tool_input) or str(action.get("diff") or "")
    tool, folder = sanitize_text(str(action.get("tool", ""))), sanitize_text(str(action.get("cwd") or ""))
    if not is_diff(diff):
        return GateAction(tool, folder, fields)
    if tool_input_diff(tool_input):  # the diff shows both texts and the file
        shown_in_diff = ("old_string", "new_string", "file_path", "path")
        fields = [field for field in fields if field.name not in shown_in_diff]
    shown = DisplayValue("diff", sanitize_text(diff))
    return GateAction(
        tool, folder, fields, sanitize_text(diff_file_name(diff)), format_diff_counts(diff), shown
    )


def hash_parts(gate: GateResponse) -> dict[str, str]:
    data = gate.model_dump(mode="json")
    return {
        name: sha256(encode_json(data[name], True, None).encode(errors="replace")).hexdigest()[:8]
        for name in SHOWN_PARTS
    }


def list_changed_parts(shown_hashes: str, gate: GateResponse) -> list[str]:
    """Return the names of the parts of a gate that differ from those that a form has shown."""
    shown = dict(pair.split("=", 1) for pair in shown_hashes.split() if "=" in pair)
    return [SHOWN_PARTS[name] for name, value in hash_parts(gate).items() if shown.get(name) != value]


async def find_gate(visit: Visit, run: str, gate_id: str) -> GateResponse | None:
    """Return an open gate of a run, or of a child run of it; None if it is not open."""
    owner = await visit.client.run(run=run, steps=False)
    found = next((gate for gate in owner.gates if gate.gate_id == gate_id), None)
    if found is not None and found.label is None:
        found.label = owner.label
    return found


async def find_closed_gate(visit: Visit, run: str, gate_id: str) -> ClosedGate:
    """Return how a gate ended; ApiError if the run has no such gate."""
    ended: EventResponse | None = None
    waiting = None
    async for event in visit.client.history(run, type=[WorkflowEventType.GATE_WAITING, *GATE_END_EVENTS]):
        if event.data.get("gate_id") == gate_id:
            waiting = event
            ended = event if event.event_type in GATE_END_EVENTS else None
    if waiting is None:
        message = f"Gate '{gate_id}' not found in run '{run}'"
        raise ApiError("not_found", message, "See the open gates in the inbox.")
    if ended is None or ended.event_type != WorkflowEventType.GATE_ANSWERED:
        is_late = ended is not None and ended.event_type == WorkflowEventType.GATE_TIMEOUT
        at = (ended or waiting).timestamp
        return ClosedGate("timed out" if is_late else "cancelled", "", "", "", None, at)
    data = ended.data
    return ClosedGate(
        "answered",
        sanitize_text(format_value(data.get("answer"))),
        str(data.get("by") or ""),
        sanitize_text(str(data.get("reason") or "")),
        data.get("key"),
        ended.timestamp,
        sanitize_text(describe_answerers(data)) if is_of_people(data) else "",
    )


def is_of_people(answer: Mapping[str, Any]) -> bool:
    """Whether people who have proved who they are have given an answer."""
    return bool(answer.get("votes")) or str(answer.get("by")).startswith(PERSON_IDENTITY)
