"""The store interface: append to journals in groups, and read them back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypedDict, Unpack

from nerve.errors import OwnershipLost, StoreError

MAX_INLINE_BYTES = 256 * 1024
"""Larger data is kept in `blobs`, by its hash."""

MAX_SEQ = 2**62
"""Greater than any sequence number."""

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""Larger data is rejected."""

MAX_SEARCHED_RUNS = 5000
"""Number of runs that a search for a text looks at."""

MAX_SEARCHED_CHARS = 20_000
"""Length of the first event of a run whose input is searched."""


EMPTIED_DATA = "{}"
"""The data of an event whose data was emptied."""

EMPTIABLE_TYPE = "output_chunk"
"""The only event type whose data may be emptied: no run depends on it."""


class EventRow(NamedTuple):
    """One event as a store keeps it; `data` is JSON."""

    seq: int
    at: float
    type: str
    path: str
    settles: str | None
    data: str


class RunRow(NamedTuple):
    """The row of one run, written in the transaction of the events it summarizes."""

    run: str
    session: str
    workflow: str
    state: str
    started: float
    ended: float | None = None
    key: str | None = None
    parent: str | None = None
    wake: float | None = None
    """When the earliest open timer or gate deadline of the run is due."""
    definition: str | None = None
    conversation: str | None = None
    """The conversation in which it was started."""
    label: str | None = None
    """The label the user gave it; several runs may share one."""
    summary: str | None = None
    """JSON of what lists show of the run, so that they need not read its journal; None if not known, as in
    rows that an earlier version wrote."""


class WaitRow(NamedTuple):
    """An open wait of a run, such as a gate; `data` is JSON. A row without data closes the wait.

    The path identifies the wait within its run.
    """

    session: str
    run: str
    path: str
    kind: str
    since: float
    data: str | None


TAG_KIND, PATCH_KIND, CHAIN_KIND = "tag", "patch", "chain"
"""The kinds of tag rows. The row of a patch has the value "true" if the run takes its new branch. The row of
a chain has the id of its first run; every later run of the chain has one."""


class TagRow(NamedTuple):
    """A tag of a run, a patch that the run has evaluated, or the chain that the run belongs to."""

    kind: str
    name: str
    value: str
    at: float


class UsageRow(NamedTuple):
    """Amounts that runs of a session used of a model on a day, such as tokens and cost."""

    session: str
    day: str
    """The local date, such as `2025-11-15`."""
    model: str
    amounts: Mapping[str, float]


class StepUsageRow(NamedTuple):
    """Amounts that a step of a workflow used of a model on a day.

    The step is empty for what concerns whole runs of the workflow, such as their number.
    """

    session: str
    day: str
    """The local date, such as `2025-11-15`."""
    workflow: str
    step: str
    model: str
    amounts: Mapping[str, float]


class FactRow(NamedTuple):
    """One fact of a session as a store keeps it; `record` is the JSON of a list, its label first.

    Every `id` is a fact of its own; a row without a record retracts the fact.
    """

    session: str
    id: str
    version: int
    at: float
    by: str
    record: str | None


class MessageRow(NamedTuple):
    """A message of a conversation, numbered from 1."""

    conversation: str
    seq: int
    at: float
    role: str
    text: str
    run: str | None


class PersonRow(NamedTuple):
    """A change of the people of a session, numbered from 1; `data` is JSON.

    The hash covers the change and the hash of the one before.
    """

    session: str
    number: int
    at: float
    name: str
    data: str
    hash: str


class Definition(NamedTuple):
    """The definition a run was started from, identified by its hash; the last one that was stored stays."""

    hash: str
    workflow: str
    notation: str
    source: str
    canonical: str


class ReplyRow(NamedTuple):
    """A command with an idempotency key and the reply to it; the first one with a key stays.

    An empty reply means that the command has run and its reply follows.
    """

    session: str
    key: str
    at: float
    asked: str
    reply: str


