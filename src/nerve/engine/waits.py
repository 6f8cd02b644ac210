"""Waits: gates, timers and signals that are open, each settled once from outside."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nerve.core.gates import gate_id, waiting
from nerve.core.runtime import Gate, Signal, Timer, Wait
from nerve.core.workflow.state import GateInfo


@dataclass(slots=True)
class OpenWait:
    """A wait whose outcome is not known yet."""

    wait: Wait
    future: asyncio.Future[Any]
    deadline: float | None
    handle: asyncio.TimerHandle | None = None

    @property
    def kind(self) -> str:
        return kind_of(self.wait)

    @property
    def keeps_waiting(self) -> bool:
        """Whether the run is waiting because of it."""
        return not (isinstance(self.wait, Timer) and self.wait.guard)


def kind_of(wait: Wait) -> str:
    return "gate" if isinstance(wait, Gate) else "timer" if isinstance(wait, Timer) else "signal"


OPENS = {"gate": "gate_waiting", "timer": "timer_started", "signal": "signal_waiting"}


def content(wait: Wait) -> dict[str, Any]:
    """What of a wait must be the same on replay."""
    if isinstance(wait, Gate):
        return {"prompt": wait.prompt, "choices": wait.choices, "options": wait.options}
    if isinstance(wait, Timer):
        return {"seconds": wait.seconds}
    return {"label": wait.label, "key": wait.key}


def deadline_of(wait: Wait) -> float | None:
    seconds = wait.seconds if isinstance(wait, Timer) else wait.timeout
    return None if seconds is None else time.time() + seconds


def opening(wait: Wait, run_id: str, taken: set[str], deadline: float | None) -> dict[str, Any]:
    """The data of the event that says the wait is open."""
    if isinstance(wait, Gate):
        return waiting(wait, free_gate_id(run_id, wait.path, taken), deadline)
    data = content(wait) | {"deadline": deadline}
    if isinstance(wait, Timer) and wait.guard:
        data["guard"] = True
    return data


def free_gate_id(run_id: str, path: str, taken: set[str]) -> str:
    for length in range(8, 65, 4):
        if (identity := gate_id(run_id, path, length)) not in taken:
            break
    return identity


def gate_info(path: str, data: dict[str, Any], at: float) -> GateInfo:
    """An open gate as its event tells it."""
    return GateInfo(
        data["gate_id"],
        data["prompt"],
        data.get("choices"),
        created_at=datetime.fromtimestamp(at, UTC),
        path=path,
        node_id=data.get("node_id"),
        options=data.get("options"),
        note=data.get("note"),
        deadline=data.get("deadline"),
    )


def time_out(wait: Wait) -> tuple[str, Any]:
    """The event and the outcome of a wait whose time has come."""
    if isinstance(wait, Timer):
        return "timer_fired", None
    kind = "gate" if isinstance(wait, Gate) else "signal"
    assert isinstance(wait, Gate | Signal)
    return f"{kind}_timeout", TimeoutError(f"{kind} timed out after {wait.timeout:g} s")
