"""Definitions: what runs were started from, whatever the session knows under that name today."""

from __future__ import annotations

from nerve.core.nodes.base import Names
from nerve.core.values import decode
from nerve.core.workflow.standing import Absent
from nerve.core.workflow.workflow import Workflow
from nerve.errors import WorkflowAbsent
from nerve.store.port import Definition, RunRow, Store


class Definitions:
    """A workflow that was written down is kept in the store; Python code is the session's."""

    def __init__(self, store: Store, session: Names) -> None:
        self._store, self._session = store, session
        self._pinned: dict[str, Workflow | None] = {}

    def of(self, workflow: Workflow) -> Definition:
        hashed, source, canonical = workflow.definition()
        return Definition(hashed, workflow.name, workflow.kind, source, canonical)

    def workflow(self, row: RunRow) -> Workflow:
        """What a run was started from: a workflow that was written down, as it was then."""
        found: Workflow | None = self._session.startable(row.workflow)
        if row.definition is not None and (found is None or found.definition()[0] != row.definition):
            found = self._kept(row.definition) or found
        if found is None:
            raise WorkflowAbsent(row.workflow, row.run, self.modules_of(row))
        return found

    def modules_of(self, row: RunRow) -> list[str]:
        """Return the files that registered the code of a run, as they were named when it was started."""
        while row.parent is not None and (parent := self._store.run(row.parent)) is not None:
            row = parent
        modules: list[str] = decode(self._store.events(row.run, limit=1)[0].data).get("modules", [])
        return modules

    def shown(self, row: RunRow) -> Workflow:
        """What a run was started from, or something that says whose run it is."""
        try:
            return self.workflow(row)
        except ValueError:
            return Absent(row.workflow, self._session)

    def has(self, row: RunRow) -> bool:
        try:
            return bool(self.workflow(row))
        except ValueError:
            return False

    def _kept(self, hash: str) -> Workflow | None:
        if hash not in self._pinned:
            definition = self._store.definition(hash)
            self._pinned[hash] = self._session.pinned(definition) if definition is not None else None
        return self._pinned[hash]
