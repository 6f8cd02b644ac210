"""The dataspace as people use it: facts go in and out, and some of them make workflows and runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from nerve.core.session import loading
from nerve.core.suggest import suggest
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.dataspace import Change, Fact, Pattern, Record, exactly
from nerve.dataspace.known import DEFINITION, INSTANCE, LOG, STATE, workflow_definition
from nerve.dataspace.observers import Observation
from nerve.errors import NerveError

if TYPE_CHECKING:
    from nerve.core.session.session import Session
    from nerve.engine.facts import Facts, Saying
    from nerve.spec.workflow import DefinedWorkflow

log = logging.getLogger("nerve")

READINGS = (STATE, LOG)
"""What can be seen of runs and is said by nobody but them."""


class Space:
    """The facts of one session. Every method takes a record or pattern as text, as JSON, or as an object."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def assert_fact(
        self, fact: Any, by: str = "", saying: Saying | None = None
    ) -> asyncio.Task[Change | None]:
        """Assert a fact; what comes back can be awaited until it is on disk, and is None if it was there.

        A `workflow-definition` defines the workflow, a `workflow-instance` starts its run, once.
        """
        return begun(self._assert(Record.of(fact), by, saying))

    def retract(self, pattern: Any, by: str = "", saying: Saying | None = None) -> asyncio.Task[list[Fact]]:
        """Retract the facts that fit; gives them. Retracting a `workflow-instance` stops its run."""
        return begun(self._retract(Pattern.of(pattern), by, saying))

    def define(
        self, workflow: DefinedWorkflow, by: str = "", saying: Saying | None = None
    ) -> asyncio.Task[Change | None]:
        """Register a workflow that was made, for as long as the fact stays that says so."""
        assert workflow.document is not None
        from nerve.notations.prompts import prompt_texts

        document = workflow.document
        prompts: dict[str, Any] = {**prompt_texts(document)}
        record = workflow_definition(workflow.name, workflow.kind, document.text, prompts=prompts)
        return begun(self._keep(record, workflow, by, saying))

    def facts(self, pattern: Any = None) -> list[Fact]:
        """The facts that fit, in the order in which they were asserted; without a pattern, all."""
        return self._session.engine.facts.present(pattern)

    def observe(self, pattern: Any) -> Observation:
        """The changes that concern a pattern, as an async iterator; first what is there."""
        return self._session.engine.facts.observe(pattern)

    async def _assert(self, record: Record, by: str, saying: Saying | None) -> Change | None:
        if record.label in READINGS:
            raise ValueError(f"'{record.label}' is read from the journals of runs; nobody can assert it")
        if record.label == DEFINITION:
            return await self._define(record, by, saying)
        if record.label == INSTANCE:
            return await self._instance(record, by, saying)
        changes = await self._facts.change(asserted=[record], by=by, saying=saying)
        return changes[0] if changes else None

    async def _define(self, record: Record, by: str, saying: Saying | None) -> Change | None:
        """Define a workflow; what cannot be read, or is not what it says it is, is not asserted."""
        workflow = loading.made(self._session, self._read(record))
        named = Record(DEFINITION, record.fields, {**record.named, "id": workflow.name})
        return await self._keep(named, workflow, by, saying)

    async def _keep(
        self, record: Record, workflow: DefinedWorkflow, by: str, saying: Saying | None
    ) -> Change | None:
        if (file := loading.file_of(self._session, workflow.name)) is not None:
            raise ValueError(
                f"workflow '{workflow.name}' is defined by the file {file}, which counts more:"
                " change that, or take another name"
            )
        changes = await self._facts.change(asserted=[record], by=by, saying=saying)
        loading.put(self._session, workflow)
        return changes[0] if changes else None

    def _read(self, record: Record) -> loading.Read:
        source, notation = record.get("source"), record.get("notation")
        if not isinstance(source, str) or not source.strip():
            raise ValueError("a workflow-definition needs a :source, the text of the workflow")
        if notation is not None and not isinstance(notation, str):
            raise ValueError(f"the :notation of a workflow-definition is a name, not {notation!r}")
        id, prompts = record.get("id"), record.get("prompts")
        if prompts is not None and not (
            isinstance(prompts, Mapping) and all(isinstance(text, str) for text in prompts.values())
        ):
            raise ValueError("the :prompts of a workflow-definition are texts by their names")
        file = f"{id}" if isinstance(id, str) else None
        read = loading.read_text(self._session, source, notation, file, prompts)
        if id is not None and id not in (read.name, read.spec.name):
            raise ValueError(f"the workflow-definition '{id}' has the source of '{read.spec.name}'")
        return read

    async def _instance(self, record: Record, by: str, saying: Saying | None) -> Change | None:
        """Start a run; one that could not start is not asserted."""
        workflow, _, given = self._asked(record)
        loading.check_start(self._session, workflow, given)
        there = self._facts.kept_as(record.id)
        if there is not None and there.record != record:
            raise ValueError(
                f"the instance '{record.get('label')}' of '{workflow.name}' is there already,"
                f" as {there.record}. Retract it first, or take another label."
            )
        change = self._facts.change
        changes = await change(asserted=[record], by=by, saying=saying) if there is None else []
        fact = changes[0].fact if changes else there
        if fact is not None:
            await self.start(fact)
        return changes[0] if changes else None

    def _asked(self, record: Record) -> tuple[Workflow, Any, dict[str, Any]]:
        """The workflow, the input and the parameters of an instance."""
        definition, context = record.get("definition"), record.get("context")
        workflow = self._session.get_workflow(str(definition))
        if workflow is None:
            known = suggest(str(definition), self._session.workflows)
            raise ValueError(f"there is no workflow '{definition}' to start{known}")
        if not isinstance(context, Mapping | None):
            raise ValueError(f"the :context of a workflow-instance is an object, not {context!r}")
        for name in ("label", "branch"):
            if not isinstance(record.get(name), str | None):
                raise ValueError(f"the :{name} of a workflow-instance is a text, not {record.get(name)!r}")
        given: dict[str, Any] = dict(context or {})
        return workflow, given.pop("input", None), given

    async def _retract(self, pattern: Pattern, by: str, saying: Saying | None) -> list[Fact]:
        """What is only read from journals stays, but for an instance: taking that back stops its run."""
        facts = self._facts
        named = pattern.json[0] == INSTANCE
        found = [
            fact
            for fact in (facts.present(pattern) if named else facts.space.facts(pattern))
            if fact.record.label == INSTANCE or not facts.is_reading(fact)
        ]
        readings = {fact.id for fact in found if facts.is_reading(fact)}
        gone = [exactly(fact.record) for fact in found]
        changes = await facts.change(retracted=gone, by=by, saying=saying)
        for change in changes:
            await self._gone(change.fact, change.fact.id in readings)
        return [change.fact for change in changes]

    async def _gone(self, fact: Fact, reading: bool) -> None:
        if fact.record.label == DEFINITION:
            from nerve.spec.workflow import DefinedWorkflow  # half a second, which other facts need not pay

            known = self._session.workflows.get(str(fact.record.get("id")))
            if isinstance(known, DefinedWorkflow) and known.definition()[1] == fact.record.get("source"):
                self._session.delete_workflow(known.name)
        elif fact.record.label == INSTANCE:
            await self._stop(fact, reading)

    async def start(self, fact: Fact) -> WorkflowRun:
        """Start the run of an instance, if it has none yet; the fact is the key."""
        workflow, input, given = self._asked(fact.record)
        label: Any = fact.record.get("label")
        branch: Any = fact.record.get("branch")
        return await self._session.start(
            workflow.name, input, given, key=key_of(fact), label=label, branch=branch
        )

    async def _stop(self, fact: Fact, reading: bool) -> None:
        row = self._session.engine.store.run_by_key(self._session.name, key_of(fact))
        id = fact.record.get("run") if reading else row.run if row is not None else None
        run = self._session.get_workflow_run(str(id)) if id is not None else None
        if run is not None and not run.is_complete:
            await run.stop("its workflow-instance was retracted")

    def define_all(self) -> None:
        """Define again what facts define, after a restart; what the process has loaded itself counts more."""
        for fact in self._facts.kept(DEFINITION):
            try:
                read = self._read(fact.record)
                if read.name not in self._session.workflows:
                    loading.define(self._session, read)
            except (ValueError, NerveError) as error:
                log.warning("the workflow-definition '%s' is left alone: %s", fact.record.get("id"), error)

    async def start_all(self) -> list[WorkflowRun]:
        """Start the instances that were asserted and not started before a crash."""
        engine, runs = self._session.engine, []
        for fact in self._facts.kept(INSTANCE):
            if engine.store.run_by_key(self._session.name, key_of(fact)) is None:
                try:
                    runs.append(await self.start(fact))
                except (ValueError, NerveError) as error:
                    log.warning("the %s is left alone: %s", fact.record, error)
        return runs

    @property
    def _facts(self) -> Facts:
        return self._session.engine.facts


def key_of(fact: Fact) -> str:
    """One run for each time that an instance was asserted anew."""
    return f"instance:{fact.id}:{fact.version}"


def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin at once, so that it is done whether or not anybody waits for it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