class Append(NamedTuple):
    """Rows to append to one journal, all or none, after the row numbered `after`.

    Facts are asserted and retracted, and waits opened and closed, in the order given. The row of a run that
    has ended closes all its waits. Used amounts are added to those of their day and model, and of their
    workflow and step. Tags belong to the run of the row, which is given with them. An append of facts or
    replies alone names no run. A part that `needs` the part of another run, earlier in the batch, is written
    only with it.
    """

    run: str
    after: int
    rows: Sequence[EventRow]
    row: RunRow | None = None
    definition: Definition | None = None
    facts: Sequence[FactRow] = ()
    replies: Sequence[ReplyRow] = ()
    waits: Sequence[WaitRow] = ()
    usage: Sequence[UsageRow] = ()
    step_usage: Sequence[StepUsageRow] = ()
    tags: Sequence[TagRow] = ()
    needs: str = ""


def append_events(run: str, after: int, rows: Sequence[EventRow]) -> Append:
    """Return a part with events only, which most parts are; built in C."""
    return tuple.__new__(Append, (run, after, rows, *_NOTHING_ELSE))


_NOTHING_ELSE = Append("", 0, ())[3:]


class StreamedEvent(NamedTuple):
    """An event as the stream of a session has it."""

    number: int
    """Its place in the stream: it grows in the order of the commits, with gaps."""
    run: str
    workflow: str
    row: EventRow


class EventReader(Protocol):
    """Where the events of a run are read."""

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]: ...

    def last_event(self, run: str, type: str | None = None) -> EventRow | None: ...


class EventStream(Protocol):
    """The events of all runs in a store, the same for all processes that use it."""

    @property
    def stream_id(self) -> str:
        """The identity of the stream, to which its numbers belong."""

    def last_streamed(self, session: str) -> int:
        """Return the number of the last event of a session."""

    def streamed_events(
        self, session: str, after: int, limit: int, types: Collection[str] | None = None
    ) -> list[StreamedEvent]:
        """Return the events of a session after a number, in order. No later commit adds one before them.

        With `types`, return only events of these types.
        """


class RunQuery(TypedDict, total=False):
    """The conditions of `Store.runs`; one that is left out or None selects all runs."""

    session: str | None
    workflow: str | None
    states: Collection[str] | None
    prefix: str
    conversation: str | None
    label: str | None
    since: float | None
    tags: Mapping[str, str] | None
    patch: str | None
    chain: str | None
    search: str | None
    before: RunRow | None
    newest: int | None


