"""Gates: their identity, what is shown of them, and which answers they take."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from nerve.core.runtime import Gate


def gate_id(run_id: str, path: str, length: int = 8) -> str:
    """The same for the same place of the same run, also after recovery."""
    return sha256(f"{run_id}{path}".encode()).hexdigest()[:length]


def waiting(gate: Gate, identity: str, deadline: float | None) -> dict[str, Any]:
    """The data of `gate_waiting`."""
    data: dict[str, Any] = {
        "gate_id": identity,
        "prompt": gate.prompt,
        "choices": gate.choices,
        "options": gate.options,
    }
    optional = {
        "node_id": gate.node_id,
        "input_preview": gate.input_preview,
        "note": gate.note,
        "action": dict(gate.action) if gate.action is not None else None,
        "timeout": gate.timeout,
        "deadline": deadline,
    }
    return data | {name: value for name, value in optional.items() if value is not None}


def check_choices(choices: object) -> None:
    """Raise ValueError for choices that are not a list of answers."""
    if choices is not None and (isinstance(choices, str) or not choices):
        raise ValueError(f"choices must be a list of at least one answer, not {choices!r}")


def check_answer(answer: Any, choices: list[str] | None) -> None:
    """Raise ValueError when a gate with `choices` does not take this answer."""
    if choices and answer not in choices:
        raise ValueError(f"Invalid choice '{answer}'. Must be one of: {choices}")
