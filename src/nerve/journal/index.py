"""JournalIndex: what the events of one run say about it, kept up to date as events are added."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any, NamedTuple

from nerve.core.events import JournalRow
from nerve.core.limits import Limits, RunUsage, split_step_limits
from nerve.journal.events import (
    AgentThreadRecorded,
    CallSettled,
    CallStarted,
    ChildStopped,
    Event,
    FactsCopied,
    GateProgress,
    GateWaiting,
    IterationStarted,
    MessageReceived,
    MessageSent,
    MessageWaiting,
    NodeRetrying,
    PatchEvaluated,
    PathReset,
    RequestAbandoned,
    RunChanged,
    RunEnd,
    RunOnHold,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopping,
    Steered,
    TagsChanged,
    TimerMoved,
    TimerStarted,
    UpdateCompleted,
    WaitOpened,
    abandon_by_stop,
    decode_event,
)
from nerve.journal.mailbox import Mailbox, Message
from nerve.journal.paths import (
    ancestor_paths,
    is_below_leaf,
    is_reset_with,
    is_reset_with_any,
    is_within_step,
)
from nerve.lazy_dataclass import dataclass
from nerve.store.port import EventReader

CALL_ENDS = (CallSettled, RequestAbandoned)
NO_START, NO_LIMITS = RunStarted(), Limits()
"""What an index without events has; shared, because every run begins with one."""


class RecordedEvent(NamedTuple):
    """An event with its place in the journal."""

    seq: int
    at: float
    path: str
    settles: str | None
    event: Event

    @property
    def type(self) -> str:
        return self.event.type


_make_recorded: Callable[[tuple[int, float, str, str | None, Event]], RecordedEvent] = partial(
    tuple.__new__, RecordedEvent
)
"""Build it in C: loading a journal creates more of these than of anything else."""


def read_row(row: JournalRow) -> RecordedEvent:
    return _make_recorded((row.seq, row.at, row.path, row.settles, decode_event(row)))


def read_events(rows: Iterable[JournalRow | RecordedEvent]) -> list[RecordedEvent]:
    """Return the events of rows, each decoded once."""
    return [row if isinstance(row, RecordedEvent) else read_row(row) for row in rows]


def read_limits(start: RunStarted, rows: Iterable[JournalRow]) -> Limits:
    """Return the limits of a run, including raised ones, without reading its other events."""
    limits = Limits.from_recorded(start.limits)
    for row in rows:
        if row.type == RunResumed.type and isinstance(event := decode_event(row), RunResumed):
            limits = limits.with_raised(split_step_limits(event.limits or {})[0])
    return limits


def read_start(store: EventReader, run_id: str) -> RunStarted:
    """Return the start of a run; without values if it has no journal."""
    for row in store.events(run_id, 0, 1):
        if isinstance(event := decode_event(row), RunStarted):
            return event
    return RunStarted()


class PathResets:
    """The resets of a run: the paths that were requested again, with the events of the resets."""

    def __init__(self) -> None:
        self._resets: list[tuple[str, int]] = []

    def add(self, path: str, seq: int) -> None:
        self._resets.append((path, seq))

    def call_key(self, path: str) -> str:
        """Return the key that child run ids derive from: the path of the call, and its last reset."""
        # A reset asks for another child run. Without the reset in the key, the old child's result would be
        # found.
        for reset_path, seq in reversed(self._resets):
            if is_within_step(path, reset_path):
                return f"{path}#{seq}"
        return path

    def settle_key(self, path: str) -> str:
        """Return the settle key of a path: it settles once, and again after each reset in or around it."""
        # The store enforces that a key settles once. A reset inside a step reopens the step, so it needs a
        # new key.
        for reset_path, seq in reversed(self._resets):
            if is_reset_with(path, reset_path) or reset_path.startswith(f"{path}/"):
                return f"{path}#{seq}"
        return path


@dataclass(slots=True)
class ChildCallIndex:
    """The calls of child runs without a recorded outcome: keys of the runs by path of the call."""

    open_calls: dict[str, str] = field(default_factory=dict)
    replaced_calls: list[tuple[str, str]] = field(default_factory=list)
    """Calls that were reset: another run is requested instead, or none."""
    counted_runs: set[str] = field(default_factory=set)
    """The runs whose usage is recorded."""
    unsettled_keys: dict[str, None] = field(default_factory=dict)
    """The keys of all calls without an outcome, including abandoned and replaced ones, in order."""
    started: list[tuple[str, CallStarted]] = field(default_factory=list)
    """The paths and events of all calls of child runs and of leaves with effect="once", in order."""


class ActiveClock:
    """Counts the seconds in which a run is active: not waiting, not paused, and not out of a process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_paused = False
        self.waiting_paths: set[str] = set()
        self._previous_at = math.inf

    def advance(self, at: float, event: Event) -> None:
        """Count the time since the previous event."""
        previous_at, self._previous_at = self._previous_at, at
        if at <= previous_at or self.is_paused or self.waiting_paths:
            return
        # Before a recovery the process was down for an unknown time, which does not count.
        if not (isinstance(event, NodeRetrying) and event.recovered):
            self.seconds += at - previous_at


