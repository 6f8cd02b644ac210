"""The journal of one run as the parts of its executor use it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from nerve.core.nodes.context import numbered_path
from nerve.engine.child_runs import child_id
from nerve.engine.group_commit import GroupCommitter
from nerve.engine.journal_writer import JournalOwner, JournalWriter
from nerve.journal.events import PathReset
from nerve.journal.index import JournalIndex, RecordedEvent
from nerve.store.port import EventRow, Store


class RunJournal(JournalWriter):
    """A journal writer with an index of all events of the run, written or not."""

    def __init__(
        self,
        run_id: str,
        index: JournalIndex | None,
        events: Iterable[RecordedEvent],
        store: Store,
        committer: GroupCommitter,
        owner: JournalOwner,
        time: Callable[[], float],
    ) -> None:
        """`index` is that of `events`, which the journal has already; None for a new journal."""
        seq = index.seq if index is not None else 0
        super().__init__(run_id, seq, committer, owner, time, events)
        self._store, self._index = store, index

    @property
    def index(self) -> JournalIndex:
        """The index of the journal, including events that are not on disk yet."""
        # Created and extended when it is read: most runs end without a question to it, and steps must not
        # pay for it.
        if self._index is None:
            self._index = JournalIndex()
        if self._index.seq < self.seq:
            self._index.add(self._rows_after(self._index.seq))
        return self._index

    def _rows_after(self, seq: int) -> list[EventRow]:
        unwritten = self.pending_rows
        if unwritten and unwritten[0].seq <= seq + 1:
            return unwritten[seq + 1 - unwritten[0].seq :]
        stored = self._store.events(self.run_id, seq)
        # The commit runs in another thread: rows may be in the store and still be pending, and must count
        # once.
        return [*(row for row in stored if not unwritten or row.seq < unwritten[0].seq), *unwritten]

    def read_rows(self) -> list[EventRow]:
        """Return all rows of the journal, written or not."""
        return self._rows_after(0)

    def append_reset(self, path: str, because: str) -> None:
        """Record that what is recorded at a path no longer counts, so that it runs again."""
        self.append(PathReset(because), path)
        # At once: settle keys derive from the resets in the index, and are built without extending it.
        _ = self.index

    def settle_key(self, path: str) -> str:
        """Return the key that only one outcome of the current request at a path can have."""
        return path if self._index is None else self._index.resets.settle_key(path)

    def call_key(self, path: str) -> str:
        """Return the key that the ids of a call's child runs derive from."""
        return path if self._index is None else self._index.resets.call_key(path)

    def child_id(self, path: str, attempt: int = 1) -> str:
        """Return the id of the child run of a call; a reset of the call changes the id."""
        return child_id(self.run_id, self.call_key(path), attempt)

    def unused_path(self, path: str, also_used: Container[str]) -> str:
        """Return an unused path for a request of a leaf: after a restart a leaf may make more requests."""
        used_paths, number = self.index.wait_paths, 1
        while (candidate := numbered_path(path, number)) in used_paths or candidate in also_used:
            number += 1
        return candidate
