"""Session: the nodes, graphs and workflows of one project, and the engine that runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nerve.core.checks import a_folder, a_mapping, a_name, a_node, a_text, one_of, told
from nerve.core.event import Sink
from nerve.core.limits import Limits, to_raise
from nerve.core.misfits import is_whole
from nerve.core.nodes.base import ControlNode, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.function import FunctionNode
from nerve.core.session import loading
from nerve.core.suggest import suggest
from nerve.core.values import check_exact, encode
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.standing import OneStep
from nerve.core.workflow.state import WorkflowRunInfo, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.written import NAMES

if TYPE_CHECKING:
    from nerve.agents.accounts import Accounts
    from nerve.agents.port import Provider
    from nerve.core.session.space import Space
    from nerve.engine.local import LocalEngine
    from nerve.notations.config import Config
    from nerve.spec.workflow import DefinedWorkflow
    from nerve.store.port import Definition, Store

CONFIG = Path(".nerve", "config.json")
ID = re.compile(r"[a-z_][a-z0-9_-]*", re.IGNORECASE)


class WorkflowNames(dict[str, Any]):
    """The workflows of a session by their ids; a graph, or any other node, that is put here is registered."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __setitem__(self, id: str, given: Any) -> None:
        if isinstance(given, Node) and not isinstance(given, Workflow):
            if given.id != id:
                raise ValueError(f"workflow '{id}' is the node '{given.id}'; register it under its own id")
            self.pop(id, None)
            self._session.register_workflow(given)
        else:
            super().__setitem__(id, given)


