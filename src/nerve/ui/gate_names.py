"""Names and answers of gates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import GateResponse

MAX_CHOICES_CHARS = 60
"""Maximum characters of the choices shown next to a prompt."""
APPROVE_WORDS = ("approve", "approved", "yes", "y", "ok", "accept", "allow", "true")
REJECT_WORDS = ("reject", "rejected", "no", "n", "deny", "decline", "refuse", "cancel", "false")
"""Names of choices that approve or reject."""


class NamedGate(Protocol):
    """The attributes of a gate that its names use."""

    @property
    def gate_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def node_id(self) -> str | None: ...


def gate_names(gate: NamedGate) -> list[str]:
    """Return the accepted names of a gate: id, path, node id, and last path segment."""
    path = gate.path.removesuffix("/answer")
    segment = path.rsplit("/", 1)[-1]
    bare_segment = re.sub(r"\[\d+\]$", "", segment)
    return [
        gate.gate_id,
        gate.path,
        path,
        path[1:],
        *([gate.node_id] if gate.node_id else []),
        segment,
        bare_segment,
    ]


def gate_display_name(gate: NamedGate) -> str:
    """Return the name of a gate for display."""
    return gate.node_id or gate_names(gate)[-1]


def describe_gate_answers(gate: GateResponse) -> str:
    """Describe the possible answers of a gate in a few words."""
    known = [sanitize_text(answer) for answer in gate.choices or gate.options or ()]
    summary = " · ".join(known)
    if not known or len(summary) > MAX_CHOICES_CHARS:
        summary = f"1 to {len(known)}" if gate.choices else "type an answer"
    return summary if gate.choices or not known else f"{summary} · or your own answer"


def gate_preview(input_preview: Any) -> str:
    """Return the input preview without surrounding blank lines; "" if there is none."""
    preview = str(input_preview or "").rstrip().lstrip("\n")
    return "" if preview == "None" else preview


def resolve_typed_choice(line: str, choices: list[str]) -> str:
    """Resolve a number, a choice, `y` or `n` to a choice; otherwise return the line."""
    line = line.strip() if choices else line
    if line in choices:
        return line
    if line.isdecimal() and line.isascii() and 1 <= int(line[:9]) <= len(choices):
        return choices[int(line[:9]) - 1]
    words = {"y": APPROVE_WORDS, "n": REJECT_WORDS}.get(line.casefold(), (line.casefold(),))
    matches = [choice for choice in choices if choice.casefold() in words]
    return matches[0] if len(matches) == 1 else line
