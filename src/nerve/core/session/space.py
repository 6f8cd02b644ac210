"""The dataspace as people use it: facts go in and out, and some of them make workflows and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from nerve.core.workflow.run import WorkflowRun
from nerve.dataspace import Change, Fact, Pattern, Record
from nerve.dataspace.known import DEFINITION, INSTANCE
from nerve.dataspace.observers import Observation

if TYPE_CHECKING:
    from nerve.core.session.session import Session


class Space:
    """The facts of one session. Every method takes a record or pattern as text, as JSON, or as an object."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def assert_fact(self, fact: Any, by: str = "") -> asyncio.Task[Change | None]:
        """Assert a fact; what comes back can be awaited until it is on disk, and is None if it was there.

        A `workflow-definition` defines the workflow, a `workflow-instance` starts its run, once.
        """
        return begun(self._assert(Record.of(fact), by))

    def retract(self, pattern: Any, by: str = "") -> asyncio.Task[list[Fact]]:
        """Retract the facts that fit; gives them. Retracting a `workflow-instance` stops its run."""
        return begun(self._retract(Pattern.of(pattern), by))

    def facts(self, pattern: Any = None) -> list[Fact]:
        """The facts that fit, in the order in which they were asserted; without a pattern, all."""
        return self._session.engine.facts.present(pattern)

    def observe(self, pattern: Any) -> Observation:
        """The changes that concern a pattern, as an async iterator; first what is there."""
        return self._session.engine.facts.observe(pattern)

    async def _assert(self, record: Record, by: str) -> Change | None:
        session = self._session
        if record.label == DEFINITION:
            session.load(str(record.get("source") or ""), record.get("notation"))
        elif (
            record.label == INSTANCE
            and session.get_workflow(definition := str(record.get("definition"))) is None
        ):
            raise ValueError(f"there is no workflow '{definition}' to start")
        changes = await session.engine.facts.change(asserted=[record], by=by)
        if record.label == INSTANCE:
            await self.start(record)
        return changes[0] if changes else None

    async def _retract(self, pattern: Pattern, by: str) -> list[Fact]:
        changes = await self._session.engine.facts.change(retracted=[pattern], by=by)
        for change in changes:
            if change.fact.record.label == INSTANCE:
                await self._stop(change.fact.record)
        return [change.fact for change in changes]

    async def start(self, record: Record) -> WorkflowRun:
        """Start the run of an instance, if it has none yet; the fact is the key."""
        context: Any = record.get("context") or {}
        given = dict(context)
        return await self._session.start(
            str(record.get("definition")),
            given.pop("input", None),
            given,
            key=key_of(record),
            label=record.get("label"),
            branch=record.get("branch"),
        )

    async def _stop(self, record: Record) -> None:
        row = self._session.engine.store.run_by_key(self._session.name, key_of(record))
        run = self._session.get_workflow_run(row.run if row else str(record.get("run") or "-"))
        if run is not None and not run.is_complete:
            await run.stop("its workflow-instance was retracted")

    def define_all(self) -> None:
        """Define again what facts define, after a restart."""
        for fact in self._session.engine.facts.kept(DEFINITION):
            self._session.load(str(fact.record.get("source") or ""), fact.record.get("notation"))

    async def start_all(self) -> list[WorkflowRun]:
        """Start the instances that were asserted and not started before a crash."""
        engine = self._session.engine
        waiting = [fact.record for fact in engine.facts.kept(INSTANCE)]
        return [
            await self.start(record)
            for record in waiting
            if engine.store.run_by_key(self._session.name, key_of(record)) is None
        ]


def key_of(record: Record) -> str:
    return f"instance:{record.id}"


def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin at once, so that it is done whether or not anybody waits for it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
