"""The desk: everything a screen shows, as plain data. Every screen draws it, none keeps a second copy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nerve.api.models import EventTold, GateTold, RunTold, WorkflowTold
from nerve.commander.core.blocks import Block, BlockKind, Part, PartKind
from nerve.commander.core.cards import RunCard, Target, gate_of
from nerve.commander.core.conversation import Changes, Conversation
from nerve.commander.core.gates import name_of
from nerve.commander.core.messages import Messages
from nerve.commander.core.tree import Tree, event_of
from nerve.commander.core.waits import STARTS
from nerve.core.event import ENDS as RUN_ENDS
from nerve.core.event import WorkflowEvent
from nerve.core.values import first_words

__all__ = ["Block", "BlockKind", "Changes", "Desk", "Part", "PartKind", "RunCard", "Target"]

GATE_ENDS = ("gate_answered", "gate_timeout", "gate_cancelled")
QUIET = ("output_chunk", "tool_call", "log", "plan", "usage", "clock_read", "node_started", "step_started")
"""Events after which the card of a run that is not followed looks the same."""
MOST_RUNS = 500
"""Cards that are kept; of more, the oldest that have ended go."""


@dataclass(slots=True)
class Child:
    """A run that another has called: where its events belong."""

    root: str
    prefix: str | None
    """The path of the call; None if it is not known, which only a tree needs."""


@dataclass(slots=True)
class Desk(Conversation):
    """Blocks, runs and gates. `take` is fed with the events of all runs, each run's in their order."""

    project: str = ""
    runs: dict[str, RunCard] = field(default_factory=dict)
    """The runs that nobody called, and those that are followed; the newest first."""
    gates: list[GateTold] = field(default_factory=list)
    """All open gates of all runs, the oldest first."""
    opened: str | None = None
    """The id of the gate that the prompt is for: the line that is typed answers it."""
    opens_gates: bool = True
    """Whether a gate of the watched run takes the prompt by itself."""
    typing: bool = False
    """Whether a line is being typed: the gate that it is for does not change meanwhile."""
    answering: set[str] = field(default_factory=set)
    """The ids of gates to which an answer is under way from here."""
    focus: str | None = None
    """The id of the run that is looked at, and that commands mean if they name none."""
    target: Target | None = None
    """Where plain text goes; None is the router."""
    queue: list[str] = field(default_factory=list)
    """Texts that wait for the turn before them to end."""
    connected: bool = False
    empty: bool = False
    """Whether the folder has no project, and therefore no server."""
    workflows: list[WorkflowTold] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    graphs: list[str] = field(default_factory=list)
    on_event: Callable[[WorkflowEvent], None] | None = None
    """Called with each event of a run that is followed, when it was taken in."""
    children: dict[str, Child] = field(default_factory=dict)
    _messages: dict[str, Messages] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)
    """The ids of gates that the user left for later."""
    _chosen: bool = False
    """Whether the user opened the gate that the prompt is for, and not the desk."""

    # -- what a screen asks ------------------------------------------------------------------------------

    def gate(self, gate_id: str | None) -> GateTold | None:
        return next((gate for gate in self.gates if gate.gate_id == gate_id), None)

    def gate_name(self, gate_id: str) -> str:
        """What a gate that is or was open is called."""
        asked = [*self.gates, *(block.gate for block in self.blocks if block.gate is not None)]
        return next((name_of(gate) for gate in asked if gate.gate_id == gate_id), gate_id)

    @property
    def focused(self) -> RunCard | None:
        return self.runs.get(self.focus) if self.focus else None

    def root_of(self, run_id: str) -> str:
        """The run in whose tree a run is shown."""
        child = self.children.get(run_id)
        return child.root if child is not None else run_id

    # -- what changes it ---------------------------------------------------------------------------------

    def set_empty(self, empty: bool) -> None:
        """Note whether there is a project in the folder."""
        if empty != self.empty:
            self.empty = empty
            self.flag("connected")

    def look_at(self, run_id: str | None) -> None:
        """Put the focus on a run: it is the one that the user watches."""
        if run_id != self.focus:
            self.focus, self._chosen = run_id, False
            self.flag("focus")
            self.attend_gate()

    def open_gate(self, gate_id: str | None) -> None:
        """Make the prompt that of a gate, or of none."""
        self._chosen = gate_id is not None
        self._left.discard(gate_id or "")
        self._set_opened(gate_id)

    def leave_gate(self) -> None:
        """Leave the gate that the prompt is for: it does not take the prompt again by itself."""
        if self.opened is not None:
            self._left.add(self.opened)
            self.open_gate(None)

    def set_typing(self, typing: bool) -> None:
        """Note whether there is text in the prompt."""
        if typing != self.typing:
            self.typing = typing
            self.attend_gate()

    def attend_gate(self) -> None:
        """Make the prompt that of the oldest gate of the watched run that the user did not leave.

        A line that is being typed keeps its gate, and so does an answer on its way, which may be refused.
        """
        if self.typing or self.answering:
            return
        gate, card = self.gate(self.opened), self.focused
        if gate is not None and (self._chosen or self.root_of(gate.run_id) == self.focus):
            return
        waiting = card.gates if card is not None and self.opens_gates else []
        self._set_opened(next((each.gate_id for each in waiting if each.gate_id not in self._left), None))

    def _set_opened(self, gate_id: str | None) -> None:
        if gate_id != self.opened:
            self.opened = gate_id
            self.flag("opened")

    # -- runs --------------------------------------------------------------------------------------------

    def list_runs(self, told: Iterable[RunTold]) -> None:
        """Take in runs as the api tells them, the newest first; a followed one is as its tree is."""
        for run in reversed(list(told)):
            if run.parent is not None and run.run_id not in self.runs:
                self._call(run.run_id, run.parent, None)
            elif (card := self.runs.get(run.run_id)) is None:
                card = self.runs[run.run_id] = RunCard.of(run)
                card.gates = [gate for gate in self.gates if self.root_of(gate.run_id) == run.run_id]
            elif card.tree is None:
                card.read(run)
            self.touch(run=run.run_id)
        self._order()

    def _order(self) -> None:
        newest = sorted(self.runs.values(), key=lambda card: card.run_id, reverse=True)
        newest.sort(key=lambda card: card.started_at.timestamp() if card.started_at else 1e18, reverse=True)
        old = {card.run_id for card in newest[MOST_RUNS:] if card.ended and card.tree is None}
        self.runs = {card.run_id: card for card in newest if card.run_id not in old}

    def _call(self, child: str, parent: str, path: str | None) -> None:
        """A run has called another; `path` says where, if that is known."""
        above = self.children.get(parent)
        root, prefix = (above.root, above.prefix) if above is not None else (parent, "")
        known = self.children.get(child)
        if known is None or known.prefix is None:
            place = None if path is None or prefix is None else prefix + path
            self.children[child] = Child(root, place)

    def follow(self, run_id: str, routed: bool = False) -> Block:
        """Show a run in a block, with its tree; its events are then taken in from the first on."""
        if (block := self.block_of(run_id)) is not None:
            return block
        card = self.runs[run_id]
        card.tree, card.last_seq = Tree(), 0
        block = self._shown[run_id] = self.say("run", "", name=card.workflow, run_id=run_id, done=False)
        if routed:
            self._messages[run_id] = Messages.of(card.workflow, self.workflows)
        self.touch(run=run_id)
        return block

    def behind(self, run_id: str, seq: int) -> bool:
        """Whether events before this one are missing of a run that is followed."""
        seen = self.seen(run_id)
        return seen is not None and seq > seen + 1

    def seen(self, run_id: str) -> int | None:
        """The last event of a run that its tree has; None if no tree shows it."""
        child = self.children.get(run_id)
        card = self.runs.get(child.root if child is not None else run_id)
        prefix = child.prefix if child is not None else ""
        if card is None or card.tree is None or prefix is None:
            return None
        branch = card.tree.branches.get(prefix)
        # Another attempt of a call is another run at the same place.
        return branch.view.last_seq if branch is not None and branch.run_id == run_id else 0

    def is_over(self, run_id: str) -> bool:
        """Whether a run that is followed was seen to its end."""
        card = self.runs[run_id]
        return card.tree is not None and "" in card.tree.branches and card.ended

    def shown_in(self, run_id: str) -> list[str]:
        """A run and those that it has called, as far as its tree can show them."""
        return [run_id, *(each for each, child in self.children.items() if child.root == run_id)]

    # -- events ------------------------------------------------------------------------------------------

    def take(self, told: EventTold) -> None:
        """Take in one event of any run. What a tree has seen already changes nothing."""
        self.take_all([told])

    def take_all(self, told: Iterable[EventTold]) -> None:
        """Take in events of one or more runs, each run's in their order."""
        roots = {self._take(event_of(each)) for each in told}
        for root in roots:
            if root in self.runs and self.runs[root].tree is not None:
                self._ask(root)
        self.attend_gate()

    def _take(self, event: WorkflowEvent) -> str:
        self._calls(event)
        root = self.root_of(event.run_id)
        card = self.runs.get(root)
        seen = self.seen(event.run_id)
        if seen is not None and event.seq <= seen:
            return root
        if card is None:
            card = self._new(event, root)
        self._gate(event, card)
        if seen is not None:
            self._grow(event, card)
        elif event.run_id == root:
            card.take(event)
        if root == event.run_id:
            card.last_seq = max(card.last_seq, event.seq)
        if seen is not None or event.event_type not in QUIET:
            self.touch(run=root)
        return root

    def _new(self, event: WorkflowEvent, root: str) -> RunCard:
        card = RunCard(root, event.workflow_id, started_at=event.timestamp)
        self.runs = {root: card, **self.runs}
        if len(self.runs) > MOST_RUNS:
            self._order()
        return card

    def _calls(self, event: WorkflowEvent) -> None:
        data = event.data
        if event.event_type in STARTS and data.get("child"):
            self._call(str(data["child"]), event.run_id, event.path)
        elif event.event_type == "workflow_started" and data.get("parent"):
            self._call(event.run_id, str(data["parent"]), data.get("parent_path"))

    def _grow(self, event: WorkflowEvent, card: RunCard) -> None:
        """Take in an event of a run that is followed."""
        child = self.children.get(event.run_id)
        prefix = (child.prefix or "") if child is not None else ""
        assert card.tree is not None
        branch = card.tree.branches.get(prefix)
        if branch is not None and branch.run_id != event.run_id:
            del card.tree.branches[prefix]
        card.tree.take(prefix, event)
        if event.event_type == "workflow_started" and not prefix:
            card.label, card.parent = event.data.get("label"), event.data.get("parent")
            card.about = first_words(event.data.get("input"))
        card.look()
        if (block := self.block_of(card.run_id)) is not None:
            block.take(prefix, event)
            self._tell(block, event)
            if event.run_id == card.run_id and card.ended:
                self._over(block, card)
            self.touch(block=block)
        if self.on_event is not None:
            self.on_event(event)

    def _tell(self, block: Block, event: WorkflowEvent) -> None:
        """What the router says of the run that it has started."""
        if (messages := self._messages.get(block.run_id or "")) is not None and event.run_id == block.run_id:
            for text in messages.take(event):
                block.tell(text, "router")

    def _over(self, block: Block, card: RunCard) -> None:
        if not block.done:
            self.end(block)
        block.value = card.result if card.state == "completed" else None
        block.text = text_of(card.result) if card.state == "completed" else str(card.error or card.state)

    # -- gates -------------------------------------------------------------------------------------------

    def list_gates(self, told: Iterable[GateTold]) -> None:
        """Take in the list of all open gates, which is newer than anything taken in so far."""
        gates = list(told)
        now = {gate.gate_id for gate in gates}
        for gone in [gate for gate in self.gates if gate.gate_id not in now]:
            self._settle(gone, None)
        self.gates = sorted(gates, key=opened_at)
        for card in self.runs.values():
            card.gates = []
        for gate in self.gates:
            if (root := self.root_of(gate.run_id)) in self.runs:
                self.runs[root].gates.append(gate)
        for run_id in [each for each, card in self.runs.items() if card.tree is not None]:
            self._ask(run_id)
        self.flag("gates")
        self.attend_gate()

    def _gate(self, event: WorkflowEvent, card: RunCard) -> None:
        kind = event.event_type
        if kind == "gate_waiting":
            gate = gate_of(event)
            if self.gate(gate.gate_id) is None:
                self.gates.append(gate)
                card.gates.append(gate)
                self.flag("gates")
        elif kind in GATE_ENDS:
            for gate in [
                each for each in self.gates if (each.run_id, each.path) == (event.run_id, event.path)
            ]:
                self._close(gate, card, event.data.get("answer"))
        elif kind in RUN_ENDS or kind == "path_reset":
            below = f"{event.path}/" if kind == "path_reset" else ""
            for gate in [each for each in self.gates if each.run_id == event.run_id]:
                if f"{gate.path}/".startswith(below):
                    self._close(gate, card)

    def answered(self, gate: GateTold, answer: Any) -> None:
        """A gate was answered here; its event says so, too, a moment later."""
        if (card := self.runs.get(self.root_of(gate.run_id))) is not None:
            self._close(gate, card, answer)

    def _close(self, gate: GateTold, card: RunCard, answer: Any = None) -> None:
        self.gates = [each for each in self.gates if each.gate_id != gate.gate_id]
        card.gates = [each for each in card.gates if each.gate_id != gate.gate_id]
        self._settle(gate, answer)
        self.flag("gates")

    def _settle(self, gate: GateTold, answer: Any) -> None:
        """A gate is not open any more, wherever it was answered; the user who answers it is notified."""
        self._left.discard(gate.gate_id)
        if self.opened == gate.gate_id:
            if gate.gate_id not in self.answering:
                how = f"was answered elsewhere: {text_of(answer)}"
                self.say(
                    "note", f"'{name_of(gate)}' {how if answer is not None else 'is not asked any more'}"
                )
            if self.typing:
                self.flag("opened")  # the line that is typed for it must not become one for the router
            else:
                self.open_gate(None)
        block = next((each for each in reversed(self.blocks) if is_open(each, gate.gate_id)), None)
        if block is not None:
            block.done, block.value = True, answer
            self.touch(block=block)

    def _ask(self, root: str) -> None:
        """Put the open gates of a followed run into the conversation."""
        if not self.runs[root].gates:
            return
        asked = {each.gate.gate_id for each in self.blocks if each.gate is not None and not each.done}
        for gate in self.runs[root].gates:
            if gate.gate_id not in asked:
                block = self.say("gate", gate.prompt, name=name_of(gate), run_id=gate.run_id, done=False)
                block.gate, block.value = gate, None


def is_open(block: Block, gate_id: str) -> bool:
    return block.gate is not None and block.gate.gate_id == gate_id and not block.done


def opened_at(gate: GateTold) -> float:
    return gate.created_at.timestamp() if gate.created_at is not None else 0.0


def text_of(result: Any) -> str:
    """A result as text: a text as it is, nothing for nothing, anything else as JSON."""
    if result is None or isinstance(result, str):
        return result or ""
    return json.dumps(result, ensure_ascii=False, indent=2, default=str)
