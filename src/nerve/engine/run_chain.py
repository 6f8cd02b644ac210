"""Chains of runs: a run that continues as new ends, and the next run of its chain starts, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nerve.engine.group_commit import GroupCommitter
from nerve.engine.journal_writer import JournalOwner, JournalWriter
from nerve.engine.run_summary import StoredSummary
from nerve.errors import NerveError
from nerve.journal.events import MessageSent, RunStarted
from nerve.journal.mailbox import Message
from nerve.store.port import Append, RunRow, Store

CONTINUED_METADATA = (
    *("label", "branch", "conversation", "modules", "queue", "caller"),
    *("parent", "parent_path", "lineage", "place"),
)
"""What the next run of a chain has as its previous one had it."""


class NextRunJournal(JournalWriter):
    """The journal of the next run of a chain, which is written only with the end of the previous run."""

    def __init__(
        self,
        previous: JournalWriter,
        run_id: str,
        committer: GroupCommitter,
        owner: JournalOwner,
        time: Callable[[], float],
    ) -> None:
        super().__init__(run_id, 0, committer, owner, time)
        self._previous = previous

    def drain(self) -> Append | None:
        # An earlier write of the previous run may have failed after both were queued.
        part = None if self._previous.has_failed else super().drain()
        return None if part is None else part._replace(needs=self._previous.run_id)


def ignore_write_error(error: NerveError) -> None:
    """Do nothing: the previous run gets the same error."""


def make_next_start(
    start: RunStarted, run_id: str, input: Any, params: dict[str, Any], used: dict[str, Any], **changed: Any
) -> RunStarted:
    """Return the start of the next run of a chain; `changed` is what is not as it was at its start."""
    continued_from = {"run": start.run_id, "first": start.chain} | ({"used": used} if used else {})
    return RunStarted(
        run_id,
        start.workflow_id,
        start.steps,
        input,
        params,
        start.session,
        **{name: getattr(start, name) for name in CONTINUED_METADATA},
        **changed,
        continued_from=continued_from,
    )


def carry_messages(messages: Sequence[Message]) -> list[MessageSent]:
    """Return the events that put the unread messages of a run into the mailbox of the next one."""
    return [
        MessageSent(message.channel, message.value, message.key, message.by, message.seq)
        for message in messages
    ]


def find_current_row(store: Store, row: RunRow) -> RunRow:
    """Return the current run of the chain of a run; the run itself unless it continued as new.

    The cost does not depend on the number of runs in the chain.
    """
    summary = StoredSummary.of_row(row)
    if summary is None or summary.continued_as is None:
        return row
    newest = store.runs(session=row.session, chain=summary.chain or row.run, newest=1)
    # The newest by the clock, which may have been set back: the links decide.
    *_, current = iterate_chain(store, newest[-1] if newest else row)
    return current


def iterate_chain(store: Store, row: RunRow) -> Iterator[RunRow]:
    """Yield a run and the later runs of its chain."""
    current: RunRow | None = row
    while current is not None:
        yield current
        summary = StoredSummary.of_row(current)
        next_id = summary.continued_as if summary is not None else None
        current = store.run(next_id) if next_id is not None else None


def find_run_of_chain(store: Store, session: str, first: str) -> RunRow | None:
    """Return the current run of a chain whose first run was deleted."""
    rows = store.runs(session=session, chain=first, newest=1)
    return find_current_row(store, rows[-1]) if rows else None
