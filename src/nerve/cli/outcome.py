"""How a run was left, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nerve.cli.exits import code_of

PARKED = "parked"
"""The state of a run that was running when its process ended; nobody drives it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run was left."""

    run_id: str
    workflow: str
    state: str
    result: Any = None
    error: str | None = None
    gates: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, Any] | None = None
    waits: list[dict[str, Any]] = field(default_factory=list)
    """The signals and facts it waits for."""

    @property
    def code(self) -> int:
        return code_of(self.state)

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"run_id": self.run_id, "workflow": self.workflow, "state": self.state}
        if self.state == "completed":
            told["result"] = self.result
        if self.error is not None or self.held is not None:
            told["error"] = self.error if self.held is None else self.held["message"]
        told["gates"] = self.gates
        if self.waits:
            told["waits"] = self.waits
        return told


def awaited(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a wait would be over with: signals by their names, and other facts by their patterns."""
    if "patterns" not in data:
        yield named_signal(data["label"], data.get("key"))
        return
    for pattern in data["patterns"].values():
        match pattern:
            case ["signal", str(label), dict(named)]:
                yield named_signal(label, named.get("key"))
            case _:
                yield {"fact": pattern}


def named_signal(label: str, key: Any) -> dict[str, Any]:
    return {"signal": label} | ({"key": key} if key is not None else {})