class Session:
    """Names and runs. `store` is None for memory, a path for a SQLite file, or a store.

    `providers` answer the prompts of workflows that were written down, and `project` is the folder in which
    those look for prompts and agents. `slots` says how many agents of a provider may work at once, `budget`
    what all runs together may spend in a day: `tokens`, `cost`, `turns`, `agents`;
    `.nerve/config.json` of the project can say both too.

    In memory it can be used as it is; with a file, as an async context manager: leaving it parks the
    open runs, and `recover()` goes on with them.
    """

    def __init__(
        self,
        name: str = "default",
        store: str | os.PathLike[str] | Store | None = None,
        *,
        providers: Mapping[str, Provider] | None = None,
        project: str | os.PathLike[str] | None = None,
        slots: Mapping[str, int] | None = None,
        budget: Limits | Mapping[str, Any] | None = None,
    ) -> None:
        self.name = a_name("a session", name)
        self.providers: dict[str, Provider] = dict(a_mapping("providers", providers or {}))
        if project is not None:
            a_folder("project", project)
        if store is not None and not isinstance(store, str | os.PathLike) and not hasattr(store, "append"):
            raise ValueError(f"store is the path of a file, a store, or None, not {told(store)}")
        self.project = Path(project if project is not None else ".")
        self.nodes: dict[str, Any] = {}
        self.graphs: dict[str, Any] = {}
        self.workflows: dict[str, Any] = WorkflowNames(self)
        self.modules: list[str] = []
        """Files that registered code here. Runs record them, so that a command can name what a run needs."""
        self._one_steps: dict[str, OneStep] = {}
        self._budget = None if budget is None else Limits.of(budget)
        self._own_budget = budget is not None
        self._slots = dict(a_mapping("slots", slots or {}))
        self._accounts: Accounts | None = None
        self._agents: dict[str, Any] = {}
        self._space: Space | None = None
        self._store = store
        self._engine: LocalEngine | None = None

    # -- names ---------------------------------------------------------------------------------

    def validate_unique_id(
        self, entity_id: str | None = None, entity_type: str = "node", *, id: str | None = None
    ) -> None:
        """Raise ValueError for an id that is malformed or taken; it is given as `entity_id` or as `id`."""
        entity_id = entity_id if entity_id is not None else id
        if not isinstance(entity_id, str) or not ID.fullmatch(entity_id):
            raise ValueError(
                f"Invalid {entity_type} ID '{entity_id}'. Must start with letter and contain only letters,"
                " numbers, underscores, hyphens."
            )
        for kind, names in (("node", self.nodes), ("graph", self.graphs), ("workflow", self.workflows)):
            if entity_id in names:
                raise ValueError(
                    f"{entity_type.capitalize()} ID '{entity_id}' conflicts with existing {kind}"
                )

    def get_node(self, node_id: str) -> Any:
        """The node of that id, or None."""
        return self.nodes.get(node_id)

    def get_graph(self, graph_id: str) -> Any:
        """The graph of that id, or None."""
        return self.graphs.get(graph_id)

    def get_workflow(self, workflow_id: str) -> Workflow | None:
        """The workflow of that id, or None."""
        found: Workflow | None = self.workflows.get(workflow_id)
        return found

    def startable(self, name: str) -> Workflow | None:
        """What can be started by a name: a workflow, or a node or a graph as the one step of a run."""
        if (found := self.get_workflow(name)) is not None:
            return found
        node = self.graphs.get(name) or self.nodes.get(name)
        known = self._one_steps.get(name)
        if node is not None and (known is None or known.body is not node):
            self._one_steps[name] = known = OneStep(node, self)
        return known if node is not None else None

    def find(self, name: str) -> Any:
        """What a workflow can call by a name: a node, a graph, a workflow, an agent, a provider."""
        return loading.find(self, name)

    def load(self, given: str | os.PathLike[str], notation: str | None = None) -> DefinedWorkflow:
        """Read a workflow from a file or a text, check it and register it; Unreadable says what is wrong."""
        return loading.load(self, given, notation)

    @property
    def accounts(self) -> Accounts:
        """How many agents of each provider work at once, and which providers are limited."""
        if self._accounts is None:
            from nerve.agents.accounts import Accounts

            limited = self._engine.limited() if self._engine is not None else {}
            self._accounts = Accounts({**self.config.slots, **self._slots}, limited)
        return self._accounts

    def provider(self, name: str) -> Provider | None:
        """A provider that was given, or one that an installed package offers, made when it is needed."""
        return loading.provider_of(self, name)

    def pinned(self, definition: Definition) -> Workflow | None:
        """A workflow as a run was started from it, if it was written down."""
        return loading.pinned(self, definition)

    def check_names(self, workflow: Workflow) -> None:
        """Raise Unreadable for what a workflow that was written down calls and nobody has."""
        loading.check_names(self, workflow)

    @cached_property
    def config(self) -> Config:
        """What the project says about its workflows and providers; Unreadable if it is wrong."""
        from nerve.notations.config import project_config

        return project_config(self.project)

    def why_switched_off(self, workflow: Workflow) -> str:
        """Why the configuration does not let a workflow of a file start; empty if it does."""
        return self.config.refusal(workflow.name) if workflow.kind in NAMES else ""

    @property
    def dataspace(self) -> Space:
        """The facts of this session."""
        if self._space is None:
            from nerve.core.session.space import Space

            self._space = Space(self)
        return self._space

    def list_workflows(self) -> list[str]:
        """The ids of the workflows, without those that begin with an underscore."""
        return [name for name in self.workflows if not name.startswith("_")]

    def delete_workflow(self, workflow_id: str) -> bool:
        """Forget a workflow and return whether there was one; its runs continue."""
        return self.workflows.pop(workflow_id, None) is not None

    def register_workflow(
        self,
        graph: Node,
        description: str = "",
        limits: Limits | Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Workflow:
        """Make a graph, or any other node, startable as a workflow under its own id.

        `params` declares the parameters of its runs with their defaults; others are then refused.
        """
        a_node("what is registered as a workflow", graph)
        if graph.id is None:
            raise ValueError("a node needs an id to be registered as a workflow")
        known = self.workflows.get(graph.id)
        if isinstance(known, Workflow) and known.body is graph:
            return known
        if isinstance(graph, ControlNode):
            graph.validate()
        if self.nodes.get(graph.id) is graph:
            del self.nodes[graph.id]
        return Workflow(graph.id, self, description=description, body=graph, limits=limits, params=params)

    def workflow(
        self, fn: Callable[[WorkflowContext], Any] | None = None, *, id: str | None = None, **options: Any
    ) -> Any:
        """Decorator: register an async function as a workflow under its own name."""

        def register(fn: Callable[[WorkflowContext], Any]) -> Callable[[WorkflowContext], Any]:
            Workflow(id or fn.__name__, self, fn, **options)
            return fn

        return register if fn is None else register(fn)

    def node(
        self, fn: Callable[[ExecutionContext], Any] | None = None, *, id: str | None = None, **options: Any
    ) -> Any:
        """Decorator: register a function as a node under its own name."""

        def register(fn: Callable[[ExecutionContext], Any]) -> Callable[[ExecutionContext], Any]:
            FunctionNode(id or fn.__name__, self, fn, **options)
            return fn

        return register if fn is None else register(fn)

    # -- runs ----------------------------------------------------------------------------------

    @property
    def engine(self) -> LocalEngine:
        """The engine that drives the runs; the store is opened when it is first used."""
        if self._engine is None:
            from nerve.engine.local import LocalEngine

            self._take_budget()
            self._engine = LocalEngine(open_store(self._store), self, self.name)
        return self._engine

    def _take_budget(self) -> None:
        """The budget that the project's configuration says, where nothing else does."""
        if not self._own_budget and (self.project / CONFIG).is_file():
            said = self.config.budget
            self._budget = None if said is None else Limits.of(said)

    async def __aenter__(self) -> Session:
        self.engine  # noqa: B018 - a file that cannot be opened is said now
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def budget(self) -> Limits | None:
        """What all runs together may spend in a day; then they are held until it is raised."""
        return self._budget

    @budget.setter
    def budget(self, budget: Limits | Mapping[str, Any] | None) -> None:
        self._budget = None if budget is None else Limits.of(budget)
        self._own_budget = True
        if self._engine is not None:
            self._engine.budgets.raised()

    async def close(self) -> None:
        """Park the open runs where they are and let go of the store."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.close()

    async def start(
        self,
        workflow_id: str,
        input: Any = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        event_sink: Sink | None = None,
        label: str | None = None,
        branch: str | None = None,
        conversation: str | None = None,
        definition: str | None = None,
    ) -> WorkflowRun:
        """Start a run; returns when the start is on disk. The same `key` gives the same run.

        `label` is a name for the run, by which signals are scoped; `conversation` is the one it belongs to.
        `definition` is the hash of what the workflow was once defined as, whatever its name means now.
        """
        a_name("a workflow", workflow_id)
        kept = self.engine.store.definition(definition) if definition is not None else None
        workflow = self.startable(workflow_id) if definition is None else kept and self.pinned(kept)
        if workflow is None:
            raise ValueError(f"Workflow '{workflow_id}' not found{suggest(workflow_id, self.workflows)}")
        check_exact([input, params])
        params = loading.check_start(self, workflow, params)
        given = {"label": label, "branch": branch, "conversation": conversation}
        about: dict[str, Any] = {
            name: a_name(f"a {name}", value) for name, value in given.items() if value is not None
        }
        if self.modules:
            about["modules"] = list(self.modules)
        run = WorkflowRun(workflow, input, params, event_sink, limits=limits, about=about)
        if key is not None:
            return await self.engine.start_keyed(run, a_name("a key", key))
        await self.engine.start(run)
        return run

    async def recover(self) -> list[WorkflowRun]:
        """Go on with every open run of this session, after a restart."""
        if self.engine.store.fact_version(self.name) == 0:
            return await self.engine.recover()  # no fact ever was, and what reads them takes long to import
        self.dataspace.define_all()
        runs = await self.engine.recover()
        return [*runs, *await self.dataspace.start_all()]

    async def signal(self, label: str, key: str | None = None, value: Any = None) -> None:
        """Assert a signal; every run that waits for it goes on, and it stays until it is retracted."""
        encode([label, key, value])
        await self.dataspace.assert_fact(["signal", label, {"key": key, "value": value}])

    async def fork(
        self,
        run_id: str,
        at: str | None = None,
        input: Any = ...,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        key: str | None = None,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        reply: Any = None,
    ) -> WorkflowRun:
        """A new run that takes over what `run_id` has settled, and goes its own way from the path `at` on.

        `input` is the new input of the step at `at`, or of the workflow when there is no `at`;
        `overrides` changes settings of steps by their paths, and those are run again. It has the limits of
        the other as they were last raised, and as `limits` raises them: of the run, or of a step by its
        path. The same `key` gives the same run; `reply` is kept by the store, in the same transaction.
        """
        given = to_raise(limits)
        if at is not None:
            a_text("the path to fork at", at)
        check_exact([input, overrides])
        return await self.engine.fork(self._full_id(run_id), at, input, overrides or {}, key, given, reply)

    async def retry(self, run_id: str, key: str | None = None, *, reply: Any = None) -> WorkflowRun:
        """A new run that takes over what `run_id` has settled, and runs again what has failed in it.

        So it is with the child runs that failed. The same `key` gives the same run; `reply` is kept by the
        store, in the same transaction.
        """
        return await self.engine.retry(self._full_id(run_id), key, reply)

    def get_workflow_run(self, run_id: str) -> WorkflowRun | None:
        """A run by its id or any unique beginning of it."""
        if not is_whole(run_id):
            return None
        store = self.engine.store
        exact = store.run(run_id)
        if exact is not None and exact.session == self.name:
            return self.engine.handle(exact)
        rows = store.runs(session=self.name, prefix=run_id, newest=2)
        return self.engine.handle(rows[0]) if len(rows) == 1 else None

    def list_workflow_runs(
        self, workflow_id: str | None = None, state: WorkflowState | str | None = None
    ) -> list[WorkflowRunInfo]:
        """Return what is known of the runs of this session, oldest first; with a `state`, of those in it."""
        wanted = None if state is None else state_named(state)
        rows = self.engine.store.runs(session=self.name, workflow=workflow_id)
        known = [row for row in rows if self.engine.has_workflow(row)]
        told = [self.engine.handle(row).to_info() for row in known]
        return [info for info in told if wanted in (None, info.state)]

    @property
    def _workflow_runs(self) -> dict[str, WorkflowRun]:
        return dict(self.engine.known)

    def _full_id(self, run_id: str) -> str:
        run = self.get_workflow_run(run_id)
        return run.run_id if run else run_id


def state_named(state: WorkflowState | str) -> WorkflowState:
    """A state of a run by its name; ValueError for one that there is not."""
    if isinstance(state, WorkflowState):
        return state
    return WorkflowState(one_of("state", state, [each.value for each in WorkflowState]))


def open_store(store: str | os.PathLike[str] | Store | None) -> Store:
    if store is None:
        from nerve.store.memory import MemoryStore

        return MemoryStore()
    if isinstance(store, str | os.PathLike):
        from nerve.store.sqlite import SqliteStore

        return SqliteStore(store)
    return store
