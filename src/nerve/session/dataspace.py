"""The dataspace as people use it: facts go in and out, and some of them make workflows and runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from nerve.core.suggest import did_you_mean_hint
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.workflow import Workflow
from nerve.dataspace import Change, Fact, Pattern, Record, exactly
from nerve.dataspace.builtin_records import (
    DEFINITION_LABEL,
    INSTANCE_LABEL,
    LOG_LABEL,
    STATE_LABEL,
    workflow_definition,
)
from nerve.dataspace.observers import Observation
from nerve.errors import NerveError
from nerve.session import loader

if TYPE_CHECKING:
    from nerve.engine.durable_dataspace import ChangeReplyFactory, DurableDataspace
    from nerve.session.session import Session
    from nerve.spec.defined_workflow import DefinedWorkflow

log = logging.getLogger("nerve")

READ_ONLY_LABELS = (STATE_LABEL, LOG_LABEL)
"""What can be seen of runs and is said by nobody but them."""


class SessionDataspace:
    """The facts of one session. Every method takes a record or pattern as text, as JSON, or as an object."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def assert_fact(
        self, fact: Any, by: str = "", saying: ChangeReplyFactory | None = None
    ) -> asyncio.Task[Change | None]:
        """Assert a fact; what comes back can be awaited until it is on disk, and is None if it was there.

        A `workflow-definition` defines the workflow, a `workflow-instance` starts its run, once.
        """
        return start_background(self._assert(Record.of(fact), by, saying))

    def retract(
        self, pattern: Any, by: str = "", saying: ChangeReplyFactory | None = None
    ) -> asyncio.Task[list[Fact]]:
        """Retract the facts that fit; gives them. Retracting a `workflow-instance` stops its run."""
        return start_background(self._retract(Pattern.of(pattern), by, saying))

    def define(
        self, workflow: DefinedWorkflow, by: str = "", saying: ChangeReplyFactory | None = None
    ) -> asyncio.Task[Change | None]:
        """Register a workflow that was made, for as long as the fact stays that says so."""
        assert workflow.document is not None
        from nerve.notations.yaml_prompts import prompt_texts

        document = workflow.document
        prompts: dict[str, Any] = {**prompt_texts(document)}
        record = workflow_definition(workflow.name, workflow.kind, document.text, prompts=prompts)
        return start_background(self._store_definition(record, workflow, by, saying))

    def facts(self, pattern: Any = None) -> list[Fact]:
        """The facts that fit, in the order in which they were asserted; without a pattern, all."""
        return self._session.engine.dataspace.find_facts(pattern)

    def observe(self, pattern: Any) -> Observation:
        """The changes that concern a pattern, as an async iterator; first what is there."""
        return self._session.engine.dataspace.observe(pattern)

    async def _assert(self, record: Record, by: str, saying: ChangeReplyFactory | None) -> Change | None:
        if record.label in READ_ONLY_LABELS:
            raise ValueError(f"'{record.label}' is read from the journals of runs; nobody can assert it")
        if record.label == DEFINITION_LABEL:
            return await self._define(record, by, saying)
        if record.label == INSTANCE_LABEL:
            return await self._start_instance(record, by, saying)
        changes = await self._facts.change(asserted=[record], by=by, saying=saying)
        return changes[0] if changes else None

    async def _define(self, record: Record, by: str, saying: ChangeReplyFactory | None) -> Change | None:
        """Define a workflow; what cannot be read, or is not what it says it is, is not asserted."""
        workflow = loader.make_defined_workflow(self._session, self._read_definition(record))
        record_with_id = Record(DEFINITION_LABEL, record.fields, {**record.named, "id": workflow.name})
        return await self._store_definition(record_with_id, workflow, by, saying)

    async def _store_definition(
        self, record: Record, workflow: DefinedWorkflow, by: str, saying: ChangeReplyFactory | None
    ) -> Change | None:
        if (file := loader.workflow_file(self._session, workflow.name)) is not None:
            raise ValueError(
                f"workflow '{workflow.name}' is defined by the file {file}, which counts more:"
                " change that, or take another name"
            )
        changes = await self._facts.change(asserted=[record], by=by, saying=saying)
        loader.install_workflow(self._session, workflow)
        return changes[0] if changes else None

    def _read_definition(self, record: Record) -> loader.CheckedDefinition:
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
        definition = loader.read_checked_definition(self._session, source, notation, file, prompts)
        if id is not None and id not in (definition.name, definition.spec.name):
            raise ValueError(f"the workflow-definition '{id}' has the source of '{definition.spec.name}'")
        return definition

    async def _start_instance(
        self, record: Record, by: str, saying: ChangeReplyFactory | None
    ) -> Change | None:
        """Start a run; one that could not start is not asserted."""
        workflow, _, params = self._parse_instance(record)
        loader.check_start_params(self._session, workflow, params)
        existing = self._facts.find_asserted(record.id)
        if existing is not None and existing.record != record:
            raise ValueError(
                f"the instance '{record.get('label')}' of '{workflow.name}' is there already,"
                f" as {existing.record}. Retract it first, or take another label."
            )
        change = self._facts.change
        changes = await change(asserted=[record], by=by, saying=saying) if existing is None else []
        fact = changes[0].fact if changes else existing
        if fact is not None:
            await self.start(fact)
        return changes[0] if changes else None

    def _parse_instance(self, record: Record) -> tuple[Workflow, Any, dict[str, Any]]:
        """The workflow, the input and the parameters of an instance."""
        definition, context = record.get("definition"), record.get("context")
        workflow = self._session.get_workflow(str(definition))
        if workflow is None:
            known = did_you_mean_hint(str(definition), self._session.workflows)
            raise ValueError(f"there is no workflow '{definition}' to start{known}")
        if not isinstance(context, Mapping | None):
            raise ValueError(f"the :context of a workflow-instance is an object, not {context!r}")
        for name in ("label", "branch"):
            if not isinstance(record.get(name), str | None):
                raise ValueError(f"the :{name} of a workflow-instance is a text, not {record.get(name)!r}")
        params: dict[str, Any] = dict(context or {})
        return workflow, params.pop("input", None), params

    async def _retract(self, pattern: Pattern, by: str, saying: ChangeReplyFactory | None) -> list[Fact]:
        """What is only read from journals stays, but for an instance: taking that back stops its run."""
        facts = self._facts
        only_instances = pattern.json[0] == INSTANCE_LABEL
        matches = [
            fact
            for fact in (facts.find_facts(pattern) if only_instances else facts.space.facts(pattern))
            if fact.record.label == INSTANCE_LABEL or not facts.is_projected(fact)
        ]
        readings = {fact.id for fact in matches if facts.is_projected(fact)}
        patterns = [exactly(fact.record) for fact in matches]
        changes = await facts.change(retracted=patterns, by=by, saying=saying)
        for change in changes:
            await self._on_retracted(change.fact, change.fact.id in readings)
        return [change.fact for change in changes]

    async def _on_retracted(self, fact: Fact, is_reading: bool) -> None:
        if fact.record.label == DEFINITION_LABEL:
            from nerve.spec.defined_workflow import (
                DefinedWorkflow,
            )  # half a second, which other facts need not pay

            known = self._session.workflows.get(str(fact.record.get("id")))
            if isinstance(known, DefinedWorkflow) and known.definition()[1] == fact.record.get("source"):
                self._session.delete_workflow(known.name)
        elif fact.record.label == INSTANCE_LABEL:
            await self._stop_run(fact, is_reading)

    async def start(self, fact: Fact) -> WorkflowRun:
        """Start the run of an instance, if it has none yet; the fact is the key."""
        workflow, input, params = self._parse_instance(fact.record)
        label: Any = fact.record.get("label")
        branch: Any = fact.record.get("branch")
        return await self._session.start(
            workflow.name, input, params, key=instance_key(fact), label=label, branch=branch
        )

    async def _stop_run(self, fact: Fact, is_reading: bool) -> None:
        row = self._session.engine.store.run_by_key(self._session.name, instance_key(fact))
        id = fact.record.get("run") if is_reading else row.run if row is not None else None
        run = self._session.get_workflow_run(str(id)) if id is not None else None
        if run is not None and not run.is_complete:
            await run.stop("its workflow-instance was retracted")

    def define_all(self) -> None:
        """Define again what facts define, after a restart; what the process has loaded itself counts more."""
        for fact in self._facts.asserted_facts(DEFINITION_LABEL):
            try:
                definition = self._read_definition(fact.record)
                if definition.name not in self._session.workflows:
                    loader.define_workflow(self._session, definition)
            except (ValueError, NerveError) as error:
                log.warning("the workflow-definition '%s' is left alone: %s", fact.record.get("id"), error)

    async def start_all(self) -> list[WorkflowRun]:
        """Start the instances that were asserted and not started before a crash."""
        engine, runs = self._session.engine, []
        for fact in self._facts.asserted_facts(INSTANCE_LABEL):
            if engine.store.run_by_key(self._session.name, instance_key(fact)) is None:
                try:
                    runs.append(await self.start(fact))
                except (ValueError, NerveError) as error:
                    log.warning("the %s is left alone: %s", fact.record, error)
        return runs

    @property
    def _facts(self) -> DurableDataspace:
        return self._session.engine.dataspace


def instance_key(fact: Fact) -> str:
    """One run for each time that an instance was asserted anew."""
    return f"instance:{fact.id}:{fact.version}"


def start_background(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin at once, so that it is done whether or not anybody waits for it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