def is_guard(event: Event) -> bool:
    """Whether an event opens a wait beside the body, for which the run does not count as waiting.

    That is a timer that bounds other steps, or the wait for the next update.
    """
    match event:
        case TimerStarted(guard=guard):
            return guard
        case MessageWaiting(background=background):
            return background
    return False


class JournalIndex:
    """State of a run by its journal. `add` takes the events in order, each once."""

    def __init__(self, rows: Iterable[JournalRow | RecordedEvent] = ()) -> None:
        self.seq = 0
        """The sequence number of the last event."""
        self.start = NO_START
        """The start of the run, with the definition it uses now."""
        self.end: RunEnd | None = None
        self.stopping: RunStopping | None = None
        """Why the body was cancelled and cleans up, if it does."""
        self.hold: RunOnHold | None = None
        """The last event that held the run."""
        self.decisions: dict[str, CallSettled] = {}
        """The decisions on steps in doubt since the run was held, by path."""
        self.limits = NO_LIMITS
        """The limits of the run, including raised ones."""
        self.step_limits: dict[str, dict[str, Any]] = {}
        """The raised budgets of steps, by path."""
        self.usage = RunUsage()
        """What the run has used; copied events were paid for by their own run."""
        self.usage_in_progress: dict[str, Mapping[str, Any]] = {}
        """The usage agents have recorded in steps that have not ended, by path."""
        self.unsettled: dict[str, RecordedEvent] = {}
        """The events of the calls and waits that are not settled, by path."""
        self.unknown_outcomes: set[str] = set()
        """The leaves that were started since their last retry and have no recorded outcome.

        Includes those of the run this one was forked from; a later reset does not make an outcome known.
        """
        self.resets = PathResets()
        self.children = ChildCallIndex()
        self.clock = ActiveClock()
        self.optional_until = 0
        """The last event that is optional: copied by a fork, or older than accepted code changes."""
        self.wait_paths: set[str] = set()
        """The paths of all waits, open or settled."""
        self.mailbox = Mailbox()
        """The messages for the run."""
        self.has_gate = False
        """Whether the run has ever asked a person."""
        self.tags: dict[str, str] = {}
        self.tag_changes: list[tuple[int, TagsChanged]] = []
        """The changes of tags by the body, with their sequence numbers."""
        self.copied_facts: set[str] = set()
        """The copied steps of a fork whose changes of facts it has made for its own id."""
        self.patches: dict[str, bool] = {}
        """The patches that the body has evaluated, and whether it takes their new branches."""
        self._copied_until = 0
        self._control_paths: set[str] = set()
        self._threads: dict[str, AgentThreadRecorded] = {}
        self._timer_moves: dict[str, TimerMoved] = {}
        self._steering: dict[str, list[str]] = {}
        self.add(rows)

    def add(self, rows: Iterable[JournalRow | RecordedEvent]) -> None:
        """Add further events; those up to `seq` are skipped."""
        for row in rows:
            if row.seq > self.seq:
                self._apply(row if isinstance(row, RecordedEvent) else read_row(row))

    # -- questions ---------------------------------------------------------------------------------

    @property
    def open_waits(self) -> dict[str, RecordedEvent]:
        """The events of the open waits, by path.

        Waits below a leaf are not included: a leaf that is not running starts over and opens its own.
        """
        return {
            path: recorded
            for path, recorded in self.unsettled.items()
            if isinstance(recorded.event, WaitOpened) and self.is_open_wait(path)
        }

    def is_open_wait(self, path: str) -> bool:
        """Whether the body has an open wait at a path."""
        recorded = self.unsettled.get(path)
        is_wait = recorded is not None and isinstance(recorded.event, WaitOpened)
        return is_wait and not is_below_leaf(path, OpenLeaves(self.unsettled))

    @property
    def open_gates(self) -> dict[str, tuple[GateWaiting, float]]:
        """The open gates and when they were opened, by path."""
        return {
            path: (recorded.event, recorded.at)
            for path, recorded in self.open_waits.items()
            if isinstance(recorded.event, GateWaiting)
        }

    @property
    def open_child_paths(self) -> list[str]:
        """The paths of the unsettled calls of child runs."""
        return [path for path, recorded in self.unsettled.items() if is_child_call(recorded.event)]

    @property
    def has_running_leaf(self) -> bool:
        """Whether a leaf or child call had started and not ended: it has to run again."""
        return any(
            isinstance(recorded.event, CallStarted) and not recorded.event.is_control
            for recorded in self.unsettled.values()
        )

    def last_thread(self, path: str) -> AgentThreadRecorded | None:
        """Return the last record of the agent of a step since the step started."""
        return self._threads.get(path)

    def last_timer_move(self, path: str) -> TimerMoved | None:
        """Return the last move of a timer since it started."""
        return self._timer_moves.get(path)

    def steering(self, path: str) -> list[str]:
        """Return the messages sent to a step since it started."""
        return list(self._steering.get(path, ()))

    def stop_events(self) -> list[tuple[str, RequestAbandoned]]:
        """Return the paths and events that end open calls and waits when the run stops, innermost first."""
        opened = [(path, recorded.event) for path, recorded in self.unsettled.items()]
        return [
            (path, abandon_by_stop(event))
            for path, event in reversed(opened)
            if isinstance(event, CallStarted | WaitOpened)
        ]

    # -- the fold ----------------------------------------------------------------------------------

    def _apply(self, recorded: RecordedEvent) -> None:
        event, path = recorded.event, recorded.path
        self.seq = recorded.seq
        self.clock.advance(recorded.at, event)
        match event:
            case CallStarted():
                self._open(recorded)
                self._start_call(path, event)
            case CallSettled():
                self._settle_call(path, event)
                self._settle(recorded)
            case WaitOpened():
                self._open(recorded)
                self.wait_paths.add(path)
                if not is_guard(event):
                    self.clock.waiting_paths.add(path)
                self.has_gate = self.has_gate or isinstance(event, GateWaiting)
            case RequestAbandoned():
                self.clock.waiting_paths.discard(path)
                self._settle(recorded)
                # A message that the body did not get before it gave up its wait is not lost.
                self.mailbox.put_back(path)
            case MessageSent():
                self.mailbox.add(Message(recorded.seq, event.channel, event.value, event.key, event.by))
                if event.carried is not None:
                    self.mailbox.carried[event.carried] = recorded.seq
            case MessageReceived():
                self.mailbox.take(event.channel, event.message, path)
                self._settle(recorded)
            case UpdateCompleted():
                self.mailbox.replies[event.message] = (recorded.seq, event)
            case IterationStarted():
                self.usage.iterations += 1
            case NodeRetrying():
                (self.unknown_outcomes.discard if event.again else self.unknown_outcomes.add)(path)
            case AgentThreadRecorded():
                self._threads[path] = event
                self.usage_in_progress[path] = event.usage or {}
            case TimerMoved():
                self._timer_moves[path] = event
            case Steered(text=str() as text):
                self._steering.setdefault(path, []).append(text)
            case PathReset():
                self._reset(path, recorded.seq)
            case ChildStopped():
                self.children.counted_runs.add(event.run_id)
                if recorded.seq > self._copied_until:
                    self.usage.spend(event.usage)
            case RunEnd():
                self.end = event
                # The end of the run settles everything in it.
                self.unsettled.clear()
            case _ if recorded.settles:
                self._settle(recorded)
            case _:
                self._apply_run_event(recorded)

    def _apply_run_event(self, recorded: RecordedEvent) -> None:
        match recorded.event:
            case RunStarted() as start:
                self.start = start
                self.limits = Limits.from_recorded(start.limits)
                self.step_limits |= start.raised or {}
                self.tags = dict(start.tags or {})
                self.optional_until = self._copied_until = start.copied_events
                self.unknown_outcomes |= set(start.unclear_paths)
            case RunStopping() as stopping if recorded.seq > self._copied_until:
                self.stopping = stopping
            case RunPaused():
                self.clock.is_paused = True
            case RunResumed(limits=limits, with_changes=with_changes):
                self.clock.is_paused = False
                run_limits, limits_by_step = split_step_limits(limits or {})
                self.limits = self.limits.with_raised(run_limits)
                for path, step_limits in limits_by_step.items():
                    self.step_limits[path] = {**self.step_limits.get(path, {}), **step_limits}
                if with_changes:
                    self.optional_until = max(self.optional_until, recorded.seq)
            case RunOnHold() as hold:
                self.hold = hold
                self.clock.is_paused = True
                self.decisions.clear()
            case TagsChanged() as change:
                self.tags |= change.tags
                self.tag_changes.append((recorded.seq, change))
            case PatchEvaluated(name=name, active=active):
                self.patches.setdefault(name, active)
            case FactsCopied():
                self.copied_facts.add(recorded.path)
            case RunChanged(definition=definition):
                self.start = replace(self.start, definition=definition)
            case GateProgress() as progress:
                self._add_gate_progress(recorded.path, progress)

    def _open(self, recorded: RecordedEvent) -> None:
        path = recorded.path
        self.unsettled[path] = recorded
        if self._threads or self._timer_moves or self._steering:
            for latest in (self.usage_in_progress, self._threads, self._timer_moves, self._steering):
                latest.pop(path, None)

    def _add_gate_progress(self, path: str, event: GateProgress) -> None:
        # Imported here: few gates have a policy.
        from nerve.journal.gate_progress import with_progress

        if (opened := self.unsettled.get(path)) is not None:
            self.unsettled[path] = opened._replace(event=with_progress(opened.event, event))

    def _start_call(self, path: str, event: CallStarted) -> None:
        if event.is_control:
            self._control_paths.add(path)
            return
        self.usage.steps += 1
        if event.child is not None:
            # With the resets so far, not all of them: a child keeps the id it had when it was called.
            key = self.children.open_calls[path] = self.resets.call_key(path)
            self.children.unsettled_keys[key] = None
            self.clock.waiting_paths.add(path)
            self.children.started.append((path, event))
            return
        self.unknown_outcomes.add(path)
        if event.is_once:
            self.children.started.append((path, event))

    def _settle_call(self, path: str, event: CallSettled) -> None:
        if event.decided is not None:
            self.decisions[path] = event
        if not event.success and path not in self._control_paths:
            self.usage.errors += 1

    def _settle(self, recorded: RecordedEvent) -> None:
        """Close a call or wait, if the event settles it; one that was settled before may be abandoned."""
        if recorded.settles is None:
            return
        path, event, calls = recorded.path, recorded.event, self.children
        self.unsettled.pop(path, None)
        self.clock.waiting_paths.discard(path)
        if self.usage_in_progress:
            self.usage_in_progress.pop(path, None)
        if calls.open_calls:
            calls.open_calls.pop(path, None)
        # An abandoned leaf was cancelled, which says nothing about how far it got.
        if not isinstance(event, RequestAbandoned):
            self.unknown_outcomes.discard(path)
            if calls.unsettled_keys:
                calls.unsettled_keys.pop(self.resets.call_key(path), None)
        usage = event.usage if isinstance(event, CALL_ENDS) else None
        # Copied events were paid for by their own run, and control nodes only pass usage on.
        if usage is not None and recorded.seq > self._copied_until and path not in self._control_paths:
            self.usage.spend(usage)

    def _reset(self, path: str, seq: int) -> None:
        self.resets.add(path, seq)
        self.mailbox.put_back_below(path)
        self.unsettled = {p: opened for p, opened in self.unsettled.items() if not is_within_step(p, path)}
        self.clock.waiting_paths = {p for p in self.clock.waiting_paths if not is_within_step(p, path)}
        calls = self.children
        reset_calls = [call_path for call_path in calls.open_calls if is_within_step(call_path, path)]
        calls.replaced_calls += [(call_path, calls.open_calls.pop(call_path)) for call_path in reset_calls]


