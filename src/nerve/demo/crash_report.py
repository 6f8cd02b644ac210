"""The report after a recovery: which steps were reused, which ran, and whether a settled step ran twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nerve.core.run_view import RunView
from nerve.core.workflow import WorkflowEvent
from nerve.journal.run_view import fold_events
from nerve.lazy_dataclass import dataclass
from nerve.ui.formatting import count_noun

SETTLED_STATES = ("completed", "failed")


@dataclass(frozen=True)
class CrashReport:
    """Step names from the journal, and effect keys from the effects log that the steps write."""

    reused_steps: list[str]
    """Settled before the recovery and replayed from the journal."""
    executed_steps: list[str]
    """Settled after the recovery."""
    interrupted_steps: list[str]
    """Started but not settled before the recovery."""
    effects_before: list[str]
    effects_after: list[str]

    @property
    def is_consistent(self) -> bool:
        """Whether every step had one effect, and only interrupted steps had a second one."""
        before, after = set(self.effects_before), set(self.effects_after)
        once_each = len(before) + len(after) == self.effect_count
        excused = set(self.effects_before[len(self.effects_before) - len(self.interrupted_steps) :])
        return once_each and before & after <= excused and len(before | after) == self.step_count

    @property
    def effect_count(self) -> int:
        return len(self.effects_before) + len(self.effects_after)

    @property
    def step_count(self) -> int:
        return len(self.reused_steps) + len(self.executed_steps)

    def format_lines(self) -> list[str]:
        repeated = [name for name in self.executed_steps if name in self.interrupted_steps]
        cause = f", {', '.join(repeated)} again because it was interrupted" if repeated else ""
        verdict = "no settled step ran twice" if self.is_consistent else "A SETTLED STEP RAN TWICE"
        return [
            f"reused   {count_noun(len(self.reused_steps), 'step')} settled before, from the journal",
            f"ran now  {count_noun(len(self.executed_steps), 'step')}{cause}",
            f"checked  {self.effect_count} lines in effects.log for {count_noun(self.step_count, 'step')}: "
            f"{verdict}",
        ]


def build_crash_report(
    before: Iterable[WorkflowEvent],
    all_events: Iterable[WorkflowEvent],
    effects_before: Sequence[str],
    effects: Sequence[str],
) -> CrashReport:
    """Compare the journal and the effects log before and after the recovery."""
    before_view, after_view = fold_events(before), fold_events(all_events)
    reused = settled_step_names(before_view)
    ran = [name for name in settled_step_names(after_view) if name not in reused]
    return CrashReport(
        reused,
        ran,
        interrupted_step_names(before_view),
        list(effects_before),
        list(effects[len(effects_before) :]),
    )


def settled_step_names(view: RunView) -> list[str]:
    return [node.name for node in view.nodes.values() if not node.is_control and node.state in SETTLED_STATES]


def interrupted_step_names(view: RunView) -> list[str]:
    return [
        node.name for node in view.nodes.values() if not node.is_control and node.state not in SETTLED_STATES
    ]
