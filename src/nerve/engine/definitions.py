"""The definitions that runs were started from, independent of what the session has registered today."""

from __future__ import annotations

from nerve.core.nodes.base import NodeRegistry
from nerve.core.workflow.special_workflows import MissingWorkflow
from nerve.core.workflow.workflow import Workflow
from nerve.errors import WorkflowAbsent
from nerve.journal.index import read_start
from nerve.store.port import Definition, RunRow, Store


class DefinitionCache:
    """Resolves the workflow of a run: definitions from files are stored, Python code is the session's."""

    def __init__(self, store: Store, session: NodeRegistry) -> None:
        self._store, self._session = store, session
        self._workflows_by_hash: dict[str, Workflow | None] = {}
        self._stored: dict[str, Definition] = {}
        """The definitions that this engine has stored, by hash."""

    def find_unstored(self, workflow: Workflow) -> Definition | None:
        """Return the definition of a workflow, unless this engine has stored it already."""
        definition = self._stored.get(workflow.definition()[0])
        # The same hash can come from another source text, which then replaces the stored one.
        if definition is not None and definition.source is workflow.definition()[1]:
            return None
        return self.definition_of(workflow)

    def note_stored(self, definition: Definition) -> None:
        """Note a definition that is on disk, so that the next runs need not store it again."""
        self._stored[definition.hash] = definition

    def definition_of(self, workflow: Workflow) -> Definition:
        hashed, source, canonical = workflow.definition()
        return Definition(hashed, workflow.name, workflow.kind, source, canonical)

    def workflow_of(self, row: RunRow) -> Workflow:
        """Return the workflow a run was started from; one from a file as it was then."""
        workflow: Workflow | None = self._session.find_startable(row.workflow)
        # A run finishes with the steps it started with, so editing the file cannot make its replay fail.
        if row.definition is not None and (workflow is None or workflow.definition()[0] != row.definition):
            workflow = self._pinned_workflow(row.definition) or workflow
        if workflow is None:
            raise WorkflowAbsent(row.workflow, row.run, self.modules_of(row))
        return workflow

    def modules_of(self, row: RunRow) -> list[str]:
        """Return the files that registered the code of a run, as they were named when it was started."""
        while row.parent is not None and (parent := self._store.run(row.parent)) is not None:
            row = parent
        return read_start(self._store, row.run).modules or []

    def workflow_or_placeholder(self, row: RunRow) -> Workflow:
        """Return the workflow of a run, or a placeholder with its name."""
        try:
            return self.workflow_of(row)
        except ValueError:
            return MissingWorkflow(row.workflow, self._session)

    def has_workflow(self, row: RunRow) -> bool:
        try:
            return bool(self.workflow_of(row))
        except ValueError:
            return False

    def _pinned_workflow(self, hash: str) -> Workflow | None:
        if hash not in self._workflows_by_hash:
            definition = self._store.definition(hash)
            self._workflows_by_hash[hash] = (
                self._session.workflow_from_definition(definition) if definition is not None else None
            )
        return self._workflows_by_hash[hash]
