"""The desk: everything a screen shows, as plain data. Every screen draws it, none keeps a second copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.api.models import EventTold, GateTold, RunTold, WorkflowTold
from nerve.commander.core.blocks import Block, BlockKind, Part, PartKind
from nerve.commander.core.cards import ENDED, RunCard, Target, gate_of
from nerve.commander.core.tree import Tree, event_of
from nerve.commander.core.waits import STARTS
from nerve.core.workflow import WorkflowEvent

__all__ = ["Block", "BlockKind", "Changes", "Desk", "Part", "PartKind", "RunCard", "Target"]

MOST_RUNS = 500
"""Cards that are kept; of more, the oldest that have ended go."""


@dataclass(slots=True)
class Changes:
    """What has changed since a screen looked; taking it once a frame is what makes many events one."""

    blocks: set[int] = field(default_factory=set)
    """Numbers of blocks that are new or different."""
    runs: set[str] = field(default_factory=set)
    """Ids of runs whose cards or trees are different."""
    flags: set[str] = field(default_factory=set)
    """`gates`, `focus`, `target`, `queue`, `connected`, `workflows`, `opened`, `cleared`, `quit`, `theme`, `tui`."""

    def __bool__(self) -> bool:
        return bool(self.blocks or self.runs or self.flags)

    def take(self) -> Changes:
        """What has changed; from now on, nothing has."""
        taken = Changes(self.blocks, self.runs, self.flags)
        self.blocks, self.runs, self.flags = set(), set(), set()
        return taken


@dataclass(slots=True)
class Child:
    """A run that another has called: where its events belong."""

    root: str
    prefix: str


@dataclass(slots=True)
class Desk:
    """Blocks, runs and gates. `take` is fed with the events of all runs, each run's in their order."""

    project: str = ""
    blocks: list[Block] = field(default_factory=list)
    runs: dict[str, RunCard] = field(default_factory=dict)
    """The runs that nobody called, and those that are followed; the newest first."""
    gates: list[GateTold] = field(default_factory=list)
    """All open gates of all runs, the oldest first."""
    opened: str | None = None
    """The id of the gate whose card is open: text that is typed answers it."""
    focus: str | None = None
    """The id of the run that is looked at, and that commands mean if they name none."""
    target: Target | None = None
    """Where plain text goes; None is the router."""
    queue: list[str] = field(default_factory=list)
    """Texts that wait for the turn before them to end."""
    connected: bool = False
    workflows: list[WorkflowTold] = field(default_factory=list)
    changed: Changes = field(default_factory=Changes)
    on_change: Callable[[], None] | None = None
    """Called when something changes after nothing had."""
    children: dict[str, Child] = field(default_factory=dict)

    # -- what a screen asks ------------------------------------------------------------------------------

    def block(self, number: int) -> Block | None:
        return self.blocks[number - 1] if 0 < number <= len(self.blocks) else None

    def block_of(self, run_id: str | None) -> Block | None:
        """The block in which a run is shown."""
        for block in reversed(self.blocks):
            if block.kind == "run" and block.run_id == run_id:
                return block
        return None

    def gate(self, gate_id: str | None) -> GateTold | None:
        return next((gate for gate in self.gates if gate.gate_id == gate_id), None)

    @property
    def focused(self) -> RunCard | None:
        return self.runs.get(self.focus) if self.focus else None

    def root_of(self, run_id: str) -> str:
        """The run in whose tree a run is shown."""
        child = self.children.get(run_id)
        return child.root if child is not None else run_id

    # -- what changes it ---------------------------------------------------------------------------------

    def say(
        self,
        kind: BlockKind,
        text: str,
        *,
        name: str = "",
        run_id: str | None = None,
        value: Any = None,
        done: bool = True,
    ) -> Block:
        """Put a new block at the end."""
        value = text if value is None and kind != "run" else value
        block = Block(len(self.blocks) + 1, kind, text, name, run_id, value, done=done)
        self.blocks.append(block)
        self.touch(block=block)
        return block

    def flag(self, *names: str) -> None:
        self._changing()
        self.changed.flags.update(names)

    def touch(self, block: Block | None = None, run: str | None = None) -> None:
        self._changing()
        if block is not None:
            self.changed.blocks.add(block.number)
        if run is not None:
            self.changed.runs.add(run)

    def _changing(self) -> None:
        if self.on_change is not None and not self.changed:
            self.on_change()

    def look_at(self, run_id: str | None) -> None:
        """Put the focus on a run."""
        if run_id != self.focus:
            self.focus = run_id
            self.flag("focus")

    def open_gate(self, gate_id: str | None) -> None:
        """Open the card of a gate, or close it: what is typed then is its answer."""
        if gate_id != self.opened:
            self.opened = gate_id
            self.flag("opened")

    def list_runs(self, told: Iterable[RunTold]) -> None:
        """Take in the list of runs, the newest first."""
        raise NotImplementedError

    def list_gates(self, told: Iterable[GateTold]) -> None:
        """Take in the list of all open gates."""
        raise NotImplementedError

    def follow(self, run_id: str) -> Block:
        """Show a run in a block, with its tree, from its first event on."""
        raise NotImplementedError

    def take(self, told: EventTold) -> None:
        """Take in one event of any run."""
        raise NotImplementedError
