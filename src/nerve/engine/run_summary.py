"""What lists show of a run: written with its events, so that no list has to read its journal."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from nerve.core.events import WorkflowEventType
from nerve.core.json_codec import decode_json, encode_json
from nerve.core.limits import RunUsage
from nerve.core.step_names import plain_step_path
from nerve.core.usage_ledger import UsageEntry, UsageLedger
from nerve.journal.events import (
    CallSettled,
    CallStarted,
    ChildStopped,
    EmittedEvent,
    Event,
    GateProgress,
    PatchEvaluated,
    PathReset,
    ProviderLimited,
    ProviderOpen,
    RequestAbandoned,
    RunCompleted,
    RunOnHold,
    RunResumed,
    RunStarted,
    StateEntered,
    TagsChanged,
    UsageReported,
    WaitOpened,
    decode_event,
    event_from_data,
)
from nerve.journal.index import RecordedEvent, StoredJournal, is_guard
from nerve.journal.paths import ROOT_PATH, is_below_leaf, is_within_step
from nerve.lazy_dataclass import dataclass
from nerve.store.port import (
    CHAIN_KIND,
    PATCH_KIND,
    TAG_KIND,
    Append,
    EventRow,
    RunRow,
    StepUsageRow,
    Store,
    TagRow,
    UsageRow,
    WaitRow,
)

GATE_KIND, LEAF_GATE_KIND = "gate", "leaf_gate"
SIGNAL_KIND, MESSAGE_KIND, TIMER_KIND, QUEUE_KIND = "signal", "message", "timer", "queue"
"""The kinds of stored waits. A leaf gate is open only as long as its leaf runs."""
PROVIDER_LIMIT_KIND = "provider_limit"
"""The kind under which the limit of a provider is stored; in place of a run it names the provider."""
KIND_BY_EVENT: dict[str, str] = {
    WorkflowEventType.GATE_WAITING: GATE_KIND,
    WorkflowEventType.SIGNAL_WAITING: SIGNAL_KIND,
    WorkflowEventType.MESSAGE_WAITING: MESSAGE_KIND,
    WorkflowEventType.TIMER_STARTED: TIMER_KIND,
    WorkflowEventType.QUEUE_WAITING: QUEUE_KIND,
}
ALL_MODELS = ""
"""The model under which the usage is stored that counts against budgets."""
WHOLE_RUN = ""
"""The step under which the number of runs of a workflow that used something is stored."""
STEP_USAGE_SINCE = "step_usage_since"
"""The property of a store with the time since which it has usage by step; not set if it always had it."""

EVENT_BY_KIND = {kind: type for type, kind in KIND_BY_EVENT.items()} | {
    LEAF_GATE_KIND: WorkflowEventType.GATE_WAITING
}

EMITTED_TYPES = frozenset(
    {
        WorkflowEventType.USAGE,
        WorkflowEventType.STATE_ENTERED,
        WorkflowEventType.PROVIDER_LIMITED,
        WorkflowEventType.PROVIDER_OPEN,
    }
)
"""The events that nodes emit as plain data, and that count here."""


SETTLED_CALLS = (CallSettled, RequestAbandoned)
UNNAMED_STEP_MARKS = "/~[_"
"""The characters after the first "/" in the paths of steps that users do not name."""
NO_TAGS: Mapping[Any, Any] = MappingProxyType({})

split_step_name = re.compile(r"[/~[]").split


@lru_cache(1000)
def name_of_top_step(path: str) -> str:
    """Return the name of the top-level step of a path, cached because many runs have the same steps."""
    return split_step_name(path[1:], 1)[0]


class RunPosition:
    """Where a run is: the state of its state machine, or else its current top-level step."""

    __slots__ = ("_name", "_path", "machine")

    def __init__(self, step: str | None = None, machine: str | None = None) -> None:
        self.machine = machine
        """The path of the outermost state machine it is in."""
        self._name, self._path = step, ""

    @property
    def step(self) -> str | None:
        return self._name if not self._path else name_of_top_step(self._path)

    def on_step_started(self, path: str) -> None:
        """Note a step that starts at a path."""
        if path[1:2] in UNNAMED_STEP_MARKS:
            return
        # Steps inside a machine are details of its state; the state is what users watch.
        if self.machine is None or not is_within_step(path, self.machine):
            self.machine, self._path = None, path

    def on_state_entered(self, machine: str, state: str) -> None:
        if self.machine is None or machine == self.machine or not is_within_step(machine, self.machine):
            self.machine, self._name, self._path = machine, state, ""


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """The summary in the row of a run."""

    step: str | None = None
    machine: str | None = None
    parent_path: str | None = None
    """The path of the call that started it, if it is a child run."""
    usage: dict[str, float] = field(default_factory=dict)
    hold: dict[str, Any] | None = None
    """Why it is held, if it is."""
    tags: dict[str, str] = field(default_factory=dict)
    chain: str | None = None
    """The first run of its chain, if it is a later one."""
    continued_from: str | None = None
    """The previous run of its chain."""
    continued_as: str | None = None
    """The next run of its chain, if it continued as new."""
    started_by: str | None = None
    started_via: str | None = None

    def find_starter(self, row: RunRow) -> str | None:
        """Return the identity that started the run of a row: `run:ID` for a child run."""
        return f"run:{row.parent}" if row.parent else self.started_by

    @classmethod
    def of_row(cls, row: RunRow) -> StoredSummary | None:
        """Return the summary of a run; None for a row that an earlier version wrote."""
        return None if row.summary is None else cls(**decode_json(row.summary))


class SummaryChanges(NamedTuple):
    """What lists show besides the summary, as far as it has changed."""

    waits: list[WaitRow]
    usage: list[UsageRow]
    step_usage: list[StepUsageRow]
    tags: list[TagRow]


class RunSummary:
    """The summary of a run, and the changes of waits and usage that are not stored yet."""

    running_leaves: Container[str] = ()
    """The paths of the leaves that run now."""
    has_changes = False
    """Whether waits, usage or tags have changed since they were stored."""
    _parent_path: str | None = None
    _hold: dict[str, Any] | None = None
    _copied_until = 0
    _steps_with_usage: frozenset[str] = frozenset()
    """The steps, and the whole run, that are counted among those that used something."""
    _used_at = 0.0
    _usage: RunUsage | None = None
    _spent: RunUsage | None = None
    """What was used since the last write; like the usage, None until something was used."""
    _chain: str | None = None
    _continued_from: str | None = None
    _continued_as: str | None = None
    _starter: tuple[str | None, str | None] = None, None
    # Without items until the first one comes: a short run has none of these.
    _ledger: UsageLedger | None = None
    _tags: Mapping[str, str] = NO_TAGS
    _changed_tags: Mapping[tuple[str, str], TagRow] = NO_TAGS
    _provider_changes: Sequence[tuple[str, float, ProviderLimited | None]] = ()

    def __init__(self, run_id: str, events: Iterable[RecordedEvent] = ()) -> None:
        self.run_id = run_id
        self._position = RunPosition()
        self._open_waits: dict[str, RecordedEvent] = {}
        self._changed_paths: dict[str, None] = {}
        # Dicts in place of sets: the garbage collector need not visit them while they are empty.
        self._stored_paths: dict[str, None] = {}
        self._control_paths: dict[str, None] = {}
        if events:
            for recorded in events:
                self.add(*recorded)
            # What the journal has was stored with its events.
            self._stored_paths = dict.fromkeys(self._open_waits)
            self.take_changes("", "")

    def add(self, seq: int, at: float, path: str, settles: str | None, event: Event) -> None:
        """Take the next event of the journal into account."""
        # Starts and ends of calls first: they are most of a journal.
        if isinstance(event, CallStarted):
            self._position.on_step_started(path)
            if event.is_control:
                self._control_paths[path] = None
        # A cheap filter, as in the event itself: few steps report their usage.
        elif isinstance(event, CallSettled) and '"usage"' not in event.result_json:
            if settles is not None and path in self._open_waits:
                self._close(path)
        elif isinstance(event, SETTLED_CALLS):
            if settles is None:
                return
            if path in self._open_waits:
                self._close(path)
            used = event.usage
            if used is not None and seq > self._copied_until and path not in self._control_paths:
                self._spend(at, path, event, used)
        elif isinstance(event, WaitOpened):
            if not is_guard(event):
                self._position.on_step_started(path)
                self._open_waits[path] = RecordedEvent(seq, at, path, settles, event)
                self._note_changed(path)
        elif settles == ROOT_PATH:
            # The store closes the waits of a run that has ended.
            self._open_waits, self._changed_paths, self._hold = {}, {}, None
            if isinstance(event, RunCompleted):
                self._continued_as = event.continued_as
        elif settles is not None:
            if path in self._open_waits:
                self._close(path)
        else:
            self._add_other(seq, at, path, event)

    def _add_other(self, seq: int, at: float, path: str, event: Event) -> None:
        match event:
            case RunStarted():
                self._parent_path, self._copied_until = event.parent_path, event.copied_events
                self._starter = event.starter
                if event.tags:
                    self._set_tags(at, event.tags)
                if event.previous_run is not None:
                    self._chain, self._continued_from = event.chain, event.previous_run
                    self._change_tag(CHAIN_KIND, CHAIN_KIND, event.chain, at)
            case StateEntered(state=str() as name):
                self._position.on_state_entered(path, name)
            case UsageReported() if seq > self._copied_until:
                self._used_at = at
                self._open_ledger().add_turn(path, event.extra)
            case ChildStopped() if seq > self._copied_until:
                self._usage = RunUsage.of(event.usage, self._usage)
            case ProviderLimited(provider=str() as provider):
                self._change_provider(provider, at, event)
            case ProviderOpen(provider=str() as provider, over=True):
                self._change_provider(provider, at, None)
            case PathReset():
                for open_path in [each for each in self._open_waits if is_within_step(each, path)]:
                    self._close(open_path)
            case TagsChanged():
                self._set_tags(at, event.tags)
            case PatchEvaluated():
                self._change_tag(PATCH_KIND, event.name, "true" if event.active else "false", at)
            case RunOnHold():
                self._hold = event.to_data()
            case RunResumed():
                self._hold = None
            case EmittedEvent(type=type, data=data) if type in EMITTED_TYPES:
                self._add_other(seq, at, path, event_from_data(type, data))
            case GateProgress():
                self._add_gate_progress(path, event)

    def _add_gate_progress(self, path: str, event: GateProgress) -> None:
        # Imported here: few gates have a policy.
        from nerve.journal.gate_progress import with_progress

        if (opened := self._open_waits.get(path)) is not None:
            self._open_waits[path] = opened._replace(event=with_progress(opened.event, event))
            self._note_changed(path)

    def _change_provider(self, provider: str, at: float, limit: ProviderLimited | None) -> None:
        self._provider_changes = [*self._provider_changes, (provider, at, limit)]
        self.has_changes = True

    def _set_tags(self, at: float, tags: dict[str, str]) -> None:
        self._tags = {**self._tags, **tags}
        for name, value in tags.items():
            self._change_tag(TAG_KIND, name, value, at)

    def _change_tag(self, kind: str, name: str, value: str, at: float) -> None:
        self._changed_tags = {**self._changed_tags, (kind, name): TagRow(kind, name, value, at)}
        self.has_changes = True

    def _open_ledger(self) -> UsageLedger:
        """Return the ledger to add usage to, which is a change."""
        self.has_changes = True
        if self._ledger is None:
            self._ledger = UsageLedger()
        return self._ledger

    def _spend(self, at: float, path: str, event: CallSettled | RequestAbandoned, used: Any) -> None:
        self._usage = RunUsage.of(used, self._usage)
        # The usage of a child run is in the child's own journal.
        if event.attribute("run_id") is None:
            self._used_at = at
            model = event.attribute("model") if isinstance(event, CallSettled) else None
            self._open_ledger().settle_step(path, {"usage": used, "model": model})
            self._spent = RunUsage.of(used, self._spent)

    def _close(self, path: str) -> None:
        del self._open_waits[path]
        self._note_changed(path)

    def _note_changed(self, path: str) -> None:
        self._changed_paths[path] = None
        self.has_changes = True

    @property
    def open_waits(self) -> list[WaitOpened]:
        """The waits that are open, oldest first, without those that only bound other steps."""
        return [
            recorded.event for recorded in self._open_waits.values() if isinstance(recorded.event, WaitOpened)
        ]

    # -- what is stored ----------------------------------------------------------------------------

    def take_changes(self, session: str, workflow: str) -> SummaryChanges:
        """Return what has changed since the last call."""
        self.has_changes = False
        tags, self._changed_tags = list(self._changed_tags.values()), NO_TAGS
        return SummaryChanges(self._take_waits(session), *self.take_usage(session, workflow), tags)

    def _take_waits(self, session: str) -> list[WaitRow]:
        """Return the waits that were opened and closed since the last call."""
        waits: list[WaitRow] = []
        for path in self._changed_paths:
            opened = self._open_waits.get(path)
            if opened is not None:
                waits.append(self.wait_row(session, opened))
                self._stored_paths[path] = None
            elif path in self._stored_paths:
                waits.append(WaitRow(session, self.run_id, path, "", 0.0, None))
                del self._stored_paths[path]
        self._changed_paths.clear()
        for provider, at, limit in self._provider_changes:
            data = None if limit is None else limit.encode()
            waits.append(WaitRow(session, f"provider {provider}", "", PROVIDER_LIMIT_KIND, at, data))
        self._provider_changes = ()
        return waits

    def wait_row(self, session: str, opened: RecordedEvent) -> WaitRow:
        """Return the stored form of a wait."""
        kind = KIND_BY_EVENT[opened.type]
        if kind == GATE_KIND and is_below_leaf(opened.path, self.running_leaves):
            kind = LEAF_GATE_KIND
        return WaitRow(session, self.run_id, opened.path, kind, opened.at, opened.event.encode())

    def take_usage(self, session: str, workflow: str) -> tuple[list[UsageRow], list[StepUsageRow]]:
        """Return the amounts used since the last call: by model and in total, and by step and model."""
        if self._ledger is None or not self._ledger.entries:
            return [], []
        amounts_by_model = {**self._ledger.by_model(), ALL_MODELS: RunUsage.of(None, self._spent).to_dict()}
        # Rows that are written together are of one day, or nearly.
        day = local_day(self._used_at)
        usage = [UsageRow(session, day, model, amounts) for model, amounts in amounts_by_model.items()]
        use_of_steps = self._use_of_steps(self._ledger)
        step_usage = [StepUsageRow(session, day, workflow, *used) for used in use_of_steps]
        self._ledger.entries.clear()
        self._spent = None
        return usage, step_usage

    def _use_of_steps(self, ledger: UsageLedger) -> Iterator[tuple[str, str, dict[str, float]]]:
        """Yield what each step has used of a model; `runs` is 1 when the step uses something first."""
        steps = {WHOLE_RUN: [(ALL_MODELS, UsageEntry())]}
        for (path, model), entry in ledger.entries.items():
            steps.setdefault(plain_step_path(path), []).append((model, entry))
        for step, entries in steps.items():
            first_use = {} if step in self._steps_with_usage else {"runs": 1}
            for model, entry in entries:
                if amounts := {**entry.to_dict(), **first_use}:
                    yield step, model, amounts
                first_use = {}
        self._steps_with_usage |= steps.keys()

    def encode(self) -> str:
        """Return the JSON for the row of the run."""
        position, used = self._position, self._usage.to_dict() if self._usage is not None else {}
        is_short = self._hold is None and self._parent_path is None and not used and not self._tags
        is_alone = self._chain is None and self._continued_as is None
        if is_short and is_alone and position.machine is None:
            return cached_short_summary(position.step, *self._starter)
        fields = {
            "step": position.step,
            "machine": position.machine,
            "parent_path": self._parent_path,
            "usage": used,
            "hold": self._hold,
            "tags": self._tags,
            "chain": self._chain,
            "continued_from": self._continued_from,
            "continued_as": self._continued_as,
            "started_by": self._starter[0],
            "started_via": self._starter[1],
        }
        return encode_json({name: value for name, value in fields.items() if value}, max_depth=None)


@lru_cache(1000)
def cached_short_summary(step: str | None, started_by: str | None, started_via: str | None) -> str:
    """Return the summary of a run with nothing else, cached because names repeat."""
    fields = {"step": step, "started_by": started_by, "started_via": started_via}
    return encode_json({name: value for name, value in fields.items() if value is not None})


def summarize_journal(row: RunRow, rows: list[EventRow], begins: float) -> Append:
    """Return the write that adds what lists need to a row of an earlier version.

    That is its summary, its open waits, and its usage since a day has begun.
    """
    stored = StoredJournal(rows)
    index = stored.index
    summary = RunSummary(row.run, [old for old in stored.events if old.at < begins])
    for recorded in stored.events:
        if recorded.at >= begins:
            summary.add(*recorded)
    open_waits = [opened for opened in index.open_waits.values() if not is_guard(opened.event)]
    waits = [summary.wait_row(row.session, opened) for opened in open_waits]
    # A leaf that was running has to run again, even if the run counts as waiting.
    wake = 0.0 if index.has_running_leaf else row.wake
    new_row = row._replace(summary=summary.encode(), wake=wake)
    usage, step_usage = summary.take_usage(row.session, row.workflow)
    return Append(row.run, index.seq, (), new_row, waits=waits, usage=usage, step_usage=step_usage)


def tags_of_row(row: RunRow) -> dict[str, str]:
    """Return the tags of a run."""
    summary = StoredSummary.of_row(row)
    return {} if summary is None else summary.tags


def events_of_waits(waits: Iterable[WaitRow]) -> list[WaitOpened]:
    """Return the events that opened the stored waits of an inactive run, whose leaves ask nothing."""
    events = [event_of_wait(wait) for wait in waits if wait.kind in KIND_BY_EVENT.values()]
    return [event for event in events if isinstance(event, WaitOpened)]


def event_of_wait(wait: WaitRow) -> Event:
    """Return the event that opened a stored wait."""
    return decode_event(EventRow(0, wait.since, EVENT_BY_KIND[wait.kind], wait.path, None, wait.data or "{}"))


def local_day(at: float) -> str:
    """Return the local date of a time, under which usage is stored."""
    return datetime.fromtimestamp(at).date().isoformat()


def usage_of_day(store: Store, session: str, day: str) -> RunUsage:
    """Return what the runs of a session used on a day, as far as it counts against budgets."""
    return sum_usage_rows(store.daily_usage(session, day, day))


def sum_usage_rows(rows: Iterable[UsageRow]) -> RunUsage:
    """Return what counts against budgets."""
    usage = RunUsage()
    for row in rows:
        if row.model == ALL_MODELS:
            usage.spend(row.amounts)
    return usage


def usage_by_model(store: Store, session: str, day: str) -> dict[str, dict[str, float]]:
    """Return the amounts of each model that the runs of a session used on a day."""
    rows = [row for row in store.daily_usage(session, day, day) if row.model != ALL_MODELS]
    entries: dict[str, UsageEntry] = {row.model: UsageEntry() for row in rows}
    for row in rows:
        entries[row.model].add(row.amounts)
    return {model: entry.to_dict() for model, entry in entries.items()}