class Store(Protocol):
    """The contract of all stores; see `nerve.testing.store_contract`."""

    @property
    def durable(self) -> bool:
        """Whether appended rows survive a crash."""

    @property
    def loss(self) -> str | None:
        """Acknowledged writes of the previous process that are missing, and what to do about it."""

    @property
    def read_only(self) -> bool:
        """Whether another process writes what this one reads."""

    @property
    def stream(self) -> EventStream | None:
        """The stream of the events of all runs; None for a store that is not durable."""

    def watch_ownership(self, on_lost: Callable[[OwnershipLost], None]) -> None:
        """Call a function, in another thread, if another process takes over what this store writes.

        That cannot happen to a store that one process owns until it ends.
        """

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        """Commit the whole batch in one synced transaction; return the outcome of each part.

        A part with a `Conflict` is left out without affecting the others. Any other error is raised and
        nothing of the batch is written. `patience` is the timeout for the write lock in seconds.
        """

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """Return the rows of a journal after `after`, in order, each verified against the hash chain.

        With a `limit`, return at most that many.
        """

    def last_event(self, run: str, type: str | None = None) -> EventRow | None:
        """Return the last row of a journal, or the last of a type, verified against the one before."""

    def run(self, run: str) -> RunRow | None: ...

    def runs(self, **query: Unpack[RunQuery]) -> list[RunRow]:
        """Return the matching runs, oldest first; those started before `before`, and the `newest` of them.

        `since` is the earliest start, `tags` are names and values that a run has. With a `patch`, return
        the runs that may need its old branch: those that evaluated it as false, and those that have not
        evaluated it and started before the first run of their workflow did. With a `chain`, the id of its
        first run, return its later runs. `search` is a text in the
        workflow, label, tags or input of a run, without regard to the case of ASCII letters; only the
        newest `MAX_SEARCHED_RUNS` of the runs that match otherwise are searched, and inputs in first
        events of at most `MAX_SEARCHED_CHARS` characters.
        """

    def last_written_runs(self, events: int) -> list[str]:
        """Return the runs that the last events of the store belong to, in no order."""

    def count_runs(self, session: str) -> dict[str, int]:
        """Return the number of runs of a session in each state, at a cost that does not depend on it."""

    def count_definitions(self, session: str) -> dict[str, int]:
        """Return the number of runs of a session by definition hash, first used first."""

    def sessions(self) -> list[str]:
        """Return the names of the sessions that have runs, the one with the oldest run first."""

    def labels(self, session: str, prefix: str, limit: int) -> list[str]:
        """Return at most `limit` labels of a session's runs with a prefix, sorted."""

    def tag_names(self, session: str, kind: str) -> list[str]:
        """Return the names of the tags of a kind in a session, sorted; the cost depends on their number."""

    def open_waits(
        self, session: str, kind: str, after: WaitRow | None = None, limit: int | None = None
    ) -> list[WaitRow]:
        """Return the open waits of a kind in a session, oldest first; those that follow `after`.

        With a `limit`, return at most that many. No journal is read, and the cost does not depend on the
        number of runs.
        """

    def waits_of_run(self, run: str) -> list[WaitRow]:
        """Return the open waits of a run of all kinds, oldest first."""

    def count_waits(self, session: str) -> dict[str, int]:
        """Return the number of open waits of a session by kind."""

    def daily_usage(self, session: str, first_day: str, last_day: str) -> list[UsageRow]:
        """Return the used amounts of each day and model from `first_day` to `last_day`, in that order."""

    def daily_step_usage(self, session: str, first_day: str, last_day: str) -> list[StepUsageRow]:
        """Return the used amounts of each day, workflow, step and model of these days, in that order.

        They stay when runs are deleted.
        """

    @property
    def summarized_since(self) -> float:
        """The time since which summaries, waits and usage are written; 0 if the store always had them.

        Runs that an earlier version started have none before that time: their journals must be read.
        """

    def run_by_key(self, session: str, key: str) -> RunRow | None: ...

    def definition(self, hash: str) -> Definition | None: ...

    def facts(self, session: str, label: str | None = None) -> list[FactRow]:
        """Return the asserted facts, or those with this label, ordered by version."""

    def fact_version(self, session: str) -> int:
        """Return the highest version a fact of the session ever had, including retractions."""

    def stored_reply(self, session: str, key: str) -> ReplyRow | None:
        """Return the reply stored for an idempotency key."""

    def forget_replies(self, session: str, before: float) -> int:
        """Delete the replies of a session before a time; return their number. Callable from any thread."""

    def add_message(
        self, conversation: str, role: str, text: str, run: str | None = None, at: float | None = None
    ) -> MessageRow:
        """Add a message to a conversation in a synced transaction; callable from any thread."""

    def messages(self, conversation: str, after: int = 0) -> list[MessageRow]:
        """Return the messages after the one numbered `after`, in order."""

    def journal_size(self, run: str) -> tuple[int, int]:
        """Return the number of events of a journal and the stored bytes of their data; it may be damaged."""

    def old_events(
        self, run: str, type: str, before: float, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, int]]:
        """Return numbers and stored sizes of events of a type before a time that are not emptied.

        Returns at most `limit`, after the one numbered `after`.
        """

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Delete runs with all their events, in one synced transaction; callable from any thread.

        Events of a long run may be deleted later, in several transactions; an interrupted deletion continues
        with the next call. Data shared with other runs, and messages, stay.
        """

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        """Empty the data of output events, which is `{}` from then on; the events themselves stay.

        An event of another type than `EMPTIABLE_TYPE` raises ValueError, and nothing is emptied.
        """

    def mark_resuming(self, runs: Sequence[str]) -> None:
        """Count, in a synced transaction, that runs are about to be resumed; callable from any thread."""

    def clear_resuming(self, runs: Sequence[str]) -> None:
        """Reset the counts of runs that have made progress; callable from any thread."""

    def resume_counts(self) -> dict[str, int]:
        """Return how often runs were about to be resumed without making progress."""

    def people_changes(self, session: str, after: int = 0) -> list[PersonRow]:
        """Return the changes of people after the one numbered `after`, in order."""

    def add_people_change(self, change: PersonRow) -> bool:
        """Add a change in a synced transaction; return False if its number is taken.

        Any thread may call it.
        """

    def read_property(self, name: str) -> str | None:
        """Return a property of the store itself; None if it was not set."""

    def write_property(self, name: str, value: str) -> None:
        """Set a property of the store, in a synced transaction; callable from any thread."""

    def close(self) -> None: ...
