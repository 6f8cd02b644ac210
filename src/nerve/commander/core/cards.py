"""Cards: what a list shows of a run. One that is not followed costs no more than its card."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from nerve.api.models import GateTold, RunTold
from nerve.commander.core.tree import Tree
from nerve.commander.core.waits import CLOSES, ENDS, OPENS
from nerve.core.event import OF_THE_RUN, WorkflowEvent
from nerve.core.limits import Usage
from nerve.core.values import first_words

TargetKind = Literal["node", "graph", "workflow", "router"]
PREFIXES: dict[str, TargetKind] = {"@": "node", "#": "graph", "%": "workflow"}
ENDED = ("completed", "failed", "cancelled")
SHORTEST = 4
"""Characters of the end of an id that name a run, at least."""
ID_SHOWN = 6
"""Characters of an id that are shown: one in 16 million is the same."""
LIVE = ("pending", "running", "waiting", "pausing", "paused", "stopping", "held")


@dataclass(frozen=True, slots=True)
class Target:
    """Where plain text goes."""

    kind: TargetKind = "router"
    name: str = ""

    def __str__(self) -> str:
        prefix = next((sign for sign, kind in PREFIXES.items() if kind == self.kind), "")
        return f"{prefix}{self.name}" if prefix else "router"


@dataclass(slots=True, eq=False)
class RunCard:
    """A run in the list; of a followed one `tree` is there, too."""

    run_id: str
    workflow: str
    label: str | None = None
    about: str = ""
    """The first words of the input."""
    state: str = "running"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    held: dict[str, Any] | None = None
    gates: list[GateTold] = field(default_factory=list)
    """Its open gates, and those of the runs it called."""
    usage: Usage = field(default_factory=Usage)
    parent: str | None = None
    tree: Tree | None = None
    last_seq: int = 0
    """The last event that was taken in; of a followed run none before it is missing."""

    @classmethod
    def of(cls, run: RunTold) -> RunCard:
        card = cls(run.run_id, run.workflow)
        card.read(run)
        return card

    def read(self, run: RunTold) -> None:
        """How the api tells the run, which is newer than anything taken in so far."""
        self.label, self.state, self.parent = run.label, run.state, run.parent or self.parent
        self.about = run.input_preview or self.about
        self.started_at, self.ended_at = run.started_at, run.ended_at
        self.error, self.held = run.error, run.held
        if run.result is not None:  # a list leaves large ones out
            self.result = run.result

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.label or self.workflow

    @property
    def short_id(self) -> str:
        """The end of the id, which is random; its beginning is the clock."""
        return short_id(self.run_id)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def moves(self) -> bool:
        """Whether something goes on in it without anybody doing anything."""
        return self.state in ("pending", "running", "pausing", "stopping")

    def take(self, event: WorkflowEvent) -> None:
        """Take in an event of a run that is not followed."""
        type, data = event.event_type, event.data
        if type in OF_THE_RUN:
            self._lifecycle(event, type.removeprefix("workflow_"))
        elif type in OPENS and self.state == "running" and not data.get("guard"):
            self.state = "waiting"
        elif type in CLOSES and self.state == "waiting" and not data.get("guard") and not self.gates:
            self.state = "running"
        elif type in ENDS and isinstance(result := data.get("result"), dict):
            self.usage.spend(None if data.get("control") else (result.get("attributes") or {}).get("usage"))

    def _lifecycle(self, event: WorkflowEvent, what: str) -> None:
        data = event.data
        if what == "started":
            self.state, self.started_at = "running", event.timestamp
            self.label, self.parent = data.get("label") or self.label, data.get("parent") or self.parent
            self.about = first_words(data.get("input"))
        elif what in ENDED:
            self.state, self.ended_at, self.gates, self.held = what, event.timestamp, [], None
            self.result = data.get("result")
            self.error = data.get("error") or data.get("reason") or None
        elif what == "held":
            self.state, self.held = "held", data
        elif what == "paused":
            self.state = "paused"
        elif what == "resumed":
            self.state, self.held = "waiting" if self.gates else "running", None

    def look(self) -> None:
        """Be as the tree is."""
        if self.tree is None or "" not in self.tree.branches:
            return
        view = self.tree.root.view
        self.state, self.started_at, self.ended_at = view.state, view.started_at, view.ended_at
        self.result, self.error, self.held = view.result, view.error, view.held
        self.usage = self.tree.root.view.usage
        if self.state == "running":
            states = {each.view.state for each in self.tree.branches.values()}
            self.state = next((state for state in ("held", "waiting") if state in states), "running")


def short_id(run_id: str) -> str:
    """As much of the end of a run's id as tells runs apart."""
    return run_id[-ID_SHOWN:]


def gate_of(event: WorkflowEvent) -> GateTold:
    """The gate that an event opens."""
    about = {"run_id": event.run_id, "workflow": event.workflow_id, "path": event.path}
    return GateTold.model_validate({**event.data, **about, "created_at": event.timestamp})
