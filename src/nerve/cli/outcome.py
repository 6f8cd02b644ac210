"""The outcome of a run: its state, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from nerve.cli.exit_codes import exit_code_for_state
from nerve.lazy_dataclass import dataclass
from nerve.ui.gate_names import gate_display_name

if TYPE_CHECKING:
    from nerve.api.models import GateResponse, RunResponse
    from nerve.ui.progress_tree import ProgressTree

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
    error_type: str | None = None
    location: str | None = None
    """Where the workflow function raised."""
    waiting_for: str | None = None
    """What it waits for, as a phrase."""
    tracebacks: list[str] = field(default_factory=list)
    """The lines of the tracebacks of a failed run."""

    @property
    def exit_code(self) -> int:
        return exit_code_for_state(self.state)

    def to_dict(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"run_id": self.run_id, "workflow": self.workflow, "state": self.state}
        if self.state == "completed":
            payload["result"] = self.result
        if self.error is not None or self.held is not None:
            payload["error"] = self.error if self.held is None else self.held["message"]
        if self.location is not None:
            payload |= {"error_type": self.error_type, "location": self.location}
        if self.waiting_for is not None:
            payload["waiting_for"] = self.waiting_for
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


def state_when_idle(run: RunOutcome | RunResponse) -> str:
    """Return the state of a run that no process drives: a running run is parked, or waits in a child."""
    if run.state != "running":
        return run.state
    return "waiting" if run.gates or run.waiting_for else PARKED


def outcome_from_run(run: Any, tree: ProgressTree | None = None) -> RunOutcome:
    """Return the outcome of a run in the form that `nerve run` prints."""
    is_over = run.state in ("completed", "failed", "cancelled")
    gates = [] if is_over else gate_payloads(tree.gates if tree is not None else run.gates)
    waits = [] if is_over or tree is None else wait_payloads(tree)
    return RunOutcome(
        run.run_id,
        run.workflow,
        run.state,
        run.result,
        run.error,
        gates,
        run.held,
        waits,
        run.error_type,
        run.location,
        run.waiting_for,
        tree_tracebacks(tree) if tree is not None else [],
    )


def tree_tracebacks(tree: ProgressTree) -> list[str]:
    """Return the lines of the tracebacks of a failed run and its child runs, the innermost first."""
    from nerve.ui.failure_text import failed_run_lines

    views = [branch.view for _, branch in sorted(tree.branches.items(), reverse=True)]
    return [line for view in views for line in failed_run_lines(view)]


def gate_payloads(gates: Iterable[GateResponse]) -> list[dict[str, Any]]:
    payloads = [
        {**gate.model_dump(mode="json", exclude_none=True), "name": gate_display_name(gate)} for gate in gates
    ]
    return [{"choices": None} | gate for gate in payloads]


def wait_payloads(tree: ProgressTree) -> list[dict[str, Any]]:
    return [condition for data in tree.waits for condition in iter_wait_conditions(data)]
