"""The facts of the session, as the runs of one workflow see them: body workers read and change them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nerve.dataspace import Pattern, Record
from nerve.engine.durable_dataspace import patterns_of_wait
from nerve.engine.task_tracking import detached_context
from nerve.engine.temporal.outbox import Outbox
from nerve.journal.events import SignalWaiting

SettleByFact = Callable[[str, str, Mapping[str, Any]], Awaitable[None] | None]


class WorkflowFacts:
    """Sends looks at facts with the outbox of the workflow; the command `fact` brings later facts."""

    decides_tests = True

    def __init__(self, outbox: Outbox, settle_by_fact: SettleByFact) -> None:
        """`settle_by_fact` settles the wait of a run at a path."""
        self._outbox, self._settle_by_fact = outbox, settle_by_fact
        self._looks: dict[tuple[str, str], asyncio.Future[dict[str, Any] | None]] = {}
        self._change_count = 0
        self._context = detached_context()

    def match_or_watch(self, run_id: str, path: str, request: SignalWaiting) -> None:
        """Settle a wait by the fact that there is, or that comes."""
        self._look(run_id, path, request, None)

    def confirm_timeout(
        self, run_id: str, path: str, request: SignalWaiting, on_absent: Callable[[], object]
    ) -> None:
        """Settle a wait by a fact that came in time, or call back."""
        self._look(run_id, path, request, on_absent)

    def _look(
        self, run_id: str, path: str, request: SignalWaiting, on_absent: Callable[[], object] | None
    ) -> None:
        patterns = patterns_of_wait(request)
        for pattern in patterns.values():
            Pattern.of(list(pattern))  # raises here what the worker would repeat for ever
        self._cancel_look(run_id, path)
        look = self._outbox.send_look(run_id, path, patterns, is_last=on_absent is not None)
        self._looks[run_id, path] = look
        look.add_done_callback(partial(self._on_outcome, run_id, path, on_absent), context=self._context)

    def _on_outcome(
        self,
        run_id: str,
        path: str,
        on_absent: Callable[[], object] | None,
        look: asyncio.Future[dict[str, Any] | None],
    ) -> None:
        if self._looks.get((run_id, path)) is look:
            del self._looks[run_id, path]
        if look.cancelled():
            return
        if (fact_match := look.result()) is not None:
            self._settle_by_fact(run_id, path, fact_match)
        elif on_absent is not None:
            on_absent()

    def unwatch(self, run_id: str, path: str) -> None:
        """Note that a wait needs no fact any more."""
        self._cancel_look(run_id, path)
        self._outbox.end_wait(run_id, path)

    def _cancel_look(self, run_id: str, path: str) -> None:
        if (look := self._looks.pop((run_id, path), None)) is not None:
            look.cancel()

    def change_now(self, asserted: Sequence[Any], retracted: Sequence[Any], by: str) -> asyncio.Future[None]:
        """Retract and assert facts; return what completes when that is on disk."""
        self._change_count += 1
        records = [Record.of(each).to_json() for each in asserted]
        patterns = [Pattern.of(each).to_json() for each in retracted]
        return self._outbox.send_fact_change(by, f"{self._change_count:09}", records, patterns)
