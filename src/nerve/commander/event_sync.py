"""Event synchronization: one stream of all events keeps the state current across server restarts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from heapq import merge
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from nerve.api import ApiError
from nerve.api.models import EventResponse, QueueResponse, TriggerResponse
from nerve.background_tasks import cancel_tasks, wait_for_event
from nerve.commander.core.state import CommanderState
from nerve.commander.project_server import EmptyFolder
from nerve.core.events import STEP_START_EVENTS, WorkflowEventType
from nerve.errors import NerveError
from nerve.ui.failure_text import api_error_sentence, format_unexpected_error

if TYPE_CHECKING:
    from nerve.client import Client

log = logging.getLogger("nerve")

INITIAL_RUNS = 200
"""Number of runs that the first load lists."""
MAX_LISTED_RESULT_CHARS = 4096
"""Maximum characters of a result in the run list; a followed run has its complete result."""
EVENTS_PAGE_SIZE = 5000
"""Events per request."""
RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between reconnect attempts; the last value repeats."""
FIRST_LOAD_TIMEOUT_S = 20.0
"""Seconds to wait for the first load."""


class EventSync:
    """Feeds the state with events: loads missed events and ignores duplicates."""

    def __init__(
        self,
        client: Client,
        state: CommanderState,
        on_update: Callable[[], None],
        restart_server: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_update` is called after each change; `restart_server` starts a server that has exited."""
        self._client, self._state = client, state
        self._on_update, self._restart_server = on_update, restart_server
        self._task: asyncio.Task[None] | None = None
        self._first_attempt_done, self._loaded = asyncio.Event(), asyncio.Event()
        self._lock = asyncio.Lock()
        self._buffered: dict[str, list[EventResponse]] = {}
        """Live events of runs whose missed events are being loaded; applied after those."""
        self._last_problem = ""
        self._reported_losses: set[str] = set()
        self._background_tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start synchronization; return when the state is loaded or the first attempt failed."""
        self._task = asyncio.create_task(self._listen())
        await wait_for_event(self._first_attempt_done, FIRST_LOAD_TIMEOUT_S)

    async def wait_loaded(self) -> None:
        """Return when the state is loaded; raise ApiError or EmptyFolder if it cannot be."""
        if self._state.is_project_missing:
            raise EmptyFolder(self._last_problem)
        try:
            async with asyncio.timeout(FIRST_LOAD_TIMEOUT_S):
                await self._loaded.wait()
        except TimeoutError:
            problem = self._last_problem or "The server has not answered yet."
            raise ApiError("busy", problem, "Try again in a moment.") from None

    async def close(self) -> None:
        tasks = [*self._background_tasks, *([self._task] if self._task is not None else ())]
        await cancel_tasks(*tasks)
        self._task = None

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with contextlib.aclosing(self._client.all_events()) as stream:
                    async for event in stream:
                        if event is None:
                            await self._refresh()
                            failures = 0
                        else:
                            await self._apply_event(event)
            except ApiError as error:
                if error.code != "conflict":
                    await self._handle_disconnect(error)
            except Exception as error:  # synchronization must survive any error
                log.exception("event stream failed")
                await self._handle_disconnect(ApiError("internal", format_unexpected_error(error)))
            await asyncio.sleep(RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S) - 1)])
            failures += 1

    async def _handle_disconnect(self, error: ApiError) -> None:
        """Report a lost connection once, and try to restart the server."""
        self._set_connected(False)
        problem, is_project_missing = api_error_sentence(error), False
        if error.code == "busy" and self._restart_server is not None:
            try:
                await self._restart_server()
                return
            except NerveError as restart_error:
                problem, is_project_missing = str(restart_error), isinstance(restart_error, EmptyFolder)
            finally:
                self._state.set_project_missing(is_project_missing)
        if problem != self._last_problem:
            self._last_problem = problem
            self._state.add_block("note" if is_project_missing else "error", problem)
        self._first_attempt_done.set()

    def _set_connected(self, is_connected: bool) -> None:
        if is_connected != self._state.is_connected:
            self._state.is_connected = is_connected
            self._state.raise_flags("connected")

    # -- loading -----------------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Reload everything that may have changed while disconnected."""
        async with self._lock:
            runs = await self._client.runs(limit=INITIAL_RUNS, largest=MAX_LISTED_RESULT_CHARS)
            gates = await self._client.all_gates()
            self._state.merge_runs(runs.runs)
            self._state.replace_gates(gates)
        await self.reload_workflows()
        await self.load_queues()
        self._set_connected(True)
        self._last_problem = ""
        for run_id in [
            followed_id for followed_id, card in self._state.runs.items() if card.tree is not None
        ]:
            if not self._state.has_seen_end(run_id):
                await self._catch_up(run_id)
        self._first_attempt_done.set()
        self._loaded.set()
        self._on_update()
        await self._report_loss()

    async def _report_loss(self) -> None:
        """Report each data loss of the server's store once."""
        loss = (await self._client.health()).loss
        if loss is not None and loss not in self._reported_losses:
            self._reported_losses.add(loss)
            self._state.add_block("error", loss)
            self._on_update()

    async def reload_workflows(self) -> None:
        """Reload the workflows, nodes and graphs."""
        response = await self._client.workflows()
        state = self._state
        if (response.workflows, response.nodes, response.graphs) != (
            state.workflows,
            state.nodes,
            state.graphs,
        ):
            state.workflows, state.nodes, state.graphs = response.workflows, response.nodes, response.graphs
            state.raise_flags("workflows")

    async def load_queues(self) -> list[QueueResponse]:
        """Return the queues as they are now."""
        queues = (await self._client.queues()).queues
        self._state.queue_names = [queue.name for queue in queues]
        return queues

    async def load_triggers(self) -> list[TriggerResponse]:
        """Return the triggers as they are now."""
        return (await self._client.triggers()).triggers

    def reload_in_background(self) -> None:
        """Reload the workflows in the background, because files may have changed."""
        if self._task is not None and self._state.is_connected:
            self._start_in_background(self._reload_quietly())

    def _start_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _reload_quietly(self) -> None:
        with contextlib.suppress(ApiError):  # the known names remain usable
            await self.reload_workflows()
        self._on_update()

    async def load_run(self, run: str) -> str:
        """Load the root run of a run into the state and return its id."""
        loaded_run = await self._client.run(run=run)
        while loaded_run.parent is not None:
            loaded_run = await self._client.run(run=loaded_run.parent)
        self._state.merge_runs([loaded_run])
        return self._state.root_of(loaded_run.run_id)

    # -- runs --------------------------------------------------------------------------------------------

    async def follow(self, run_id: str, routed: bool = False) -> None:
        """Show a run from its first event."""
        if self._state.block_of_run(run_id) is None:
            self._buffered.setdefault(run_id, [])
            self._state.show_run(run_id, routed)
            try:
                await self._catch_up(run_id)
            except ApiError:
                self._start_in_background(self._catch_up_with_retries(run_id))
            self._on_update()

    async def _catch_up_with_retries(self, run_id: str) -> None:
        """Retry loading the events of a run; an ended run sends no new event that would trigger it."""
        for pause in chain(RETRY_DELAYS_S, repeat(RETRY_DELAYS_S[-1])):
            await asyncio.sleep(pause)
            try:
                await self._catch_up(run_id)
            except ApiError:
                continue
            self._on_update()
            return

    async def _apply_event(self, event: EventResponse) -> None:
        state = self._state
        root = state.root_of(event.run_id)
        if root in self._buffered:
            self._buffered[root].append(event)
            return
        if state.has_gap_before(event.run_id, event.seq):
            await self._catch_up(root)
        if root not in state.runs and event.event_type != WorkflowEventType.STARTED:
            with contextlib.suppress(ApiError):  # a run that was too old for the first list
                state.merge_runs([await self._client.run(run=root)])
        state.apply_event(event)
        self._on_update()

    async def _catch_up(self, root: str) -> None:
        """Apply the events of a run and its children that the state does not have yet."""
        self._buffered.setdefault(root, [])
        try:
            async with self._lock:
                self._state.apply_events(await self._load_missed_events(root))
        finally:
            for event in self._buffered.pop(root, []):
                if not self._state.has_gap_before(
                    event.run_id, event.seq
                ):  # a later event loads the gap in order
                    self._state.apply_event(event)

    async def _load_missed_events(self, root: str) -> list[EventResponse]:
        """Return the missed events of a run and its children, by timestamp."""
        event_lists: list[list[EventResponse]] = []
        runs = self._state.runs_in_tree(root)
        known = {root, *runs}
        for run_id in runs:
            run_events = await self.load_events(run_id, self._state.last_seq(run_id) or 0)
            event_lists.append(run_events)
            child_ids = [
                event.data.get("child") for event in run_events if event.event_type in STEP_START_EVENTS
            ]
            runs += [child for child in child_ids if child and child not in known]
            known.update(child for child in child_ids if child)
        return list(merge(*event_lists, key=lambda event: event.timestamp))

    async def load_events(self, run_id: str, after: int = 0) -> list[EventResponse]:
        """Return the events of a run after an event number; none of a run that does not exist yet."""
        try:
            events = self._client.history(run_id, after, limit=EVENTS_PAGE_SIZE)
            return [event async for event in events]
        except ApiError as error:
            if error.code != "not_found":  # a new child sends its events when it starts
                raise
            return []
