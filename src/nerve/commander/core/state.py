"""The Commander state: the data that every screen draws. Screens do not keep copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from nerve.api.models import EventResponse, GateResponse, RunResponse, WorkflowResponse
from nerve.commander.core.blocks import (
    Block,
    BlockConversation,
)
from nerve.commander.core.run_cards import InputTarget, RunCard, gate_from_event
from nerve.core.events import (
    GATE_END_EVENTS,
    LONG_TEXT_EVENTS,
    RUN_END_EVENTS,
    STEP_START_EVENTS,
    WorkflowEvent,
    WorkflowEventType,
)
from nerve.core.json_codec import preview_value
from nerve.lazy_dataclass import dataclass
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.formatting import format_result
from nerve.ui.gate_names import gate_display_name
from nerve.ui.gate_votes import describe_answerers
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.router.run_messages import RunMessages

CARD_NEUTRAL_EVENTS = (
    WorkflowEventType.OUTPUT_CHUNK,
    WorkflowEventType.TOOL_CALL,
    WorkflowEventType.LOG,
    WorkflowEventType.PLAN,
    WorkflowEventType.USAGE,
    WorkflowEventType.CLOCK_READ,
    *STEP_START_EVENTS,
)
"""Events that do not change the card of a run that is not followed."""
SEPARATELY_SHOWN_EVENTS = (*LONG_TEXT_EVENTS, WorkflowEventType.GATE_WAITING)
"""Events about which the router says nothing, because the screen shows them itself."""
MAX_RUN_CARDS = 500
"""Maximum number of cards; the oldest ended runs are dropped first."""


@dataclass(slots=True)
class ChildRun:
    """A child run: the root run and the path that its events belong to."""

    root_run_id: str
    prefix: str | None
    """The path of the call; None if unknown. Only trees need it."""


@dataclass(slots=True)
class CommanderState(BlockConversation):
    """Blocks, runs and gates; `apply_event` receives the events of all runs, in order within each run."""

    project: str = ""
    runs: dict[str, RunCard] = field(default_factory=dict)
    """Top-level runs and followed runs, newest first."""
    gates: list[GateResponse] = field(default_factory=list)
    """Open gates of all runs, oldest first."""
    open_gate_id: str | None = None
    """Id of the gate that the prompt answers."""
    auto_opens_gates: bool = True
    """Whether a gate of the focused run opens in the prompt automatically."""
    is_typing: bool = False
    """Whether the prompt contains text; its gate does not change while it does."""
    answering_gate_ids: set[str] = field(default_factory=set)
    """Ids of gates whose answers are in flight."""
    focused_run_id: str | None = None
    """Id of the focused run, the default of commands that take a run."""
    target: InputTarget | None = None
    """The recipient of plain text; None means the router."""
    queue: list[str] = field(default_factory=list)
    """Texts that wait for the previous turn to end."""
    is_connected: bool = False
    is_project_missing: bool = False
    """Whether the directory has no project, and therefore no server."""
    workflows: list[WorkflowResponse] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    graphs: list[str] = field(default_factory=list)
    queue_names: list[str] = field(default_factory=list)
    """The queues of the session, for completion."""
    on_event: Callable[[WorkflowEvent], None] | None = None
    """Called with each event of a followed run after it was applied."""
    children: dict[str, ChildRun] = field(default_factory=dict)
    """The runs that the card of another run shows: its child runs, and the later runs of its chain."""
    continued_run_ids: set[str] = field(default_factory=set)
    """Ids of runs that a later run of their chain has replaced in the card."""
    _router_messages: dict[str, RunMessages] = field(default_factory=dict)
    _deferred_gate_ids: set[str] = field(default_factory=set)
    """Ids of gates that the user deferred."""
    _is_gate_user_opened: bool = False
    """Whether the user, not the state, opened the current gate."""

    # -- queries -----------------------------------------------------------------------------------------

    def find_gate(self, gate_id: str | None) -> GateResponse | None:
        return next((gate for gate in self.gates if gate.gate_id == gate_id), None)

    def gate_name(self, gate_id: str) -> str:
        """Return the name of a gate that is or was open."""
        gates = [*self.gates, *(block.gate for block in self.blocks if block.gate is not None)]
        return next((gate_display_name(gate) for gate in gates if gate.gate_id == gate_id), gate_id)

    @property
    def focused_run(self) -> RunCard | None:
        return self.runs.get(self.focused_run_id) if self.focused_run_id else None

    def root_of(self, run_id: str) -> str:
        """Return the id of the run whose tree shows a run."""
        child = self.children.get(run_id)
        return child.root_run_id if child is not None else run_id

    # -- changes -----------------------------------------------------------------------------------------

    def set_project_missing(self, is_missing: bool) -> None:
        """Record whether the directory has no project."""
        if is_missing != self.is_project_missing:
            self.is_project_missing = is_missing
            self.raise_flags("connected")

    def focus_run(self, run_id: str | None) -> None:
        """Focus a run."""
        if run_id != self.focused_run_id:
            self.focused_run_id, self._is_gate_user_opened = run_id, False
            self.raise_flags("focus")
            self.select_prompt_gate()

    def open_gate(self, gate_id: str | None) -> None:
        """Open a gate in the prompt, or none."""
        self._is_gate_user_opened = gate_id is not None
        self._deferred_gate_ids.discard(gate_id or "")
        self._set_open_gate(gate_id)

    def defer_gate(self) -> None:
        """Close the gate in the prompt; it does not reopen automatically."""
        if self.open_gate_id is not None:
            self._deferred_gate_ids.add(self.open_gate_id)
            self.open_gate(None)

    def set_typing(self, is_typing: bool) -> None:
        """Record whether the prompt contains text."""
        if is_typing != self.is_typing:
            self.is_typing = is_typing
            self.select_prompt_gate()

    def select_prompt_gate(self) -> None:
        """Open the oldest gate of the focused run that the user did not defer.

        The gate does not change while the user types, or while an answer is in flight and may be rejected.
        """
        if self.is_typing or self.answering_gate_ids:
            return
        gate, card = self.find_gate(self.open_gate_id), self.focused_run
        if gate is not None and (
            self._is_gate_user_opened or self.root_of(gate.run_id) == self.focused_run_id
        ):
            return
        waiting = card.gates if card is not None and self.auto_opens_gates else []
        self._set_open_gate(
            next(
                (
                    waiting_gate.gate_id
                    for waiting_gate in waiting
                    if waiting_gate.gate_id not in self._deferred_gate_ids
                ),
                None,
            )
        )

    def _set_open_gate(self, gate_id: str | None) -> None:
        if gate_id != self.open_gate_id:
            self.open_gate_id = gate_id
            self.raise_flags("opened")

    # -- runs --------------------------------------------------------------------------------------------

    def merge_runs(self, runs: Iterable[RunResponse]) -> None:
        """Merge runs from the API, newest first; a followed run keeps the state of its tree."""
        for run in reversed(list(runs)):
            if self._is_in_card(run.continued_from):
                self._record_next_run(run.run_id, str(run.continued_from))
                self._update_chain(run)
            elif run.parent is not None and run.run_id not in self.runs:
                self._record_child(run.run_id, run.parent, None)
            elif (card := self.runs.get(run.run_id)) is None:
                card = self.runs[run.run_id] = RunCard.from_run(run)
                card.gates = [gate for gate in self.gates if self.root_of(gate.run_id) == run.run_id]
            elif card.tree is None and run.run_id not in self.continued_run_ids:
                card.update_from(run)
            self.mark_changed(run=self.root_of(run.run_id))
        self._sort_and_prune_runs()

    def _is_in_card(self, run_id: str | None) -> bool:
        return run_id is not None and (run_id in self.runs or run_id in self.children)

    def _record_next_run(self, run_id: str, previous: str) -> None:
        """Record the next run of a chain; the card of the first one shows it from now on."""
        self._record_child(run_id, previous, "")
        self.continued_run_ids.add(previous)

    def _update_chain(self, run: RunResponse) -> None:
        """Update the card of a chain from the API, if this is its current run."""
        card = self.runs.get(self.root_of(run.run_id))
        if card is not None and card.tree is None and run.run_id not in self.continued_run_ids:
            started_at = card.started_at
            card.update_from(run)
            card.started_at = started_at or card.started_at

    def _sort_and_prune_runs(self) -> None:
        newest = sorted(self.runs.values(), key=lambda card: card.run_id, reverse=True)
        newest.sort(key=lambda card: card.started_at.timestamp() if card.started_at else 1e18, reverse=True)
        old = {card.run_id for card in newest[MAX_RUN_CARDS:] if card.has_ended and card.tree is None}
        self.runs = {card.run_id: card for card in newest if card.run_id not in old}

    def _record_child(self, child: str, parent: str, path: str | None) -> None:
        """Record that `parent` called `child` at `path`, if the path is known."""
        parent_child = self.children.get(parent)
        root, prefix = (
            (parent_child.root_run_id, parent_child.prefix) if parent_child is not None else (parent, "")
        )
        known = self.children.get(child)
        if known is None or known.prefix is None:
            child_prefix = None if path is None or prefix is None else prefix + path
            self.children[child] = ChildRun(root, child_prefix)

    def show_run(self, run_id: str, routed: bool = False) -> Block:
        """Add a block with a tree for a run; its events must be applied from the first."""
        if (block := self.block_of_run(run_id)) is not None:
            return block
        from nerve.ui.progress_tree import ProgressTree  # not needed for the first prompt

        card = self.runs[run_id]
        card.tree, card.last_seq = ProgressTree(), 0
        block = self._run_blocks[run_id] = self.add_block(
            "run", "", name=card.workflow, run_id=run_id, done=False
        )
        if routed:
            self._router_messages[run_id] = self._create_router_messages(card.workflow)
        self.mark_changed(run=run_id)
        return block

    def has_gap_before(self, run_id: str, seq: int) -> bool:
        """Return whether a followed run misses events before `seq`."""
        last_seq = self.last_seq(run_id)
        return last_seq is not None and seq > last_seq + 1

    def last_seq(self, run_id: str) -> int | None:
        """Return the last event number that the tree of a run has; None if no tree shows the run."""
        child = self.children.get(run_id)
        card = self.runs.get(child.root_run_id if child is not None else run_id)
        prefix = child.prefix if child is not None else ""
        if card is None or card.tree is None or prefix is None:
            return None
        branch = card.tree.branches.get(prefix)
        # A retried call is a new run at the same path, so its events start at 1 again.
        return branch.view.last_seq if branch is not None and branch.run_id == run_id else 0

    def has_seen_end(self, run_id: str) -> bool:
        """Return whether the end of a followed run was applied."""
        card = self.runs[run_id]
        return card.tree is not None and "" in card.tree.branches and card.has_ended

    def runs_in_tree(self, run_id: str) -> list[str]:
        """Return a run, or the current run of its chain, and its known child runs."""
        shown = [
            run_id,
            *(child_id for child_id, child in self.children.items() if child.root_run_id == run_id),
        ]
        return [each for each in shown if each not in self.continued_run_ids]

    # -- events ------------------------------------------------------------------------------------------

    def apply_event(self, event: EventResponse) -> None:
        """Apply one event of any run; events that a tree already has are ignored."""
        self.apply_events([event])

    def apply_events(self, events: Iterable[EventResponse]) -> None:
        """Apply events of one or more runs, in order within each run."""
        roots = {self._apply_event(to_workflow_event(event)) for event in events}
        for root in roots:
            if root in self.runs and self.runs[root].tree is not None:
                self._add_gate_blocks(root)
        self.select_prompt_gate()

    def _apply_event(self, event: WorkflowEvent) -> str:
        data = event.data
        if event.event_type in STEP_START_EVENTS and data.get("child"):
            self._record_child(str(data["child"]), event.run_id, event.path)
        elif event.event_type == WorkflowEventType.STARTED:
            previous = str((data.get("continued_from") or {}).get("run", ""))
            if self._is_in_card(previous):
                self._record_next_run(event.run_id, previous)
            elif data.get("parent"):
                self._record_child(event.run_id, str(data["parent"]), data.get("parent_path"))
        root = self.root_of(event.run_id)
        if event.run_id in self.continued_run_ids:
            return root
        card = self.runs.get(root)
        last_seq = self.last_seq(event.run_id)
        if last_seq is not None and event.seq <= last_seq:
            return root
        if card is None:
            card = RunCard(root, event.workflow_id, started_at=event.timestamp)
            self.runs = {root: card, **self.runs}
            if len(self.runs) > MAX_RUN_CARDS:
                self._sort_and_prune_runs()
        self._apply_gate_event(event, card)
        if last_seq is not None:
            self._apply_to_tree(event, card)
        elif self._is_of_chain(event.run_id):
            card.apply_event(event)
        else:
            card.apply_child_event(event)
        if root == event.run_id:
            card.last_seq = max(card.last_seq, event.seq)
        if last_seq is not None or event.event_type not in CARD_NEUTRAL_EVENTS:
            self.mark_changed(run=root)
        return root

    def _apply_to_tree(self, event: WorkflowEvent, card: RunCard) -> None:
        """Apply an event to the tree and block of a followed run."""
        child = self.children.get(event.run_id)
        prefix = (child.prefix or "") if child is not None else ""
        assert card.tree is not None
        card.tree.apply_event(prefix, event)
        if event.event_type == WorkflowEventType.STARTED and not prefix:
            card.label, card.parent = event.data.get("label"), event.data.get("parent")
            card.input_preview = preview_value(event.data.get("input"))
        if event.event_type not in LONG_TEXT_EVENTS:  # they change nothing of the card
            card.sync_from_tree()
        if (block := self.block_of_run(card.run_id)) is not None:
            block.apply_event(prefix, event)
            router_messages = self._router_messages.get(event.run_id)
            if router_messages is not None and event.event_type not in SEPARATELY_SHOWN_EVENTS:
                for text in router_messages.of(event):
                    block.append_message(text, "router")
            if self._is_of_chain(event.run_id) and card.has_ended:
                self._finish_block(block, card)
            self.mark_changed(block=block)
        if self.on_event is not None:
            self.on_event(event)

    def _is_of_chain(self, run_id: str) -> bool:
        """Return whether a run is the root of its card, or a later run of the chain of that root."""
        child = self.children.get(run_id)
        return child is None or child.prefix == ""

    def _create_router_messages(self, name: str) -> RunMessages:
        from nerve.router.decision import Candidate
        from nerve.router.run_messages import RunMessages

        named = [workflow for workflow in self.workflows if workflow.id == name]
        known = named[0] if named else WorkflowResponse(id=name, kind="")
        return RunMessages(Candidate(name, known.description, steps=tuple(known.steps)))

    def _finish_block(self, block: Block, card: RunCard) -> None:
        if not block.done:
            self.end_block(block)
        block.value = card.result if card.state == "completed" else None
        block.text = (
            format_result(card.result) if card.state == "completed" else card.failure_text or card.state
        )

    # -- gates -------------------------------------------------------------------------------------------

    def replace_gates(self, open_gates: Iterable[GateResponse]) -> None:
        """Replace the open gates by a list from the API, which is newer than the applied events."""
        gates = list(open_gates)
        open_ids = {gate.gate_id for gate in gates}
        for closed_gate in [gate for gate in self.gates if gate.gate_id not in open_ids]:
            self._end_gate(closed_gate, None)
        self.gates = sorted(gates, key=lambda gate: gate.created_at.timestamp() if gate.created_at else 0.0)
        for card in self.runs.values():
            card.gates = []
        for gate in self.gates:
            if (root := self.root_of(gate.run_id)) in self.runs:
                self.runs[root].gates.append(gate)
        for run_id in [followed_id for followed_id, card in self.runs.items() if card.tree is not None]:
            self._add_gate_blocks(run_id)
        self.raise_flags("gates")
        self.select_prompt_gate()

    def _apply_gate_event(self, event: WorkflowEvent, card: RunCard) -> None:
        kind = event.event_type
        if kind == WorkflowEventType.GATE_WAITING:
            gate = gate_from_event(event)
            if self.find_gate(gate.gate_id) is None:
                self.gates.append(gate)
                card.gates.append(gate)
                self.raise_flags("gates")
        elif kind in GATE_END_EVENTS:
            for gate in [
                candidate
                for candidate in self.gates
                if (candidate.run_id, candidate.path) == (event.run_id, event.path)
            ]:
                self._close_gate(gate, card, event.data.get("answer"), describe_answerers(event.data))
        elif kind in RUN_END_EVENTS or kind == WorkflowEventType.PATH_RESET:
            below = f"{event.path}/" if kind == WorkflowEventType.PATH_RESET else ""
            for gate in [candidate for candidate in self.gates if candidate.run_id == event.run_id]:
                if f"{gate.path}/".startswith(below):
                    self._close_gate(gate, card)

    def close_answered_gate(self, gate: GateResponse, answer: Any) -> None:
        """Close a gate that was answered here, before its event arrives."""
        if (card := self.runs.get(self.root_of(gate.run_id))) is not None:
            self._close_gate(gate, card, answer)

    def _close_gate(self, gate: GateResponse, card: RunCard, answer: Any = None, who: str = "") -> None:
        self.gates = [other for other in self.gates if other.gate_id != gate.gate_id]
        card.gates = [other for other in card.gates if other.gate_id != gate.gate_id]
        self._end_gate(gate, answer, who)
        self.raise_flags("gates")

    def _end_gate(self, gate: GateResponse, answer: Any, who: str = "") -> None:
        """Finish a closed gate; tell the user if it was open in the prompt and answered elsewhere."""
        self._deferred_gate_ids.discard(gate.gate_id)
        if self.open_gate_id == gate.gate_id:
            if gate.gate_id not in self.answering_gate_ids:
                by = f" by {sanitize_text(who)}" if who else ""
                outcome = f"was answered elsewhere: {format_result(answer)}{by}"
                self.add_block(
                    "note",
                    f"'{gate_display_name(gate)}' {outcome if answer is not None else 'is closed'}",
                )
            if self.is_typing:
                self.raise_flags("opened")  # a line typed for the gate must not go to the router
            else:
                self.open_gate(None)
        for block in reversed(self.blocks):
            if block.gate is not None and block.gate.gate_id == gate.gate_id and not block.done:
                block.done, block.value = True, answer
                self.mark_changed(block=block)
                break

    def _add_gate_blocks(self, root: str) -> None:
        """Add blocks for the open gates of a followed run."""
        if not self.runs[root].gates:
            return
        shown_gate_ids = {
            shown_block.gate.gate_id
            for shown_block in self.blocks
            if shown_block.gate is not None and not shown_block.done
        }
        for gate in self.runs[root].gates:
            if gate.gate_id not in shown_gate_ids:
                block = self.add_block(
                    "gate", gate.prompt, name=gate_display_name(gate), run_id=gate.run_id, done=False
                )
                block.gate, block.value = gate, None
