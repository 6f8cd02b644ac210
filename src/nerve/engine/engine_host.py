"""What an engine needs of the process that it runs in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from nerve.engine.group_commit import GroupCommitter
from nerve.engine.session_queues import SessionQueues
from nerve.store.port import Store


class EngineHost:
    """An ordinary process; a Temporal workflow is another host.

    A workflow has no threads, no files and no chance of its own. A timer there is an entry of its history,
    and one turn of its loop must not take long.
    """

    commits_alone = True
    """Whether a run that is alone in the session commits before it continues, without turns of the loop."""
    writes_logs = True
    """Whether the engine writes the log files of runs."""
    counts_days = True
    """Whether the engine sees all runs of the session, and so enforces its daily budget."""
    queue_class: type[SessionQueues] = SessionQueues
    """The queues of the session, as this process sees them."""
    outcomes_per_turn: int | None = None
    """How many recorded outcomes a replay delivers before it gives way; None for all."""

    def open_committer(
        self, store: Store, time_watchers: Sequence[Callable[[float], None]]
    ) -> GroupCommitter:
        """Return what writes the events of all runs; the watchers get the seconds of every commit."""
        return GroupCommitter(store, time_watchers)

    def make_seed(self, run_id: str) -> str:
        """Return the seed of the random numbers of a new run."""
        return os.urandom(16).hex()


PROCESS_HOST = EngineHost()
