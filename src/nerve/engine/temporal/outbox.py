"""What a workflow sends to its workers when it has come to rest: leaves, requests and rows.

They leave the workflow when its loop has nothing else to run, and leaves in the order of their paths. A
workflow that is executed again from its history has to send the same in the same order, also if the code of
a user keeps its calls in a set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

from nerve.engine.quiescence import ready_queue
from nerve.engine.task_tracking import detached_context, spawn_detached
from nerve.engine.temporal.messages import LeafInput, LeafResult, SharedStateInput, SharedStateResult
from nerve.store.port import Append

MAX_CARRIED_ROWS = 100
"""With more rows than this, a leaf carries none: they are written on their own."""


class LeafOutcome(NamedTuple):
    """The result of a leaf, and whether its worker has sent it."""

    result: LeafResult
    is_from_worker: bool
    """If not, the worker may not have written the rows that the leaf carried."""


class Activities(Protocol):
    """How a workflow starts what its workers execute."""

    def start_leaf(self, leaf: LeafInput, queue: str) -> asyncio.Task[LeafOutcome]: ...

    async def append(self, parts: Sequence[Append]) -> None: ...

    async def exchange(self, request: SharedStateInput) -> SharedStateResult: ...


RequestKind = Literal["look", "change", "entry"]
"""A look at the facts, a change of them, or an entry of a queue."""
REQUEST_KINDS: tuple[RequestKind, ...] = ("look", "change", "entry")


class PendingRequest(NamedTuple):
    """A request for shared state that is to be sent when the workflow has come to rest."""

    run_id: str
    path: str
    content: Sequence[Any]
    """What `SharedStateInput` has of it."""
    kind: RequestKind
    outcome: asyncio.Future[Any]


class PendingLeaf(NamedTuple):
    """A leaf that is to be started when the workflow has come to rest."""

    leaf: LeafInput
    queue: str
    started: asyncio.Future[asyncio.Task[LeafOutcome]]


class Outbox:
    """The leaves and rows of one workflow that are to be sent.

    Rows are kept until a worker has written them. A leaf that still waits for a worker has not written the
    rows that it carries; later rows are then sent together with those.
    """

    def __init__(
        self, activities: Activities, projected: Mapping[str, int], last_row: Callable[[str], int]
    ) -> None:
        """`projected` has the number of the last row of each run that is written.

        `last_row` returns the number of the last row of a run, written or not.
        """
        self._activities, self._last_row = activities, last_row
        self._written = dict(projected)
        self._parts: list[Append] = []
        """Parts that are not known to be written."""
        self._sent_count = 0
        """How many of these parts a worker has been given to write."""
        self._leaves: list[PendingLeaf] = []
        self._requests: list[PendingRequest] = []
        self._ended_waits: set[tuple[str, str]] = set()
        """Waits whose facts are watched, and need not be."""
        self._left: set[tuple[str, str, int]] = set()
        """Entries of queues that need their slots no more."""
        self._exchanges: set[asyncio.Task[None]] = set()
        self._is_changing_state = False
        self._append_task: asyncio.Task[None] | None = None
        self._is_scheduled = False
        self._context = detached_context()
        self._loop = asyncio.get_running_loop()

    @property
    def is_empty(self) -> bool:
        """Whether everything is written and known, and no leaf waits to be started."""
        is_sent = not self._parts and not self._leaves and not self._requests and not self._left
        return is_sent and self._append_task is None and not self._exchanges

    def add(self, parts: Sequence[Append]) -> None:
        """Send parts of journals with the next leaf, or on their own."""
        self._parts += [part for part in parts if self._is_unwritten(part)]
        self._schedule()

    def _is_unwritten(self, part: Append) -> bool:
        return bool(part.rows) and part.rows[-1].seq > self._written.get(part.run, 0)

    async def execute(self, leaf: LeafInput, queue: str) -> LeafResult:
        """Return the result of a leaf that a worker executes; `started` is set when it is sent."""
        pending = PendingLeaf(leaf, queue, self._loop.create_future())
        self._leaves.append(pending)
        self._schedule()
        own_task = asyncio.current_task()
        assert own_task is not None
        cancel_count = own_task.cancelling()
        outcome = await (await pending.started)
        # A leaf can end before it hears that it was cancelled; the body that cancelled it must not continue.
        if own_task.cancelling() > cancel_count:
            raise asyncio.CancelledError
        return outcome.result

    def send_look(
        self, run_id: str, path: str, patterns: Mapping[str, Sequence[Any]], is_last: bool
    ) -> asyncio.Future[dict[str, Any] | None]:
        """Return what completes with the fact that settles a wait, or None; cancelled early, none is sent."""
        self._ended_waits.discard((run_id, path))
        named = {name: list(pattern) for name, pattern in patterns.items()}
        return self._add_request(run_id, path, [run_id, path, named, is_last], "look")

    def send_fact_change(
        self, run_id: str, path: str, asserted: Sequence[Any], retracted: Sequence[Any]
    ) -> asyncio.Future[None]:
        """Return what completes when a run has changed facts."""
        content = [list(asserted), list(retracted), run_id]
        return self._add_request(run_id, path, content, "change")

    def send_entry(
        self, run_id: str, path: str, queue: str, key: str, *limits: float | None
    ) -> tuple[asyncio.Future[bool], int]:
        """Return what says if an entry has a slot, and the number of the request.

        `limits` are the further values of `StoredEntry`.
        """
        asked = self._last_row(run_id)
        content = [run_id, path, queue, key, *limits, asked]
        return self._add_request(run_id, path, content, "entry"), asked

    def end_entry(self, run_id: str, path: str, asked: int) -> None:
        """Say that an entry needs the slot of a request no more."""
        self._left.add((run_id, path, asked))
        self._schedule()

    def end_wait(self, run_id: str, path: str) -> None:
        """Let the next look at facts say that a wait needs no fact any more."""
        self._ended_waits.add((run_id, path))

    def _add_request(
        self, run_id: str, path: str, content: Sequence[Any], kind: RequestKind
    ) -> asyncio.Future[Any]:
        outcome = self._loop.create_future()
        self._requests.append(PendingRequest(run_id, path, content, kind, outcome))
        self._schedule()
        return outcome

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_at_rest, context=self._context)

    def _send_at_rest(self) -> None:
        if ready_queue(self._loop):
            self._loop.call_soon(self._send_at_rest, context=self._context)
            return
        self._is_scheduled = False
        pending, self._leaves = self._leaves, []
        # A leaf that was cancelled meanwhile is not started.
        leaves = [each for each in pending if not each.started.done()]
        leaves.sort(key=lambda each: (each.leaf.run_id, each.leaf.path))
        row_count = sum(len(part.rows) for part in self._parts)
        carried = self._parts if len(leaves) == 1 and row_count <= MAX_CARRIED_ROWS else []
        if carried:
            self._sent_count = len(self._parts)
        has_unsent = self._sent_count < len(self._parts) and self._append_task is None
        if not self._is_changing_state and (self._requests or self._left):
            self._start_exchange(list(self._parts) if has_unsent else [])
        elif has_unsent:
            self._append_task = spawn_detached(self._append(list(self._parts)))
        for leaf, queue, started in leaves:
            # The same for all of them: the order in which the body has called them may differ in a replay.
            last_row = self._last_row(leaf.run_id)
            sent = replace(leaf, started=last_row, journal=list(carried))
            task = self._activities.start_leaf(sent, queue)
            task.add_done_callback(lambda done: self._on_leaf_end(done, list(carried)), context=self._context)
            started.set_result(task)

    def _start_exchange(self, parts: list[Append]) -> None:
        """Send requests, with rows that are not sent yet."""
        requests = [each for each in self._requests if not each.outcome.done()]
        requests.sort(key=lambda each: (each.run_id, each.path))
        of_kind = {kind: [each for each in requests if each.kind == kind] for kind in REQUEST_KINDS}
        left, ended = sorted(self._left), sorted(self._ended_waits)
        self._requests, self._left, self._ended_waits = [], set(), set()
        if not requests and not left:
            return
        # What is requested next has to see the changes.
        self._is_changing_state = bool(of_kind["change"] or left)
        task = spawn_detached(self._exchange(of_kind, left, ended, parts))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard, context=self._context)
        if parts:
            self._append_task = task

    async def _exchange(
        self,
        of_kind: Mapping[RequestKind, Sequence[PendingRequest]],
        left: Sequence[tuple[str, str, int]],
        ended: Sequence[tuple[str, str]],
        parts: list[Append],
    ) -> None:
        looks, changes, entries = (of_kind[kind] for kind in REQUEST_KINDS)
        is_change = bool(changes or left)
        if parts:
            self._sent_count = len(parts)
        try:
            contents = ([each.content for each in requests] for requests in (looks, changes, entries))
            look_data, change_data, entry_data = contents
            result = await self._activities.exchange(
                SharedStateInput("", look_data, change_data, ended, entry_data, left, parts)
            )
            self._confirm(parts)
        finally:
            if parts:
                self._append_task = None
            if is_change:
                self._is_changing_state = False
        outcomes: list[tuple[PendingRequest, Any]] = [
            *zip(looks, result.matches, strict=True),
            *zip(entries, result.has_slot, strict=True),
            *((each, None) for each in changes),
        ]
        for each, outcome in outcomes:
            if not each.outcome.done():
                each.outcome.set_result(outcome)
        self._schedule()

    async def _append(self, parts: list[Append]) -> None:
        self._sent_count = len(parts)
        try:
            await self._activities.append(parts)
            self._confirm(parts)
        finally:
            self._append_task = None
        self._schedule()

    def _on_leaf_end(self, task: asyncio.Task[LeafOutcome], carried: list[Append]) -> None:
        if not task.cancelled() and task.exception() is None and task.result().is_from_worker:
            self._confirm(carried)
        elif carried:
            self._sent_count = 0  # it may have ended before it began
            self._schedule()

    def _confirm(self, parts: Sequence[Append]) -> None:
        """Forget the parts that are written."""
        for part in parts:
            self._written[part.run] = max(self._written.get(part.run, 0), part.rows[-1].seq)
        sent = [part for part in self._parts[: self._sent_count] if self._is_unwritten(part)]
        unsent = self._parts[self._sent_count :]
        self._parts, self._sent_count = [*sent, *unsent], len(sent)

    def send_all(self) -> None:
        """Send all rows that are not known to be written, also those that a leaf was given."""
        self._sent_count = 0
        self._schedule()

    @property
    def written(self) -> dict[str, int]:
        """The number of the last row of each run that is written."""
        return dict(self._written)
