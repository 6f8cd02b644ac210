"""Listening: one stream of the events of all runs keeps the desk true, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from heapq import merge
from itertools import chain, repeat
from typing import TYPE_CHECKING

from nerve.api import ApiError
from nerve.api.models import EventTold
from nerve.commander.core.desk import Desk
from nerve.commander.core.waits import STARTS
from nerve.commander.home import EmptyFolder
from nerve.commander.sentences import sentence, unforeseen
from nerve.errors import NerveError

if TYPE_CHECKING:
    from nerve.client import Client

log = logging.getLogger("nerve")

RUNS = 200
"""Runs that are listed at first."""
RESULT = 4096
"""Characters of a result in that list; a run that is looked at has all of its own."""
PAGE = 5000
"""Events that are asked for at once."""
PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between the attempts to hear of the runs again; the last again and again."""
FIRST = 20.0
"""Seconds in which a server should have said what there is."""


class Listening:
    """Feeds a desk. What was missed is asked for again; what came twice is taken once."""

    def __init__(
        self,
        client: Client,
        desk: Desk,
        heard: Callable[[], None],
        revive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`heard` is called after anything was taken in; `revive` gets a server that is gone going again."""
        self._client, self._desk, self._heard, self._revive = client, desk, heard, revive
        self._task: asyncio.Task[None] | None = None
        self._begun, self._filled = asyncio.Event(), asyncio.Event()
        self._lock = asyncio.Lock()
        self._kept: dict[str, list[EventTold]] = {}
        """Events of runs whose past is being asked for: they are taken after it."""
        self._told = ""
        self._losses: set[str] = set()
        self._trying: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Return when the desk is filled, or nobody can be reached so far."""
        self._task = asyncio.create_task(self._listen())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST):
                await self._begun.wait()

    async def ready(self) -> None:
        """Return when it is known what there is; ApiError or EmptyFolder if that cannot be found out."""
        if self._desk.empty:
            raise EmptyFolder(self._told)
        try:
            async with asyncio.timeout(FIRST):
                await self._filled.wait()
        except TimeoutError:
            told = self._told or "The server has not answered yet."
            raise ApiError("busy", told, "Try again in a moment.") from None

    async def close(self) -> None:
        tasks = [*self._trying, *([self._task] if self._task is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with contextlib.aclosing(self._client.news()) as news:
                    async for event in news:
                        if event is None:
                            await self._refresh()
                            failures = 0
                        else:
                            await self._take(event)
            except ApiError as error:
                if error.code != "conflict":
                    await self._lost(error)
            except Exception as error:  # somebody must go on listening, whatever was said
                log.exception("listening failed")
                await self._lost(ApiError("internal", unforeseen(error)))
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def _lost(self, error: ApiError) -> None:
        """Nobody is there: say so, once, and see whether somebody can be."""
        self._connected(False)
        told, empty = sentence(error), False
        if error.code == "busy" and self._revive is not None:
            try:
                await self._revive()
                return
            except NerveError as why:
                told, empty = str(why), isinstance(why, EmptyFolder)
            finally:
                self._desk.set_empty(empty)
        if told != self._told:
            self._told = told
            self._desk.say("note" if empty else "error", told)
        self._begun.set()

    def _connected(self, connected: bool) -> None:
        if connected != self._desk.connected:
            self._desk.connected = connected
            self._desk.flag("connected")

    # -- what there is -----------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Ask for everything that may have changed unheard."""
        async with self._lock:
            runs = await self._client.runs(limit=RUNS, largest=RESULT)
            gates = await self._client.gates()
            self._desk.list_runs(runs.runs)
            self._desk.list_gates(gates.gates)
        await self.reload()
        self._connected(True)
        self._told = ""
        for run_id in [each for each, card in self._desk.runs.items() if card.tree is not None]:
            if not self._desk.is_over(run_id):
                await self._catch_up(run_id)
        self._begun.set()
        self._filled.set()
        self._heard()
        await self._report_loss()

    async def _report_loss(self) -> None:
        """Show, once for each, what the store of the server has lost."""
        loss = (await self._client.health()).loss
        if loss is not None and loss not in self._losses:
            self._losses.add(loss)
            self._desk.say("error", loss)
            self._heard()

    async def reload(self) -> None:
        """Ask for the names of what can be started."""
        told = await self._client.workflows()
        desk = self._desk
        if (told.workflows, told.nodes, told.graphs) != (desk.workflows, desk.nodes, desk.graphs):
            desk.workflows, desk.nodes, desk.graphs = told.workflows, told.nodes, told.graphs
            desk.flag("workflows")

    def look_again(self) -> None:
        """Ask for the names meanwhile: files come and change."""
        if self._task is not None and self._desk.connected:
            asking = asyncio.create_task(self._looked_again())
            self._trying.add(asking)
            asking.add_done_callback(self._trying.discard)

    async def _looked_again(self) -> None:
        with contextlib.suppress(ApiError):  # what is known will do
            await self.reload()
        self._heard()

    async def look(self, run: str) -> str:
        """Make sure that a run has a card, or the one that called it; the id of that."""
        told = await self._client.run(run=run)
        while told.parent is not None:
            told = await self._client.run(run=told.parent)
        self._desk.list_runs([told])
        return told.run_id

    # -- runs --------------------------------------------------------------------------------------------

    async def follow(self, run_id: str, routed: bool = False) -> None:
        """Show a run from its first event on."""
        if self._desk.block_of(run_id) is None:
            self._kept.setdefault(run_id, [])
            self._desk.follow(run_id, routed)
            try:
                await self._catch_up(run_id)
            except ApiError:
                self._try_again(run_id)
            self._heard()

    def _try_again(self, run_id: str) -> None:
        """Try again to read the past of a run: it may have ended, and then nothing more comes of it."""
        trying = asyncio.create_task(self._trying_again(run_id))
        self._trying.add(trying)
        trying.add_done_callback(self._trying.discard)

    async def _trying_again(self, run_id: str) -> None:
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            await asyncio.sleep(pause)
            try:
                await self._catch_up(run_id)
            except ApiError:
                continue
            self._heard()
            return

    async def _take(self, event: EventTold) -> None:
        desk = self._desk
        root = desk.root_of(event.run_id)
        if root in self._kept:
            self._kept[root].append(event)
            return
        if desk.behind(event.run_id, event.seq):
            await self._catch_up(root)
        if root not in desk.runs and event.event_type != "workflow_started":
            await self._stranger(root)
        desk.take(event)
        self._heard()

    async def _stranger(self, run_id: str) -> None:
        """A run moves that was too old to be listed."""
        with contextlib.suppress(ApiError):
            self._desk.list_runs([await self._client.run(run=run_id)])

    async def _catch_up(self, root: str) -> None:
        """Take in what happened in a run, and in those it called, behind what was seen of them."""
        self._kept.setdefault(root, [])
        try:
            async with self._lock:
                self._desk.take_all(await self._past(root))
        finally:
            for event in self._kept.pop(root, []):
                if not self._desk.behind(event.run_id, event.seq):  # it is asked for again, in its order
                    self._desk.take(event)

    async def _past(self, root: str) -> list[EventTold]:
        """The events of a run and of those it called, in the order in which they happened."""
        pasts: list[list[EventTold]] = []
        runs, known = [root], set(self._desk.shown_in(root))
        runs += sorted(known - {root})
        for run_id in runs:
            past = await self._events(run_id, self._desk.seen(run_id) or 0)
            pasts.append(past)
            called = [event.data.get("child") for event in past if event.event_type in STARTS]
            runs += [child for child in called if child and child not in known]
            known.update(child for child in called if child)
        return list(merge(*pasts, key=lambda event: event.timestamp))

    async def _events(self, run_id: str, after: int) -> list[EventTold]:
        found: list[EventTold] = []
        more = True
        while more:
            try:
                page = await self._client.events(run=run_id, after=after, limit=PAGE)
            except ApiError as error:
                if error.code != "not_found":  # a run that is about to be called will tell of itself
                    raise
                break
            found += page.events
            after, more = (page.events[-1].seq if page.events else after), page.more
        return found