EMPTY_JOURNAL = JournalIndex()
"""The index of a journal without events, for reading only."""


class StoredJournal:
    """The events of a run as the store has them, each decoded once, and their index."""

    def __init__(self, rows: Iterable[JournalRow | RecordedEvent]) -> None:
        self.events = read_events(rows)
        self.index = JournalIndex(self.events)


class OpenLeaves:
    """The paths of the running leaves, as a container."""

    def __init__(self, unsettled: Mapping[str, RecordedEvent]) -> None:
        self._unsettled = unsettled

    def __contains__(self, path: object) -> bool:
        recorded = self._unsettled.get(path) if isinstance(path, str) else None
        return recorded is not None and isinstance(recorded.event, CallStarted) and recorded.event.is_leaf


def child_of_call(event: Event) -> str | None:
    """Return the id of the child run that an event starts; None for any other event."""
    return event.child if isinstance(event, CallStarted) else None


def is_child_call(event: Event) -> bool:
    return child_of_call(event) is not None


def is_stopped(recorded: RecordedEvent) -> bool:
    """Whether an event ends a call or wait because its run was stopped."""
    return isinstance(recorded.event, RequestAbandoned) and recorded.event.stopped


def is_ended_with_run(recorded: RecordedEvent) -> bool:
    """Whether an event ends a call or wait because its run has ended, which the body has not seen."""
    return is_stopped(recorded) and recorded.settles is None


