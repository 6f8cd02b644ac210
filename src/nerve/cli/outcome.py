"""The outcome of a run: its state, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nerve.cli.exit_codes import exit_code_for_state

PARKED = "parked"
"""The state of a run whose process ended while it was running; no process drives it."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The state of a run when a command stops following it."""

    run_id: str
    workflow: str
    state: str
    result: Any = None
    error: str | None = None
    gates: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, Any] | None = None
    waits: list[dict[str, Any]] = field(default_factory=list)
    """Signals and facts the run waits for."""

    @property
    def exit_code(self) -> int:
        return exit_code_for_state(self.state)

    def to_dict(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"run_id": self.run_id, "workflow": self.workflow, "state": self.state}
        if self.state == "completed":
            payload["result"] = self.result
        if self.error is not None or self.held is not None:
            payload["error"] = self.error if self.held is None else self.held["message"]
        payload["gates"] = self.gates
        if self.waits:
            payload["waits"] = self.waits
        return payload


def iter_wait_conditions(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the conditions that end a wait: signals by label, other facts by pattern."""
    if "patterns" not in data:
        yield signal_condition(data["label"], data.get("key"))
        return
    for pattern in data["patterns"].values():
        match pattern:
            case ["signal", str(label), dict(fields)]:
                yield signal_condition(label, fields.get("key"))
            case _:
                yield {"fact": pattern}


def signal_condition(label: str, key: Any) -> dict[str, Any]:
    return {"signal": label} | ({"key": key} if key is not None else {})
