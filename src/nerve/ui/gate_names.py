"""Gates as people name and answer them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import GateResponse

MAX_CHOICES_CHARS = 60
"""Characters of choices that are shown beside a prompt."""
APPROVE_WORDS = ("approve", "approved", "yes", "y", "ok", "accept", "allow", "true")
REJECT_WORDS = ("reject", "rejected", "no", "n", "deny", "decline", "refuse", "cancel", "false")
"""What choices are called that approve, and that reject."""


class NamedGate(Protocol):
    """What a name needs to know of a gate."""

    @property
    def gate_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def node_id(self) -> str | None: ...


def gate_names(gate: NamedGate) -> list[str]:
    """What a gate may be called: its id, its path, the id of its node, and the last name of its path."""
    path = gate.path.removesuffix("/answer")
    last = path.rsplit("/", 1)[-1]
    bare = re.sub(r"\[\d+\]$", "", last)
    return [gate.gate_id, gate.path, path, path[1:], *([gate.node_id] if gate.node_id else []), last, bare]


def gate_display_name(gate: NamedGate) -> str:
    """What a person may call a gate."""
    return gate.node_id or gate_names(gate)[-1]


def describe_gate_answers(gate: GateResponse) -> str:
    """What a gate takes, in a few words."""
    known = [sanitize_text(answer) for answer in gate.choices or gate.options or ()]
    summary = " · ".join(known)
    if not known or len(summary) > MAX_CHOICES_CHARS:
        summary = f"1 to {len(known)}" if gate.choices else "type an answer"
    return summary if gate.choices or not known else f"{summary} · or your own answer"


def gate_preview(input_preview: Any) -> str:
    """What a question is about, without empty lines around it; "" where it is about nothing."""
    preview = str(input_preview or "").rstrip().lstrip("\n")
    return "" if preview == "None" else preview


def resolve_typed_choice(line: str, choices: list[str]) -> str:
    """The choice that a line means by its number, its text, `y` or `n`; without choices the line itself."""
    line = line.strip() if choices else line
    if line in choices:
        return line
    if line.isdecimal() and line.isascii() and 1 <= int(line[:9]) <= len(choices):
        return choices[int(line[:9]) - 1]
    words = {"y": APPROVE_WORDS, "n": REJECT_WORDS}.get(line.casefold(), (line.casefold(),))
    matches = [choice for choice in choices if choice.casefold() in words]
    return matches[0] if len(matches) == 1 else line
