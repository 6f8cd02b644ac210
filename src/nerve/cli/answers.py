"""Answers given on the command line: `--answer GATE=TEXT`, each for one gate, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nerve.api.models import GateTold
from nerve.cli.usage import UsageError
from nerve.commander.core.gates import name_of, names_of
from nerve.core.gates import taken
from nerve.core.suggest import suggest
from nerve.core.workflow import GateInfo
from nerve.spec import models
from nerve.spec.walk import walk

__all__ = ["Answers", "Gate", "gates_of", "name_of", "names_of", "signals_of"]

Gate = GateInfo | GateTold
"""A gate of this process, or as the api tells it."""


class Answers:
    """What is still to be answered with."""

    def __init__(self, pairs: Iterable[str] = ()) -> None:
        self.left: list[tuple[str, str]] = []
        for pair in pairs:
            gate, equals, text = pair.partition("=")
            if not (gate.strip() and equals):
                raise UsageError(f"--answer {pair} names no gate: write --answer GATE=TEXT.")
            self.left.append((gate.strip(), text))

    def take(self, names: Iterable[str]) -> str | None:
        """The first answer for one of these names, which is used up then."""
        known = set(names)
        for n, (gate, text) in enumerate(self.left):
            if gate in known:
                del self.left[n]
                return text
        return None

    def check(self, specs: Iterable[models.WorkflowSpec]) -> None:
        """Refuse answers that no gate and no wait for a signal of these workflows can take."""
        specs = list(specs)
        gates: dict[str, models.Gate | None] = {name: None for spec in specs for name in agents_of(spec)}
        gates |= {name: gate for spec in specs for name, gate in gates_of(spec)}
        signals = {name for spec in specs for name in signals_of(spec)}
        for name, text in self.left:
            if "/" in name or name in signals or re.fullmatch("[0-9a-f]{8,}", name):
                continue
            if name not in gates:
                close = suggest(name, gates)
                own = [name for name, gate in gates.items() if gate is not None]
                there = f"Gates: {', '.join(own)}." if own else "The workflow has none."
                raise UsageError(f"--answer {name}={text}: there is no gate '{name}'{close or '.'} {there}")
            gate = gates[name]
            if gate is not None and gate.choices and text not in gate.choices:
                raise UsageError(
                    f"--answer {name}={text}: the gate takes {' or '.join(gate.choices)}, not '{text}'."
                )
            try:
                taken(text, None, gate.form if gate is not None else None)
            except ValueError as error:
                raise UsageError(f"--answer {name}={text}: {error}.") from None


def gates_of(spec: models.WorkflowSpec) -> Iterator[tuple[str, models.Gate]]:
    for each in walk(spec.body):
        if isinstance(each.spec, models.Gate):
            yield each.name, each.spec


def agents_of(spec: models.WorkflowSpec) -> Iterator[str]:
    """The steps that may ask for something themselves: whether they may do it, or what is meant."""
    for each in walk(spec.body):
        if isinstance(each.spec, models.Prompt | models.Call):
            yield each.name


def signals_of(spec: models.WorkflowSpec) -> Iterator[str]:
    for each in walk(spec.body):
        if isinstance(each.spec, models.Wait):
            yield from (condition.signal for condition in each.spec.any if condition.signal is not None)
