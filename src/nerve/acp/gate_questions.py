"""Gates as permission requests of ACP: the choices are the options, everything else is asked as text."""

from __future__ import annotations

import json
from typing import Any

import acp
from acp import schema
from nerve.api.models import GateResponse
from nerve.core.gates import REJECT_WORDS
from nerve.ui.gate_names import answer_command, example_answer

MAX_CONTENT_CHARS = 20_000


def permission_options(gate: GateResponse) -> list[schema.PermissionOption]:
    """Return an option for each choice of a gate."""
    return [
        schema.PermissionOption(
            option_id=choice,
            name=choice,
            kind="reject_once" if choice.casefold() in REJECT_WORDS else "allow_once",
        )
        for choice in gate.choices or ()
    ]


def question_call(gate: GateResponse) -> schema.ToolCallUpdate:
    """Return the tool call that a permission request is about: what the gate asks, and its content."""
    title = gate.prompt.strip().partition("\n")[0]
    action = json.dumps(gate.action, ensure_ascii=False, indent=1) if gate.action else ""
    parts = [gate.prompt, action, gate.input_preview or "", gate.note or ""]
    text = "\n\n".join(part for part in parts if part)[:MAX_CONTENT_CHARS]
    return schema.ToolCallUpdate(
        tool_call_id=f"gate-{gate.gate_id}",
        title=title,
        kind="other",
        status="pending",
        content=[acp.tool_content(acp.text_block(text))],
    )


def question_text(gate: GateResponse) -> str:
    """Return the question of a gate without choices, and how to answer it."""
    parts = [gate.prompt, gate.input_preview or "", gate.note or ""]
    if gate.options:
        parts.append(f"Suggestions: {', '.join(gate.options)}")
    if gate.form is not None:
        parts.append(f"The answer is JSON, such as: {example_answer(None, gate.form)}")
    parts.append(f"Send the answer as the next message, or: {answer_command(gate)}")
    return "\n\n".join(part for part in parts if part)


def selected_choice(response: Any) -> str | None:
    """Return the option that the user has selected; None if the request was cancelled."""
    return getattr(response.outcome, "option_id", None)
