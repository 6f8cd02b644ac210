"""Sessions whose runs Temporal executes, with workers in this process, for tests of both engines."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.temporal.memory_projection import MemoryProjection
from engine.temporal.temporal_runs import connect
from nerve import Session
from nerve.core.clock import SYSTEM_CLOCK
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATES, OPEN_STATE_VALUES
from nerve.engine.fork import ForkPlan
from nerve.engine.hosted_engines import HostedEngines
from nerve.engine.local_engine import restore_run
from nerve.engine.temporal.api_engine import TemporalEngine
from nerve.engine.temporal.body_worker import run_body_worker
from nerve.engine.temporal.cluster_facts import ClusterFacts
from nerve.engine.temporal.command_delivery import CommandDelivery
from nerve.engine.temporal.fact_delivery import FactDelivery
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker
from nerve.engine.temporal.messages import RunInput, leaf_queue
from nerve.journal.index import read_limits, read_start
from nerve.store.memory import MemoryStore
from nerve.store.port import Append
from nerve.store.postgres_projection import StepAttempt

if TYPE_CHECKING:
    import pytest
    from temporalio.client import Client

    from temporal_server import TemporalServer

TEST_TIMEOUT_S = 60


class FollowedProjection(MemoryProjection):
    """A projection that reports its changes to the engine of the open session."""

    def __init__(self, url: str, session: str) -> None:
        super().__init__(session)
        self.url = url
        """The URL of the namespace with the workflows."""
        self.engine: FollowingEngine | None = None

    def append(self, run: str, parts: Sequence[Append], attempt: StepAttempt | None = None) -> int:
        engine, outcome = self.engine, Future[int]()

        def write() -> None:
            try:
                outcome.set_result(super(FollowedProjection, self).append(run, parts, attempt))
            except BaseException as error:
                outcome.set_exception(error)
            else:
                if engine is not None:
                    engine.show_rows(run)

        if engine is None or engine.loop is None or engine.loop.is_closed():
            write()
        else:
            # In the thread of the tests, which read the store.
            engine.loop.call_soon_threadsafe(write)
        return outcome.result()


class FollowingEngine(TemporalEngine):
    """Executes the runs of one session in workers of its own, and keeps the handles of runs up to date."""

    def __init__(self, session: Session, projection: FollowedProjection) -> None:
        super().__init__(
            projection.store,
            session,
            session.name,
            SYSTEM_CLOCK,
            None,  # type: ignore[arg-type]  # set when it is connected
            projection,  # type: ignore[arg-type]
        )
        self.session, self.projection = session, projection
        self.loop: asyncio.AbstractEventLoop | None = None
        self._shown: defaultdict[str, int] = defaultdict(int)
        for row in self.store.runs():
            self._shown[row.run] = self.store.events(row.run)[-1].seq
        self._workers: asyncio.Task[None] | None = None
        self._connected: asyncio.Future[Client] | None = None
        projection.engine = self

    async def connect(self) -> None:
        """Start the workers; return when they can be given work."""
        if self._workers is None:
            self.loop = asyncio.get_running_loop()
            self._connected, self._closing = self.loop.create_future(), asyncio.Event()
            self._workers = asyncio.create_task(self._work())
        assert self._connected is not None
        await asyncio.wait([self._connected, self._workers], return_when=asyncio.FIRST_COMPLETED)
        self._client = self._connected.result()

    async def _work(self) -> None:
        session, projection = self.session, self.projection
        client = await connect(projection.url, projection)
        self._delivery = FactDelivery(CommandDelivery(client), ClusterFacts(projection, session.name))
        executor = LeafExecutor(session, client, projection, projection.store)
        providers = [leaf_queue(session.name, name) for name in session.providers]
        async with (
            run_body_worker(client, session, MemoryStore, projection),
            LeafWorker(client, executor, [leaf_queue(session.name), *providers]).running(),
        ):
            assert self._connected is not None
            self._connected.set_result(client)
            await self._closing.wait()

    async def recover(self) -> Any:
        await self.connect()
        rows = self.store.runs(session=self.session.name, states=OPEN_STATE_VALUES)
        return [self.run_handle(row) for row in rows if row.parent is None]

    async def close(self) -> None:
        if self._workers is not None:
            self._closing.set()
            # A test that took too long cancelled them, and pytest ends no fixture after a CancelledError.
            await asyncio.wait([self._workers])
            if not self._workers.cancelled():
                self._workers.result()
        self.projection.engine = None
        await super().close()

    async def start(self, run: WorkflowRun, key: str | None = None, **lineage: Any) -> None:
        self.run_handles[run.run_id] = run
        self.attach_sinks(run)
        await super().start(run, key, **lineage)

    async def start_once(self, run: WorkflowRun, key: str) -> WorkflowRun:
        await self.connect()
        return await super().start_once(run, key)

    async def _start_workflow(self, given: RunInput) -> None:
        await self.connect()
        await super()._start_workflow(given)

    async def _start_planned(self, plan: ForkPlan, *arguments: Any, **options: Any) -> WorkflowRun:
        run = await super()._start_planned(plan, *arguments, **options)
        self.run_handles[run.run_id] = run
        self.attach_sinks(run)
        self._show_current(run)
        return run

    async def _command(self, run: WorkflowRun, *arguments: Any, **options: Any) -> Any:
        await self.connect()
        command = asyncio.ensure_future(super()._command(run, *arguments, **options))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([command, closing], return_when=asyncio.FIRST_COMPLETED)
            if not command.done():
                raise RuntimeError("The session is closed")
            return command.result()
        finally:
            closing.cancel()
            command.cancel()

    def show_rows(self, run_id: str) -> None:
        """Set the handles of a run, and of the runs that it belongs to, from its journal."""
        if self.closed or (row := self.store.run(run_id)) is None:
            return
        run = self.run_handle(row)
        new = self.store.events(run_id, self._shown[run_id])
        if not new:
            return
        self._shown[run_id] = new[-1].seq
        self._show_current(run)
        self.publish(run, new, row.parent)
        for enclosing, _ in [(run_id, ""), *self.enclosing_runs(run_id)]:
            if (handle := self.run_handles.get(enclosing)) is not None:
                self._show_current(handle)

    def _show_current(self, run: WorkflowRun) -> None:
        row, rows = self.store.run(run.run_id), self.store.events(run.run_id)
        assert row is not None
        restore_run(run, row, rows)
        run.run_state.limits = read_limits(read_start(self.store, run.run_id), rows)
        run.run_state.children = {}
        if run.run_state.status not in FINAL_STATES:
            run.run_state.children = dict(self.children_of(run))
        run.run_state.notify_watchers()


class TemporalSessions:
    """Lets all sessions of a test use Temporal. Those with the same store continue each other's runs."""

    def __init__(self, server: TemporalServer) -> None:
        self._server = server
        self._projections: dict[Any, FollowedProjection] = {}
        self._engines: list[FollowingEngine] = []

    def replace_engines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Session, "engine", property(self._engine_of))

    def _engine_of(self, session: Session) -> Any:
        if session._engine is None:
            store = session._store
            key = str(store) if isinstance(store, str | Path) else id(session if store is None else store)
            if key not in self._projections:
                namespace = self._server.create_namespace()
                self._projections[key] = FollowedProjection(self._server.url(namespace), session.name)
            engine = FollowingEngine(session, self._projections[key])
            self._engines.append(engine)
            session.use_engine(HostedEngines(lambda: engine))
        return session._engine

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """End a test that hangs, and close what it has left open."""
        tests = asyncio.all_tasks()
        watchdog = asyncio.create_task(self._cancel_late(tests))
        yield
        watchdog.cancel()
        for engine in self._engines:
            if not engine.closed:
                await engine.close()

    async def _cancel_late(self, before: set[asyncio.Task[Any]]) -> None:
        await asyncio.sleep(TEST_TIMEOUT_S)
        own = asyncio.current_task()
        for task in asyncio.all_tasks() - before - {own}:
            if getattr(task.get_coro(), "__name__", "").startswith("test_"):
                task.cancel(f"not ended after {TEST_TIMEOUT_S} s")
