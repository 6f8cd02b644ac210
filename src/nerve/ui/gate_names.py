"""Names and answers of gates."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.gates import APPROVE_WORDS as APPROVE_WORDS
from nerve.core.gates import REJECT_WORDS as REJECT_WORDS
from nerve.core.gates import NamedGate, gate_names
from nerve.ui.json_forms import format_example_answer
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import GateResponse

MAX_CHOICES_CHARS = 60
"""Maximum characters of the choices shown next to a prompt."""


def gate_display_name(gate: NamedGate) -> str:
    """Return the name of a gate for display."""
    return gate.node_id or gate_names(gate.gate_id, gate.path, None)[-1]


def describe_gate_answers(gate: GateResponse) -> str:
    """Describe the possible answers of a gate in a few words."""
    known = [sanitize_text(answer) for answer in gate.choices or gate.options or ()]
    summary = " · ".join(known)
    if not known or len(summary) > MAX_CHOICES_CHARS:
        summary = f"1 to {len(known)}" if gate.choices else "type an answer"
    return summary if gate.choices or not known else f"{summary} · or your own answer"


def example_answer(choices: Sequence[str] | None, form: Mapping[str, Any] | None) -> str:
    """Return an answer for a suggested command: the first choice, an example of a form, or TEXT."""
    if choices:
        return choices[0]
    return "TEXT" if form is None else format_example_answer(form)


def answer_command(gate: GateResponse) -> str:
    """Return the command with which a person answers a gate."""
    answer = example_answer(gate.choices, gate.form)
    return shlex.join(["nerve", "answer", gate.run_id, answer, "--gate", gate.gate_id])


def gate_preview(input_preview: Any) -> str:
    """Return the input preview without surrounding blank lines; "" if there is none."""
    preview = str(input_preview or "").rstrip().lstrip("\n")
    return "" if preview == "None" else preview


def split_gate_question(gate: GateResponse) -> tuple[str, str]:
    """Return the first line of the question, and the rest; an action is shown beside it, so not repeated."""
    prompt = gate.prompt.strip()
    if gate.action:
        first, *paragraphs = prompt.split("\n\n")
        return first.rstrip(":"), "\n\n".join(paragraphs[1:])
    head, _, rest = prompt.partition("\n")
    return (head, rest.strip()) if head[:1] not in ("`", "|", "-", "*", ">", "~") else ("", prompt)


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


class AmbiguousAnswer(ValueError):
    """The gate or answer is ambiguous; the message says what to type."""


def match_choice(
    gate: GateResponse,
    words: tuple[str, ...],
    format_command: Callable[[GateResponse, str], str] = lambda gate, text: f"/answer {gate.gate_id} {text}",
) -> str:
    """Return the only choice that is one of `words`; `format_command` formats the suggested command."""
    if gate.form is not None:
        raise AmbiguousAnswer(
            f"Gate '{gate_display_name(gate)}' requires a form answer: "
            f"{format_command(gate, format_example_answer(gate.form))}"
        )
    choices = gate.choices or gate.options or []
    matches = [choice for choice in choices if choice.casefold() in words]
    if len(matches) == 1:
        return matches[0]
    accepted, first = " or ".join(choices) or "any text", choices[0] if choices else "TEXT"
    raise AmbiguousAnswer(
        f"Gate '{gate_display_name(gate)}' takes {accepted}. Answer with: {format_command(gate, first)}"
    )