def drop_ended_with_run(journal: list[RecordedEvent]) -> list[RecordedEvent]:
    """Return the events without those that ended calls and waits because their run has ended."""
    return [recorded for recorded in journal if recorded.settles is not None or not is_stopped(recorded)]


def drop_undone(journal: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """Return the events without those that were reset, and without what a stop has ended.

    That stays open for a fork, because the body did not abandon it.
    """
    return [recorded for recorded in drop_reset(journal) if not is_stopped(recorded)]


def drop_reset(journal: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """Return the events without those at or below a path reset later, and outcomes of enclosing steps."""
    events = list(journal)
    if PathReset not in {type(recorded.event) for recorded in events}:
        return events  # as most journals have none
    kept: list[RecordedEvent] = []
    reset_paths: set[str] = set()
    paths_around: set[str] = set()
    # From the end: the resets that apply to an event are those seen before it.
    for recorded in reversed(events):
        event, path = recorded.event, recorded.path
        is_undone = bool(reset_paths) and (
            is_reset_with_any(path, reset_paths) or (recorded.settles is not None and path in paths_around)
        )
        if isinstance(event, PathReset):
            reset_paths.add(path)
            paths_around.update(ancestor_paths(path))
        if not is_undone:
            kept.append(recorded)
    kept.reverse()
    return kept
