"""The account after a recovery: what was reused, what ran, and whether any settled step ran twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nerve.core.view import RunView, fold
from nerve.core.workflow import WorkflowEvent

SETTLED = ("completed", "failed")


@dataclass(frozen=True)
class Account:
    """Steps by their names, from the journal; effects by their keys, from the log the steps write."""

    reused: list[str]
    """Settled before the recovery, answered from the journal after it."""
    ran: list[str]
    """Settled after the recovery."""
    cut_off: list[str]
    """Begun before the recovery and not settled then."""
    effects_before: list[str]
    effects_after: list[str]

    @property
    def sound(self) -> bool:
        """Whether every step had one effect, and only what was cut off had a second one."""
        before, after = set(self.effects_before), set(self.effects_after)
        once_each = len(before) + len(after) == self.effects
        excused = set(self.effects_before[len(self.effects_before) - len(self.cut_off) :])
        return once_each and before & after <= excused and len(before | after) == self.steps

    @property
    def effects(self) -> int:
        return len(self.effects_before) + len(self.effects_after)

    @property
    def steps(self) -> int:
        return len(self.reused) + len(self.ran)

    def lines(self) -> list[str]:
        again = [name for name in self.ran if name in self.cut_off]
        cause = f", {', '.join(again)} again because it was cut off" if again else ""
        verdict = "no settled step ran twice" if self.sound else "A SETTLED STEP RAN TWICE"
        return [
            f"reused   {counted(len(self.reused))} settled before, from the journal",
            f"ran now  {counted(len(self.ran))}{cause}",
            f"checked  {self.effects} lines in effects.log for {counted(self.steps)}: {verdict}",
        ]


def account(
    before: Iterable[WorkflowEvent],
    everything: Iterable[WorkflowEvent],
    effects_before: Sequence[str],
    effects: Sequence[str],
) -> Account:
    """Compare the journal and the log as they were found with what they are now."""
    old, new = fold(before), fold(everything)
    reused = settled(old)
    ran = [name for name in settled(new) if name not in reused]
    return Account(reused, ran, cut_off(old), list(effects_before), list(effects[len(effects_before) :]))


def settled(view: RunView) -> list[str]:
    return [node.name for node in view.nodes.values() if not node.control and node.state in SETTLED]


def cut_off(view: RunView) -> list[str]:
    return [node.name for node in view.nodes.values() if not node.control and node.state not in SETTLED]


def counted(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
