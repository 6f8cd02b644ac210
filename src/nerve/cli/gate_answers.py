"""Answers from the command line: each `--answer GATE=TEXT` answers one gate once, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
        from nerve.core.nodes.control.workspace_node import CONFLICT_CHOICES, CONFLICT_GATE
        from nerve.spec import models
        from nerve.spec.builder import workspace_kind
        from nerve.spec.walk import walk_spec

        steps: list[tuple[str, Any]] = [
            (step.name, step.spec) for spec in specs for step in walk_spec(spec.body)
        ]
        # An agent may open a gate at its own step: a permission request or a question.
        gates: dict[str, Any] = {name: None for name, step in steps if step.kind in ("prompt", "call")}
        gates |= {name: step for name, step in steps if step.kind == "gate"}
        if any(step.kind == "merge" or workspace_kind(step) != "shared" for _, step in steps):
            gates.setdefault(CONFLICT_GATE, models.GateSpec(kind="gate", prompt="", choices=CONFLICT_CHOICES))
        waits = [condition for _, step in steps if step.kind == "wait" for condition in step.any]
        signals = {condition.signal for condition in waits if condition.signal is not None}
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
