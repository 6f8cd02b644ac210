"""Session: the nodes, graphs and workflows of one project, and the engine that runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nerve.core.events import Sink
from nerve.core.json_codec import check_safe_integers, encode_json
from nerve.core.json_diagnostics import is_valid_unicode
from nerve.core.limits import Limits, validate_raise
from nerve.core.nodes.base import ControlNode, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.function import FunctionNode
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import (
    describe_value,
    require_mapping,
    require_name,
    require_node,
    require_one_of,
    require_path,
    require_str,
)
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.special_workflows import SingleNodeWorkflow
from nerve.core.workflow.state import WorkflowRunInfo, WorkflowState
from nerve.core.workflow.workflow import Workflow
from nerve.session import loader

if TYPE_CHECKING:
    from nerve.agents.provider import Provider
    from nerve.agents.provider_slots import ProviderSlots
    from nerve.engine.local_engine import LocalEngine
    from nerve.project.config import Config
    from nerve.session.dataspace import SessionDataspace
    from nerve.spec.defined_workflow import DefinedWorkflow
    from nerve.store.port import Definition, Store

CONFIG_PATH = Path(".nerve", "config.json")
ID_PATTERN = re.compile(r"[a-z_][a-z0-9_-]*", re.IGNORECASE)


class WorkflowRegistry(dict[str, Any]):
    """The workflows of a session by their ids; a graph, or any other node, that is put here is registered."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __setitem__(self, id: str, workflow: Any) -> None:
        if isinstance(workflow, Node) and not isinstance(workflow, Workflow):
            if workflow.id != id:
                raise ValueError(f"workflow '{id}' is the node '{workflow.id}'; register it under its own id")
            self.pop(id, None)
            self._session.register_workflow(workflow)
        else:
            super().__setitem__(id, workflow)


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
        self.name = require_name("a session", name)
        self.providers: dict[str, Provider] = dict(require_mapping("providers", providers or {}))
        if project is not None:
            require_path("project", project)
        if store is not None and not isinstance(store, str | os.PathLike) and not hasattr(store, "append"):
            raise ValueError(f"store is the path of a file, a store, or None, not {describe_value(store)}")
        self.project = Path(project if project is not None else ".")
        self.nodes: dict[str, Any] = {}
        self.graphs: dict[str, Any] = {}
        self.workflows: dict[str, Any] = WorkflowRegistry(self)
        self.modules: list[str] = []
        """Files that registered code here. Runs record them, so that a command can name what a run needs."""
        self._single_node_workflows: dict[str, SingleNodeWorkflow] = {}
        self._budget = None if budget is None else Limits.of(budget)
        self._has_own_budget = budget is not None
        self._slots = dict(require_mapping("slots", slots or {}))
        self._provider_slots: ProviderSlots | None = None
        self._agents: dict[str, Any] = {}
        self._dataspace: SessionDataspace | None = None
        self._store = store
        self._engine: LocalEngine | None = None

    # -- names ---------------------------------------------------------------------------------

    def validate_unique_id(
        self, entity_id: str | None = None, entity_type: str = "node", *, id: str | None = None
    ) -> None:
        """Raise ValueError for an id that is malformed or taken; it is given as `entity_id` or as `id`."""
        entity_id = entity_id if entity_id is not None else id
        if not isinstance(entity_id, str) or not ID_PATTERN.fullmatch(entity_id):
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
        workflow: Workflow | None = self.workflows.get(workflow_id)
        return workflow

    def find_startable(self, name: str) -> Workflow | None:
        """What can be started by a name: a workflow, or a node or a graph as the one step of a run."""
        if (workflow := self.get_workflow(name)) is not None:
            return workflow
        node = self.graphs.get(name) or self.nodes.get(name)
        known = self._single_node_workflows.get(name)
        if node is not None and (known is None or known.body is not node):
            self._single_node_workflows[name] = known = SingleNodeWorkflow(node, self)
        return known if node is not None else None

    def find(self, name: str) -> Any:
        """What a workflow can call by a name: a node, a graph, a workflow, an agent, a provider."""
        return loader.find_call_target(self, name)

    def load(self, source: str | os.PathLike[str], notation: str | None = None) -> DefinedWorkflow:
        """Read a workflow from a file or a text, check it and register it; Unreadable says what is wrong."""
        return loader.load_workflow(self, source, notation)

    @property
    def provider_slots(self) -> ProviderSlots:
        """How many agents of each provider work at once, and which providers are limited."""
        if self._provider_slots is None:
            from nerve.agents.provider_slots import ProviderSlots

            limited = self._engine.provider_limits() if self._engine is not None else {}
            self._provider_slots = ProviderSlots({**self.config.slots, **self._slots}, limited)
        return self._provider_slots

    def provider(self, name: str) -> Provider | None:
        """A provider that was given, or one that an installed package offers, made when it is needed."""
        return loader.find_provider(self, name)

    def workflow_from_definition(self, definition: Definition) -> Workflow | None:
        """A workflow as a run was started from it, if it was written down."""
        return loader.workflow_from_definition(self, definition)

    def check_names(self, workflow: Workflow) -> None:
        """Raise Unreadable for what a workflow that was written down calls and nobody has."""
        loader.check_workflow_names(self, workflow)

    @cached_property
    def config(self) -> Config:
        """What the project says about its workflows and providers; Unreadable if it is wrong."""
        from nerve.project.config import project_config

        return project_config(self.project)

    def disabled_reason(self, workflow: Workflow) -> str:
        """Why the configuration does not let a workflow of a file start; empty if it does."""
        return self.config.refusal(workflow.name) if workflow.kind in NOTATION_NAMES else ""

    @property
    def dataspace(self) -> SessionDataspace:
        """The facts of this session."""
        if self._dataspace is None:
            from nerve.session.dataspace import SessionDataspace

            self._dataspace = SessionDataspace(self)
        return self._dataspace

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
        require_node("what is registered as a workflow", graph)
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
            from nerve.engine.local_engine import LocalEngine

            self._load_budget()
            self._engine = LocalEngine(open_store(self._store), self, self.name)
        return self._engine

    def _load_budget(self) -> None:
        """The budget that the project's configuration says, where nothing else does."""
        if not self._has_own_budget and (self.project / CONFIG_PATH).is_file():
            config_budget = self.config.budget
            self._budget = None if config_budget is None else Limits.of(config_budget)

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
        self._has_own_budget = True
        if self._engine is not None:
            self._engine.budgets.on_daily_budget_raised()

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
        require_name("a workflow", workflow_id)
        pinned_definition = self.engine.store.definition(definition) if definition is not None else None
        workflow = (
            self.find_startable(workflow_id)
            if definition is None
            else pinned_definition and self.workflow_from_definition(pinned_definition)
        )
        if workflow is None:
            raise ValueError(
                f"Workflow '{workflow_id}' not found{did_you_mean_hint(workflow_id, self.workflows)}"
            )
        check_safe_integers([input, params])
        params = loader.check_start_params(self, workflow, params)
        identity = {"label": label, "branch": branch, "conversation": conversation}
        about: dict[str, Any] = {
            name: require_name(f"a {name}", value) for name, value in identity.items() if value is not None
        }
        if self.modules:
            about["modules"] = list(self.modules)
        run = WorkflowRun(workflow, input, params, event_sink, limits=limits, about=about)
        if key is not None:
            return await self.engine.start_once(run, require_name("a key", key))
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
        encode_json([label, key, value])
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
        raised_limits = validate_raise(limits)
        if at is not None:
            require_str("the path to fork at", at)
        check_safe_integers([input, overrides])
        return await self.engine.fork(
            self._full_id(run_id), at, input, overrides or {}, key, raised_limits, reply
        )

    async def retry(self, run_id: str, key: str | None = None, *, reply: Any = None) -> WorkflowRun:
        """A new run that takes over what `run_id` has settled, and runs again what has failed in it.

        So it is with the child runs that failed. The same `key` gives the same run; `reply` is kept by the
        store, in the same transaction.
        """
        return await self.engine.retry(self._full_id(run_id), key, reply)

    def get_workflow_run(self, run_id: str) -> WorkflowRun | None:
        """A run by its id or any unique beginning of it."""
        if not is_valid_unicode(run_id):
            return None
        store = self.engine.store
        exact = store.run(run_id)
        if exact is not None and exact.session == self.name:
            return self.engine.run_handle(exact)
        rows = store.runs(session=self.name, prefix=run_id, newest=2)
        return self.engine.run_handle(rows[0]) if len(rows) == 1 else None

    def list_workflow_runs(
        self, workflow_id: str | None = None, state: WorkflowState | str | None = None
    ) -> list[WorkflowRunInfo]:
        """Return what is known of the runs of this session, oldest first; with a `state`, of those in it."""
        wanted_state = None if state is None else parse_workflow_state(state)
        rows = self.engine.store.runs(session=self.name, workflow=workflow_id)
        known = [row for row in rows if self.engine.has_workflow(row)]
        infos = [self.engine.run_handle(row).to_info() for row in known]
        return [info for info in infos if wanted_state in (None, info.state)]

    @property
    def _workflow_runs(self) -> dict[str, WorkflowRun]:
        return dict(self.engine.run_handles)

    def _full_id(self, run_id: str) -> str:
        run = self.get_workflow_run(run_id)
        return run.run_id if run else run_id


def parse_workflow_state(state: WorkflowState | str) -> WorkflowState:
    """A state of a run by its name; ValueError for one that there is not."""
    if isinstance(state, WorkflowState):
        return state
    return WorkflowState(require_one_of("state", state, [member.value for member in WorkflowState]))


def open_store(store: str | os.PathLike[str] | Store | None) -> Store:
    if store is None:
        from nerve.store.memory import MemoryStore

        return MemoryStore()
    if isinstance(store, str | os.PathLike):
        from nerve.store.sqlite import SqliteStore

        return SqliteStore(store)
    return store
