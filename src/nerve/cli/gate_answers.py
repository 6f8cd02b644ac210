"""Answers from the command line: each `--answer GATE=TEXT` answers one gate once, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nerve.cli.errors import UsageError
from nerve.core.suggest import did_you_mean_hint

if TYPE_CHECKING:
    from nerve.spec import models


class PresetAnswers:
    """The preset answers that are not used yet."""

    def __init__(self, pairs: Iterable[str] = ()) -> None:
        self.remaining: list[tuple[str, str]] = []
        for pair in pairs:
            gate, equals, text = pair.partition("=")
            if not (gate.strip() and equals):
                raise UsageError(f"--answer must be GATE=TEXT, got '{pair}'.")
            self.remaining.append((gate.strip(), text))

    def pop(self, names: Iterable[str]) -> str | None:
        """Remove and return the first answer for one of these names, or None."""
        accepted_names = set(names)
        for n, (gate, text) in enumerate(self.remaining):
            if gate in accepted_names:
                del self.remaining[n]
                return text
        return None

    def validate_against(self, specs: Iterable[models.WorkflowSpec]) -> None:
        """Raise UsageError for answers that no gate or signal wait of these workflows accepts."""
        from nerve.core.gates import validate_answer

        specs = list(specs)
        gates: dict[str, models.GateSpec | None] = {
            name: None for spec in specs for name in iter_agent_step_names(spec)
        }
        gates |= {name: gate for spec in specs for name, gate in iter_gate_specs(spec)}
        signals = {name for spec in specs for name in iter_signal_names(spec)}
        for name, text in self.remaining:
            if "/" in name or name in signals or re.fullmatch("[0-9a-f]{8,}", name):
                continue
            if name not in gates:
                suggestion = did_you_mean_hint(name, gates)
                gate_names = [name for name, gate in gates.items() if gate is not None]
                known_gates = (
                    f"Gates: {', '.join(gate_names)}." if gate_names else "The workflow has no gates."
                )
                raise UsageError(
                    f"--answer {name}={text}: unknown gate '{name}'{suggestion or '.'} {known_gates}"
                )
            gate = gates[name]
            if gate is not None and gate.choices and text not in gate.choices:
                raise UsageError(
                    f"--answer {name}={text}: the answer must be {' or '.join(gate.choices)}, got '{text}'."
                )
            try:
                validate_answer(text, None, gate.form if gate is not None else None)
            except ValueError as error:
                raise UsageError(f"--answer {name}={text}: {error}.") from None


def iter_gate_specs(spec: models.WorkflowSpec) -> Iterator[tuple[str, models.GateSpec]]:
    return ((name, step) for name, step in iter_steps(spec) if step.kind == "gate")


def iter_agent_step_names(spec: models.WorkflowSpec) -> Iterator[str]:
    """Yield the steps whose agent may open a gate: a permission request or a question."""
    return (name for name, step in iter_steps(spec) if step.kind in ("prompt", "call"))


def iter_signal_names(spec: models.WorkflowSpec) -> Iterator[str]:
    waits = (step for _, step in iter_steps(spec) if step.kind == "wait")
    return (condition.signal for step in waits for condition in step.any if condition.signal is not None)


def iter_steps(spec: models.WorkflowSpec) -> Iterator[tuple[str, Any]]:
    """Yield every step of a workflow with its name."""
    from nerve.spec.walk import walk_spec

    return ((step.name, step.spec) for step in walk_spec(spec.body))
