"""Answer the requests of a body that runs again from what its journal has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Any, Protocol

from nerve.core.workflow.run import RunState
from nerve.engine.execution_barrier import ExecutionBarrier
from nerve.engine.result_dispatcher import ResultDispatcher
from nerve.engine.run_budget import RunBudget
from nerve.engine.run_journal import RunJournal
from nerve.errors import Suspended
from nerve.journal.events import RequestAbandoned, RunOnHold, WaitOpened, outcome_of
from nerve.journal.index import JournalIndex
from nerve.journal.paths import is_within_step
from nerve.journal.replay import RecordedCall, RecordInvalidated, Replay, ReplayEntry, ReplayMismatch

MISMATCH_HINT = "Restore the code and resume the run, resume it with with_changes=True, or fork it."
IN_DOUBT_MESSAGE = (
    "{path} has effect=\"once\" and was interrupted; its outcome is unknown. Call skip('{path}', output)"
    " if it completed, retry('{path}') to run it again, or fail('{path}')."
)


NO_PATHS: Set[str] = frozenset()


class HistoryOwner(Protocol):
    """What the records of a run ask of it."""

    def hold(self, hold: RunOnHold) -> None:
        """Suspend the body and hold the run."""

    def record_before_end(self) -> None:
        """Record what precedes the end of a call: what the body did, and that it was stopped."""


class RecordedHistory:
    """The records of one run that its body requests again, and what happens where the body differs."""

    # Without items until the first one comes: most runs are never replayed.
    _steps_in_doubt: Sequence[str] = ()
    newly_requested_paths: list[str] | None = None
    """Paths that the body requests during replay and that are not in the journal."""

    def __init__(
        self,
        index: JournalIndex,
        state: RunState,
        journal: RunJournal,
        dispatcher: ResultDispatcher,
        barrier: ExecutionBarrier,
        budget: RunBudget,
        owner: HistoryOwner,
        has_asked_person: Callable[[str], bool],
    ) -> None:
        self._state, self._journal, self._dispatcher = state, journal, dispatcher
        self._barrier, self._budget = barrier, budget
        self._owner, self._has_asked_person = owner, has_asked_person
        self.has_optional_records = index.optional_until > 0
        """Whether records and child runs may exist that the code no longer requests."""
        # Resets hide the rows of a step from replay, but a step with effect="once" may still have run; only
        # a run with optional records (a fork, or changed code) can contain such rows.
        self.unknown_outcomes = index.unknown_outcomes.copy() if self.has_optional_records else NO_PATHS
        """Leaves that may have run, including those whose records have been reset."""
        self.early_outcomes: dict[str, tuple[int, Any]] = {}
        """Outcomes of waits that replay has not reached, by path, with the sequence numbers of the events."""
        self._last_requested_path = ""

    def lookup(
        self, path: str, request_hash: str, request_text: str, is_outdated: bool = False
    ) -> RecordedCall | None:
        """Return what the journal has for a request of the body.

        With `is_outdated`, what a fork has copied does not count, because the files are others now.
        """
        source = self._dispatcher.history
        if source is None:
            return None
        try:
            recorded = source.lookup(path, request_hash, request_text)
        except ReplayMismatch as mismatch:
            if not source.is_optional(path):
                self._owner.hold(RunOnHold("mismatch", f"{mismatch}. {MISMATCH_HINT}", path))
                raise Suspended from None
            self._reset_path(source, path, str(mismatch))
            return None
        if self._dispatcher.replay is not None:
            self._last_requested_path = path
            if recorded is None:
                if self.newly_requested_paths is None:
                    self.newly_requested_paths = []
                self.newly_requested_paths.append(path)
        # In optional history an abandoned call is not replayed as abandoned: the changed code may wait for
        # it.
        if recorded is not None and recorded.request.is_optional and is_outdated:
            self._reset_path(source, path, "the files of its workspace are others")
            return None
        if recorded is not None and recorded.request.is_optional and recorded.is_abandoned:
            self._reset_path(source, path, "the code may now wait for it")
            return None
        return recorded

    def lookup_emit(self, path: str, type: str, number: int) -> ReplayEntry | None:
        """Return the record of the n-th emit of a type, or of a clock reading, at a path."""
        source = self._dispatcher.history
        return source.lookup_emit((path, type, number)) if source is not None else None

    def was_delivered(self, path: str) -> bool:
        """Whether the outcome at a path was delivered to the body in the recorded run."""
        source = self._dispatcher.history
        return source is not None and source.is_settled(path)

    async def await_outcome(self, recorded: RecordedCall) -> Any:
        """Return the recorded outcome in its turn; an abandoned call stays open until abandoned again.

        A recorded outcome is delivered even to a body that is cancelling: in the recorded run its leaf also
        ended first.
        """
        record, dispatcher = recorded.outcome, self._dispatcher
        assert record is not None
        if record.kind == "settle":
            if dispatcher.replay_inline(record):
                outcome = outcome_of(record.event)
            else:
                outcome = await self._receive(recorded, record)
            if record.is_void:
                raise RecordInvalidated
            record.is_done = True
            if isinstance(outcome, TimeoutError):
                raise outcome
            return outcome
        try:
            await dispatcher.wait_forever()
        except asyncio.CancelledError:
            if record.is_outcome and not self._barrier.is_out_of_order():
                await self._wait_in_turn(dispatcher.recorded_outcome(record))
            raise
        finally:
            record.is_done = True
            dispatcher.dispatch()

    async def _receive(self, recorded: RecordedCall, record: ReplayEntry) -> Any:
        """Wait for a recorded outcome; return also the error of a wait that timed out."""
        future = self._dispatcher.recorded_outcome(record)
        is_ordered = not (isinstance(recorded.request.event, WaitOpened) or record.is_optional)
        try:
            return await (self._wait_in_turn(future) if is_ordered else self._dispatcher.wait_for(future))
        except TimeoutError as timeout:
            return timeout

    def _wait_in_turn(self, future: asyncio.Future[Any]) -> Awaitable[Any]:
        return self._dispatcher.wait_in_turn(future, self._barrier.is_out_of_order)

    # -- calls and waits that the body abandons ------------------------------------------------

    def must_record_abandoned(self, recorded: RecordedCall | None, takes_time: bool = False) -> bool:
        """Whether the end of an abandoned call or wait is new, and one that a replay has to repeat.

        A stop cancels everything at once, and so does its replay. What `takes_time` to end, ends in an order
        that only the journal knows.
        """
        if recorded is not None and recorded.is_abandoned:
            return False
        is_cancelled = self._barrier.is_cancelled_by_engine()
        return not is_cancelled or (takes_time and not self._barrier.is_out_of_order())

    def record_abandoned(self, event: RequestAbandoned, path: str, is_settled: bool) -> int:
        """Record the end of an abandoned call or wait; one that was settled before keeps that outcome."""
        # What the body did before it abandoned the call is recorded before that, or a crash could lose the
        # cause and keep the effect.
        self._owner.record_before_end()
        return self._journal.append(event, path, None if is_settled else self._journal.settle_key(path))

    async def wait_for_turn(self, seq: int) -> None:
        """Return when the event that ends an abandoned call has its turn."""
        future = self._dispatcher.create_future()
        self._dispatcher.enqueue(seq, future, None)
        await self._wait_in_turn(future)

    # -- records that no longer count ----------------------------------------------------------

    def invalidate_later_answers(self, after: float = 0) -> None:
        """Discard answers recorded after an event, because something before them runs again.

        A person answered for what was shown then. Answers not yet delivered are requested again.
        """
        source = self._dispatcher.history
        if source is not None:
            paths = source.undelivered_answers(after, self._has_asked_person)
            self._invalidate(source, paths, "a step before it runs again, so the answer may not apply")

    def invalidate_unrequested_gates(self) -> None:
        """Discard the open gates of earlier code that the body has not requested again."""
        if (source := self._dispatcher.optional_replay) is not None:
            self._invalidate(source, source.unrequested_gates(), "the code no longer requests it")

    def _invalidate(self, source: Replay, paths: list[str], because: str) -> None:
        """Discard what is recorded at paths, and the outcomes of the steps around them."""
        if not paths:
            return
        for path in paths:
            self._record_reset(path, because)
            for outcomes in (self.early_outcomes, self._state.gates):
                for inner_path in [key for key in outcomes if is_within_step(key, path)]:
                    del outcomes[inner_path]
        source.reopen(paths)
        self._dispatcher.release_unordered()

    def _reset_path(self, source: Replay, path: str, because: str) -> None:
        """Discard what is recorded at a path, so that it runs again."""
        # Answers first: which answers come later is found in the records that forget() drops.
        self.invalidate_later_answers(source.request_seq(path))
        self._record_reset(path, because)
        source.forget(path)

    def _record_reset(self, path: str, because: str) -> None:
        self._journal.append_reset(path, because)
        self._budget.on_replaced(path)

    # -- steps whose outcome is unknown --------------------------------------------------------

    async def hold_in_doubt(self, path: str) -> None:
        """Hold the run after replay for a step that may have run already; never returns."""
        if self._dispatcher.replay is not None:
            self._steps_in_doubt = [*self._steps_in_doubt, path]
            await self._dispatcher.wait_for(self._dispatcher.wait_for_live())
        self._hold_for_doubt(path)
        raise Suspended

    def hold_for_first_doubt(self) -> bool:
        """Hold the run for a step in doubt that replay has found; return whether there is one."""
        # It is decided before anything new runs: new work could depend on an effect that never happened.
        if self._steps_in_doubt:
            self._hold_for_doubt(self._steps_in_doubt[0])
        return bool(self._steps_in_doubt)

    def _hold_for_doubt(self, path: str) -> None:
        self._owner.hold(hold_in_doubt(path))

    # -- a body that does not request what the journal has -------------------------------------

    def find_unrequested_record(self) -> ReplayEntry | None:
        """Return the first record the body had to request and had not when it ended."""
        replay = self._dispatcher.replay
        if replay is None:
            return None
        while (obstacle := replay.next_unmatched()) is not None:
            obstacle.is_done = self._dispatcher.is_awaited(obstacle)
            if not (obstacle.is_done or replay.skip_unawaited(obstacle) or replay.skip_optional(obstacle)):
                break
        return obstacle

    def hold_for_mismatch(self, obstacle: ReplayEntry, found_instead: str = "") -> None:
        """Hold the run because the body does not request what the journal has next."""
        found_instead = found_instead or self._describe_requests(obstacle)
        key = obstacle.key
        request_name = key if isinstance(key, str) else f"{key[0] or '/'} {key[1]}"
        recorded = f"the journal has {obstacle.row.type} (event {obstacle.seq})"
        message = f"{request_name}: {recorded}, {found_instead}. {MISMATCH_HINT}"
        self._owner.hold(RunOnHold("mismatch", message, obstacle.row.path))

    def _describe_requests(self, obstacle: ReplayEntry) -> str:
        """Return what the body requests instead of the record that is next."""
        if self.newly_requested_paths:
            return f"the code now requests {', '.join(self.newly_requested_paths)}"
        source, path = self._dispatcher.history, self._last_requested_path
        is_later = source is not None and path and source.recorded_call(path).request.seq > obstacle.seq
        return f"the code now requests {path} before it" if is_later else "the code no longer requests it"


def hold_in_doubt(path: str) -> RunOnHold:
    """Return the hold for a step that may have had its effect."""
    return RunOnHold("in doubt", IN_DOUBT_MESSAGE.format(path=path), path)
