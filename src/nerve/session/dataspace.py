"""The dataspace of a session. Some facts define workflows or start runs."""

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
"""Labels of facts that are projected from journals and cannot be asserted."""


class SessionDataspace:
    """The facts of one session. Methods accept a record or pattern as a string, as JSON, or as an object."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def assert_fact(
        self, fact: Any, by: str = "", make_reply: ChangeReplyFactory | None = None
    ) -> asyncio.Task[Change | None]:
        """Assert a fact; the returned task ends when it is on disk, with None if the fact existed.

        A `workflow-definition` defines a workflow; a `workflow-instance` starts its run, once.
        """
        return start_background(self._assert(Record.of(fact), by, make_reply))

    def retract(
        self, pattern: Any, by: str = "", make_reply: ChangeReplyFactory | None = None
    ) -> asyncio.Task[list[Fact]]:
        """Retract and return the facts that match. Retracting a `workflow-instance` stops its run."""
        return start_background(self._retract(Pattern.of(pattern), by, make_reply))

    def define(
        self, workflow: DefinedWorkflow, by: str = "", make_reply: ChangeReplyFactory | None = None
    ) -> asyncio.Task[Change | None]:
        """Register a workflow by asserting its definition; retracting that fact removes the workflow."""
        assert workflow.document is not None
        from nerve.notations.yaml_prompts import prompt_texts

        document = workflow.document
        prompts: dict[str, Any] = {**prompt_texts(document)}
        record = workflow_definition(workflow.name, workflow.kind, document.text, prompts=prompts)
        return start_background(self._store_definition(record, workflow, by, make_reply))

    def facts(self, pattern: Any = None) -> list[Fact]:
        """Return the facts that match, or all facts, in the order of their assertion."""
        return self._session.engine.dataspace.find_facts(pattern)

    def asserted_facts(self, pattern: Any = None) -> list[Fact]:
        """Return the facts that match, without those projected from definitions and the journals of runs."""
        facts = self._facts
        matches = facts.space.facts(None if pattern is None else Pattern.of(pattern))
        return [fact for fact in matches if not facts.is_projected(fact)]

    def observe(self, pattern: Any) -> Observation:
        """Return an async iterator over the matching facts, then over their changes."""
        return self._session.engine.dataspace.observe(pattern)

    async def _assert(self, record: Record, by: str, make_reply: ChangeReplyFactory | None) -> Change | None:
        if record.label in READ_ONLY_LABELS:
            raise ValueError(
                f"'{record.label}' facts are read from the journals of runs and cannot be asserted"
            )
        if record.label == DEFINITION_LABEL:
            return await self._define(record, by, make_reply)
        if record.label == INSTANCE_LABEL:
            return await self._start_instance(record, by, make_reply)
        changes = await self._session.engine.change_facts(asserted=[record], by=by, make_reply=make_reply)
        return changes[0] if changes else None

    async def _define(self, record: Record, by: str, make_reply: ChangeReplyFactory | None) -> Change | None:
        """Define a workflow; an unreadable or inconsistent definition is not asserted."""
        workflow = loader.make_defined_workflow(self._session, self._read_definition(record))
        record_with_id = Record(DEFINITION_LABEL, record.fields, {**record.named, "id": workflow.name})
        return await self._store_definition(record_with_id, workflow, by, make_reply)

    async def _store_definition(
        self, record: Record, workflow: DefinedWorkflow, by: str, make_reply: ChangeReplyFactory | None
    ) -> Change | None:
        if (file := loader.workflow_file(self._session, workflow.name)) is not None:
            raise ValueError(
                f"Workflow '{workflow.name}' is defined by the file {file}, which takes precedence."
                " Change the file, or use another name"
            )
        changes = await self._session.engine.change_facts(asserted=[record], by=by, make_reply=make_reply)
        loader.install_workflow(self._session, workflow)
        return changes[0] if changes else None

    def _read_definition(self, record: Record) -> loader.CheckedDefinition:
        source, notation = record.get("source"), record.get("notation")
        if not isinstance(source, str) or not source.strip():
            raise ValueError("A workflow-definition needs a :source, the text of the workflow")
        if notation is not None and not isinstance(notation, str):
            raise ValueError(f":notation of a workflow-definition must be a string, got {notation!r}")
        id, prompts = record.get("id"), record.get("prompts")
        if prompts is not None and not (
            isinstance(prompts, Mapping) and all(isinstance(text, str) for text in prompts.values())
        ):
            raise ValueError(":prompts of a workflow-definition must be an object of strings")
        file = f"{id}" if isinstance(id, str) else None
        definition = loader.read_checked_definition(self._session, source, notation, file, prompts)
        if id is not None and id not in (definition.name, definition.spec.name):
            raise ValueError(f"The workflow-definition '{id}' has the source of '{definition.spec.name}'")
        return definition

    async def _start_instance(
        self, record: Record, by: str, make_reply: ChangeReplyFactory | None
    ) -> Change | None:
        """Start a run; an instance that cannot start is not asserted."""
        workflow, _, params = self._parse_instance(record)
        loader.check_start_params(self._session, workflow, params)
        await self._session.engine.load_dataspace()
        existing = self._facts.find_asserted(record.id)
        if existing is not None and existing.record != record:
            raise ValueError(
                f"The instance '{record.get('label')}' of '{workflow.name}' already exists"
                f" as {existing.record}. Retract it first, or use another label."
            )
        change = self._session.engine.change_facts
        changes = await change(asserted=[record], by=by, make_reply=make_reply) if existing is None else []
        fact = changes[0].fact if changes else existing
        if fact is not None:
            await self.start(fact)
        return changes[0] if changes else None

    def _parse_instance(self, record: Record) -> tuple[Workflow, Any, dict[str, Any]]:
        """Return the workflow, the input and the parameters of an instance."""
        definition, context = record.get("definition"), record.get("context")
        workflow = self._session.get_workflow(str(definition))
        if workflow is None:
            hint = did_you_mean_hint(str(definition), self._session.workflows)
            raise ValueError(f"Workflow '{definition}' not found{hint}")
        if not isinstance(context, Mapping | None):
            raise ValueError(f":context of a workflow-instance must be an object, got {context!r}")
        for name in ("label", "branch"):
            if not isinstance(record.get(name), str | None):
                raise ValueError(f":{name} of a workflow-instance must be a string, got {record.get(name)!r}")
        params: dict[str, Any] = dict(context or {})
        return workflow, params.pop("input", None), params

    async def _retract(self, pattern: Pattern, by: str, make_reply: ChangeReplyFactory | None) -> list[Fact]:
        """Retract facts. Facts projected from journals stay, except for instances, whose runs are stopped."""
        await self._session.engine.load_dataspace()
        facts = self._facts
        only_instances = pattern.json[0] == INSTANCE_LABEL
        matches = [
            fact
            for fact in (facts.find_facts(pattern) if only_instances else facts.space.facts(pattern))
            if fact.record.label == INSTANCE_LABEL or not facts.is_projected(fact)
        ]
        projected_ids = {fact.id for fact in matches if facts.is_projected(fact)}
        patterns = [exactly(fact.record) for fact in matches]
        changes = await self._session.engine.change_facts(retracted=patterns, by=by, make_reply=make_reply)
        for change in changes:
            await self._on_retracted(change.fact, change.fact.id in projected_ids)
        return [change.fact for change in changes]

    async def _on_retracted(self, fact: Fact, is_projected: bool) -> None:
        if fact.record.label == DEFINITION_LABEL:
            # Imported late: it takes half a second, which other facts do not need.
            from nerve.spec.defined_workflow import DefinedWorkflow

            workflow = self._session.workflows.get(str(fact.record.get("id")))
            if isinstance(workflow, DefinedWorkflow) and workflow.definition()[1] == fact.record.get(
                "source"
            ):
                self._session.delete_workflow(workflow.name)
        elif fact.record.label == INSTANCE_LABEL:
            await self._stop_run(fact, is_projected)

    async def start(self, fact: Fact) -> WorkflowRun:
        """Start the run of an instance, or return the existing one; the fact is the idempotency key."""
        workflow, input, params = self._parse_instance(fact.record)
        label: Any = fact.record.get("label")
        branch: Any = fact.record.get("branch")
        caller = {"by": fact.asserted_by, "via": "fact"}
        return await self._session.start(
            workflow.name, input, params, key=instance_key(fact), label=label, branch=branch, caller=caller
        )

    async def _stop_run(self, fact: Fact, is_projected: bool) -> None:
        row = self._session.engine.store.run_by_key(self._session.name, instance_key(fact))
        id = fact.record.get("run") if is_projected else row.run if row is not None else None
        run = self._session.get_workflow_run(str(id)) if id is not None else None
        if run is not None and not run.is_complete:
            await run.stop("its workflow-instance was retracted")

    def define_all(self) -> None:
        """Restore the workflows defined by facts after a restart; already loaded ones take precedence."""
        for fact in self._facts.asserted_facts(DEFINITION_LABEL):
            try:
                definition = self._read_definition(fact.record)
                if definition.name not in self._session.workflows:
                    loader.define_workflow(self._session, definition)
            except (ValueError, NerveError) as error:
                log.warning("skipped workflow-definition '%s': %s", fact.record.get("id"), error)

    async def start_all(self) -> list[WorkflowRun]:
        """Start the instances that were asserted but not started before a crash."""
        engine, runs = self._session.engine, []
        for fact in self._facts.asserted_facts(INSTANCE_LABEL):
            if engine.store.run_by_key(self._session.name, instance_key(fact)) is None:
                try:
                    runs.append(await self.start(fact))
                except (ValueError, NerveError) as error:
                    log.warning("skipped %s: %s", fact.record, error)
        return runs

    @property
    def _facts(self) -> DurableDataspace:
        return self._session.engine.dataspace


def instance_key(fact: Fact) -> str:
    """Return the idempotency key of an instance; asserting it again after a retraction changes the key."""
    return f"instance:{fact.id}:{fact.version}"


def start_background(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a task that completes even if the caller does not await it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
