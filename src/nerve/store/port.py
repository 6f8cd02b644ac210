"""What a store must do: append to journals in groups, and read them back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from nerve.errors import StoreError

MAX_INLINE_BYTES = 256 * 1024
"""Data above this many bytes is kept in `blobs`, by its hash."""

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""Data above this many bytes is refused."""


EMPTIED_DATA = "{}"
"""What is read as the data of an event whose data was forgotten."""

EMPTIABLE_TYPE = "output_chunk"
"""The one type of event whose data may be forgotten: no run depends on it."""


class EventRow(NamedTuple):
    """One event as a store keeps it; `data` is JSON text."""

    seq: int
    at: float
    type: str
    path: str
    settles: str | None
    data: str


class RunRow(NamedTuple):
    """The projection of one run, written in the transaction of the events it reads."""

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
    """Where it was asked for."""
    label: str | None = None
    """What it is called by whoever started it; several runs may have one label."""


class FactRow(NamedTuple):
    """One fact of a session as a store keeps it; `record` is the JSON text of a list, its label first.

    A row with another `id` is another fact; one without a record says that the fact is gone.
    """

    session: str
    id: str
    version: int
    at: float
    by: str
    record: str | None


class MessageRow(NamedTuple):
    """What was said in a conversation, numbered from 1."""

    conversation: str
    seq: int
    at: float
    role: str
    text: str
    run: str | None


class Definition(NamedTuple):
    """What a run was started from, pinned by its hash."""

    hash: str
    workflow: str
    notation: str
    source: str
    canonical: str


class ReplyRow(NamedTuple):
    """What a command with a key was, and what was said to it; the first with a key stays.

    One without a text says that the command was done; what is said to it follows.
    """

    session: str
    key: str
    at: float
    asked: str
    reply: str


class Append(NamedTuple):
    """Rows to be added to one journal, all or none, after the row numbered `after`.

    Facts are asserted and retracted in the order given. One without rows names no run.
    """

    run: str
    after: int
    rows: Sequence[EventRow]
    row: RunRow | None = None
    definition: Definition | None = None
    facts: Sequence[FactRow] = ()
    replies: Sequence[ReplyRow] = ()


class Store(Protocol):
    """One contract for memory, SQLite and PostgreSQL; see `nerve.testing.store_contract`."""

    @property
    def durable(self) -> bool:
        """Whether what was appended is there after a crash."""

    @property
    def loss(self) -> str | None:
        """What is missing since the process before, though it was acknowledged, and what to do about it."""

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        """Commit the whole batch in one synced transaction and say for each part what became of it.

        A part with a `Conflict` is left out and does not harm the others. Any other trouble is raised
        and nothing of the batch was written. `patience` is how long to wait for the write lock.
        """

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        """The rows of a journal behind `after`, in order, each checked against the hash chain.

        With a `limit`, at most so many.
        """

    def last_event(self, run: str, type: str | None = None) -> EventRow | None:
        """The last row of a journal, or the last of a type, checked against the one before."""

    def run(self, run: str) -> RunRow | None: ...

    def runs(
        self,
        *,
        session: str | None = None,
        workflow: str | None = None,
        states: Collection[str] | None = None,
        prefix: str = "",
        conversation: str | None = None,
        label: str | None = None,
        before: RunRow | None = None,
        newest: int | None = None,
    ) -> list[RunRow]:
        """The matching runs, oldest first; only those that started before another, only so many of them."""

    def count_runs(self, session: str) -> dict[str, int]:
        """How many runs of a session are in each state."""

    def count_definitions(self, session: str) -> dict[str, int]:
        """How many runs of a session were started from each definition, by its hash, the first used first."""

    def sessions(self) -> list[str]:
        """The names of the sessions that have runs, that with the oldest first."""

    def labels(self, session: str, prefix: str, limit: int) -> list[str]:
        """The labels of a session's runs that begin like that, in their order, at most so many."""

    def run_by_key(self, session: str, key: str) -> RunRow | None: ...

    def definition(self, hash: str) -> Definition | None: ...

    def facts(self, session: str, label: str | None = None) -> list[FactRow]:
        """The facts that are asserted, or those with this label, in the order of their versions."""

    def fact_version(self, session: str) -> int:
        """The highest version a fact of the session ever had, retractions included."""

    def stored_reply(self, session: str, key: str) -> ReplyRow | None:
        """What was said to the command with this key."""

    def forget_replies(self, session: str, before: float) -> int:
        """Forget what was said in a session before a time; how many there were. From any thread."""

    def add_message(
        self, conversation: str, role: str, text: str, run: str | None = None, at: float | None = None
    ) -> MessageRow:
        """Say something in a conversation, in a synced transaction of its own; from any thread."""

    def messages(self, conversation: str, after: int = 0) -> list[MessageRow]:
        """What was said behind the message `after`, in order."""

    def journal_size(self, run: str) -> tuple[int, int]:
        """How many events a journal has, and how many bytes of data; it need not be whole."""

    def old_events(
        self, run: str, type: str, before: float, after: int = 0, limit: int = 1000
    ) -> list[tuple[int, int]]:
        """Numbers and bytes of the events of a type from before a time whose data was not forgotten.

        At most `limit`, behind the one numbered `after`.
        """

    def delete_runs(self, runs: Sequence[str]) -> None:
        """Forget runs with all their events, in one synced transaction; from any thread.

        The events of a long run may go later, in several; if that is cut off, the next call goes on with it.
        What is shared with other runs, or was said in conversations, stays.
        """

    def empty_events(self, run: str, seqs: Sequence[int]) -> None:
        """Forget the data of output, which is `{}` from then on; that it was there, and when, stays.

        Events of another type than `EMPTIABLE` raise ValueError, and nothing is emptied.
        """

    def mark_resuming(self, runs: Sequence[str]) -> None:
        """Count, in a synced transaction, that runs are about to be taken up again; from any thread."""

    def clear_resuming(self, runs: Sequence[str]) -> None:
        """Begin to count anew, since that went well; from any thread."""

    def resume_counts(self) -> dict[str, int]:
        """How many times runs were about to be taken up, and it was not said that it went well."""

    def close(self) -> None: ...
