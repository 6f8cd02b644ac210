"""Session: the nodes, graphs and workflows of one project, and the engine that executes them."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from nerve.codec import Codec, check_codec
from nerve.core.clock import SYSTEM_CLOCK, Clock
from nerve.core.events import Sink
from nerve.core.json_codec import check_safe_integers, encode_json
from nerve.core.json_diagnostics import is_valid_unicode
from nerve.core.limits import Limits, validate_raise
from nerve.core.nodes.base import ControlNode, Node, node_policy
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.function import FunctionNode
from nerve.core.nodes.step import StepNode
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.queues import Queue, find_queue, queue_name
from nerve.core.suggest import did_you_mean_hint
from nerve.core.tags import validate_tags
from nerve.core.validation import (
    describe_value,
    require_int,
    require_mapping,
    require_name,
    require_node,
    require_one_of,
    require_path,
    require_str,
)
from nerve.core.workflow.context import WorkflowContext, find_workflow_name
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.special_workflows import SingleNodeWorkflow
from nerve.core.workflow.state import WorkflowRunInfo, WorkflowState
from nerve.core.workflow.step import Step
from nerve.core.workflow.workflow import Workflow
from nerve.session import loader
from nerve.session.project_store import open_store
from nerve.session.run_filters import RunFilters
from nerve.session.run_workspaces import RunWorkspaces

if TYPE_CHECKING:
    from nerve.agents.agent_tool import AgentTool
    from nerve.agents.provider import Provider
    from nerve.agents.provider_slots import ProviderSlots
    from nerve.core.trace_context import StepTracing
    from nerve.core.triggers import Trigger
    from nerve.engine.fork_preview import ForkPreview
    from nerve.engine.local_engine import LocalEngine
    from nerve.engine.reused_answers import ReusedAnswer
    from nerve.engine.session_queues import QueueInfo
    from nerve.notifications.notifier import Notifier
    from nerve.project.config import Config, TelemetrySettings
    from nerve.session.dataspace import SessionDataspace
    from nerve.session.people import People
    from nerve.spec.defined_workflow import DefinedWorkflow
    from nerve.store.port import Definition, Store
    from nerve.telemetry.metrics import SessionMetrics
    from nerve.telemetry.telemetry import Telemetry

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
I = TypeVar("I")  # noqa: E741 - the input of a workflow function


class RunOptions(TypedDict, total=False):
    """The keyword options of `session.start`."""

    limits: Limits | Mapping[str, Any] | None
    event_sink: Sink | None
    label: str | None
    branch: str | None
    conversation: str | None
    definition: str | None
    tags: Mapping[str, Any] | None
    queue: str | Queue | None
    caller: dict[str, str] | None
    traceparent: str | None


class StepDecorator(Protocol):
    """The decorator that `session.step` with options returns."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


CONFIG_PATH = Path(".nerve", "config.json")
ID_PATTERN = re.compile(r"[a-z_][a-z0-9_-]*", re.IGNORECASE)


class WorkflowRegistry(dict[str, Any]):
    """The workflows of a session by id; assigning a graph or another node registers it as a workflow."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __setitem__(self, id: str, workflow: Any) -> None:
        if isinstance(workflow, Node) and not isinstance(workflow, Workflow):
            if workflow.id != id:
                raise ValueError(f"Workflow '{id}' is the node '{workflow.id}'; register it under its own id")
            self.pop(id, None)
            self._session.register_workflow(workflow)
        else:
            super().__setitem__(id, workflow)


class Session:
    """The names and runs of one project. `store` is None for memory, the path of a SQLite file, the URL of a
    database in PostgreSQL, or a store.

    `providers` execute the agents of workflow files; `project` is the directory with their prompts and
    agent files. `slots` is the maximum number of concurrent agents per provider, `budget` is what all runs
    together may spend per day: `tokens`, `cost`, `turns`, `agents`. `codec` transforms every stored payload,
    such as `nerve.crypto.AesGcmCodec`. `.nerve/config.json` of the project can set all three. `queues` limit
    the steps and runs that use them. `clock` is for tests; `nerve.testing` has one that skips time.
    `telemetry` sends traces and metrics as the variables OTEL_* say; None leaves it to the configuration.

    Use a session with a file as an async context manager: closing it parks the open runs, and `recover()`
    resumes them.
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
        codec: Codec | None = None,
        clock: Clock = SYSTEM_CLOCK,
        queues: Iterable[Queue] = (),
        telemetry: bool | TelemetrySettings | None = None,
    ) -> None:
        self.name = require_name("a session", name)
        self.tools: dict[str, AgentTool] = {}
        """The functions that agents can call, by name."""
        self.providers: dict[str, Provider] = dict(require_mapping("providers", providers or {}))
        if project is not None:
            require_path("project", project)
        if store is not None and not isinstance(store, str | os.PathLike) and not hasattr(store, "append"):
            raise ValueError(
                f"store must be the path of a file, a URL, a store, or None, got {describe_value(store)}"
            )
        self.project = Path(project if project is not None else ".")
        self._run_workspaces = RunWorkspaces(self.project)
        self.nodes: dict[str, Any] = {}
        self.graphs: dict[str, Any] = {}
        self.workflows: dict[str, Any] = WorkflowRegistry(self)
        self.queues: dict[str, Queue] = {}
        """The queues that steps and runs may use, by name."""
        self.triggers: dict[str, Trigger] = {}
        """The triggers that Python code has declared, by name."""
        self.trigger_service: Any = None
        """What `nerve.triggers` keeps of this session."""
        self.modules: list[str] = []
        """Files that registered code here; runs record them, so that errors can name them."""
        self._single_node_workflows: dict[str, SingleNodeWorkflow] = {}
        self._budget = None if budget is None else Limits.of(budget)
        self._has_own_budget = budget is not None
        self._slots = dict(require_mapping("slots", slots or {}))
        self._provider_slots: ProviderSlots | None = None
        self._agents: dict[str, Any] = {}
        self._dataspace: SessionDataspace | None = None
        self._store, self._clock = store, clock
        self._codec = None if codec is None else check_codec(codec)
        self._engine: LocalEngine | None = None
        self._telemetry_setting = telemetry
        self._telemetry: Telemetry | None = None
        self._notifier: Notifier | None = None
        self.chat_problems: dict[str, str] = {}
        """Why chats get no messages in this process, by their names."""
        self.tracing: StepTracing | None = None
        """The spans of the steps that this session executes; None if telemetry is off."""
        self._metrics: SessionMetrics | None = None
        for queue in queues:
            self.add_queue(queue)

    # -- names ---------------------------------------------------------------------------------

    def validate_unique_id(
        self, entity_id: str | None = None, entity_type: str = "node", *, id: str | None = None
    ) -> None:
        """Raise ValueError for an id that is invalid or in use; `id` is an alias of `entity_id`."""
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
        """Return the node of an id, or None."""
        return self.nodes.get(node_id)

    def get_graph(self, graph_id: str) -> Any:
        """Return the graph of an id, or None."""
        return self.graphs.get(graph_id)

    def get_workflow(self, workflow_id: str) -> Workflow | None:
        """Return the workflow of an id, or None."""
        workflow: Workflow | None = self.workflows.get(workflow_id)
        return workflow

    def find_startable(self, name: str) -> Workflow | None:
        """Return what can be started by a name: a workflow, or a node or graph as the only step of a run."""
        if (workflow := self.get_workflow(name)) is not None:
            return workflow
        node = self.graphs.get(name) or self.nodes.get(name)
        single = self._single_node_workflows.get(name)
        if node is not None and (single is None or single.body is not node):
            self._single_node_workflows[name] = single = SingleNodeWorkflow(node, self)
        return single if node is not None else None

    def find(self, name: str) -> Any:
        """Return what a workflow can call by a name: a node, a graph, a workflow, an agent, a provider."""
        return loader.find_call_target(self, name)

    def load(self, source: str | os.PathLike[str], notation: str | None = None) -> DefinedWorkflow:
        """Read, check and register a workflow from a file or a string; InvalidDefinition lists problems."""
        return loader.load_workflow(self, source, notation)

    @property
    def provider_slots(self) -> ProviderSlots:
        """The concurrency limits of the providers, and the providers that are rate-limited."""
        if self._provider_slots is None:
            from nerve.agents.provider_slots import ProviderSlots

            limited = self._engine.provider_limits() if self._engine is not None else {}
            self._provider_slots = ProviderSlots({**self.config.slots, **self._slots}, limited, self._clock)
        return self._provider_slots

    def forget_rate_limits(self) -> None:
        """Read the limits of the providers again, because the agents of another process may have met them."""
        slots, self._provider_slots = self._provider_slots, None
        if slots is not None and slots.shared is not None:
            self.provider_slots.shared = slots.shared

    def provider(self, name: str) -> Provider | None:
        """Return a provider of the session, or create one from an installed package; None if unknown."""
        return loader.find_provider(self, name)

    def workflow_from_definition(self, definition: Definition) -> Workflow | None:
        """Return the workflow that a run was started from; None for Python code."""
        return loader.workflow_from_definition(self, definition)

    def check_names(self, workflow: Workflow) -> None:
        """Raise InvalidDefinition for unknown names that a workflow file calls."""
        loader.check_workflow_names(self, workflow)

    @cached_property
    def config(self) -> Config:
        """The configuration of the project; InvalidDefinition if it has errors."""
        from nerve.project.config import project_config

        return project_config(self.project)

    def disabled_reason(self, workflow: Workflow) -> str:
        """Return why the configuration disables a workflow file, or ""."""
        return self.config.refusal(workflow.name) if workflow.kind in NOTATION_NAMES else ""

    @property
    def dataspace(self) -> SessionDataspace:
        """The facts of this session."""
        if self._dataspace is None:
            from nerve.session.dataspace import SessionDataspace

            self._dataspace = SessionDataspace(self)
        return self._dataspace

    @cached_property
    def people(self) -> People:
        """The people who may answer gates."""
        from nerve.session.people import People

        return People(self.engine.store, self.name)

    def list_workflows(self) -> list[str]:
        """Return the ids of the workflows, without those that start with an underscore."""
        return [name for name in self.workflows if not name.startswith("_")]

    def delete_workflow(self, workflow_id: str) -> bool:
        """Remove a workflow and return whether it existed; its runs continue."""
        return self.workflows.pop(workflow_id, None) is not None

    def register_workflow(
        self,
        graph: Node,
        description: str = "",
        limits: Limits | Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Workflow:
        """Register a graph, or another node, as a workflow under its own id.

        `params` declares the parameters of its runs with their defaults; other parameters are then rejected.
        """
        require_node("a workflow to register", graph)
        if graph.id is None:
            raise ValueError("A node needs an id to be registered as a workflow")
        existing = self.workflows.get(graph.id)
        if isinstance(existing, Workflow) and existing.body is graph:
            return existing
        if isinstance(graph, ControlNode):
            graph.validate()
        if self.nodes.get(graph.id) is graph:
            del self.nodes[graph.id]
        return Workflow(graph.id, self, description=description, body=graph, limits=limits, params=params)

    @overload
    def workflow(self, fn: F, *, id: str | None = None, **options: Any) -> F: ...

    @overload
    def workflow(self, fn: None = None, *, id: str | None = None, **options: Any) -> Callable[[F], F]: ...

    def workflow(self, fn: Any = None, *, id: str | None = None, **options: Any) -> Any:
        """Decorator: register an async function as a workflow under its own name.

        Its first parameter is the WorkflowContext. A second one is the input of its runs, further ones are
        the parameters; their annotations and that of the result say how values are stored.
        """

        def register(fn: F) -> F:
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

    @overload
    def step(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...

    @overload
    def step(self, fn: Callable[P, R], /) -> Step[P, R]: ...

    @overload
    def step(self, fn: None = None, /, *, id: str | None = None, **policy: Any) -> StepDecorator: ...

    def step(self, fn: Callable[..., Any] | None = None, /, *, id: str | None = None, **policy: Any) -> Any:
        """Decorator: make a sync or async function a typed step, also a node under its own name.

        `policy` has the options of a node: `retry`, `timeout`, `idle_timeout`, `on_error`, `effect`,
        `limits`, `queue`. In a workflow, a call of the step is recorded with its arguments and its return
        value, and raises on failure. Elsewhere, the same call is just the function.
        """

        def register(fn: Callable[..., Any]) -> Step[..., Any]:
            return Step(fn, StepNode(id or fn.__name__, self, fn, **policy))

        return register if fn is None else register(fn)

    def tool(
        self, fn: Callable[..., Any] | None = None, /, *, id: str | None = None, timeout: float | None = None
    ) -> Any:
        """Decorator: register a function as a tool that agents can call if their `tools` name it.

        Its annotations are the schema of its arguments, its docstring is the description for the agent.
        """
        from nerve.agents.agent_tool import AgentTool

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            tool = AgentTool(fn, id, timeout)
            self.tools[tool.name] = tool
            return fn

        return register if fn is None else register(fn)

    def add_queue(self, queue: Queue) -> Queue:
        """Declare a queue that steps and runs may use; a later one with the same name replaces it."""
        if not isinstance(queue, Queue):
            raise ValueError(f"A queue must be a Queue, such as Queue('emails'), got {describe_value(queue)}")
        self.queues[queue.name] = queue
        if self._engine is not None:
            self._engine.queues.on_declared()
        return queue

    @overload
    def trigger(self, name: str, workflow: str | Callable[..., Any], **definition: Any) -> Trigger: ...

    @overload
    def trigger(self, name: str, workflow: None = None, **definition: Any) -> Callable[[F], F]: ...

    def trigger(self, name: str, workflow: str | Callable[..., Any] | None = None, **definition: Any) -> Any:
        """Declare a trigger, which starts runs while `nerve.triggers.run_triggers`, or a server, runs.

        `definition` has the keys of a trigger file, such as `schedule="0 3 * * *"`. A later trigger with the
        same name replaces it. Without `workflow`, this is a decorator for the function of a workflow.
        """
        from nerve.core.triggers import make_trigger

        def declare(workflow: str | Callable[..., Any]) -> Trigger:
            id = workflow if isinstance(workflow, str) else find_workflow_name(self.workflows, workflow)
            trigger = make_trigger(name, {"workflow": id, **definition}, "Python code")
            self.triggers[trigger.name] = trigger
            if self.trigger_service is not None:
                self.trigger_service.changed.set()
            return trigger

        def decorate(fn: F) -> F:
            declare(fn)
            return fn

        return decorate if workflow is None else declare(workflow)

    def list_queues(self) -> list[QueueInfo]:
        """Return the queues with their limits, how many entries hold a slot or wait, and if they pause."""
        return self.engine.queues.describe_queues()

    async def pause_queue(self, name: str) -> None:
        """Start nothing more that needs a queue, across restarts, until `resume_queue`."""
        await self.engine.queues.pause(name)

    async def resume_queue(self, name: str) -> None:
        """Continue a paused queue."""
        await self.engine.queues.resume(name)

    # -- runs ----------------------------------------------------------------------------------

    @property
    def engine(self) -> LocalEngine:
        """The engine that drives the runs; the first access opens the store."""
        if self._engine is None:
            from nerve.engine.local_engine import LocalEngine

            self._load_budget()
            self._load_codec()
            self._engine = LocalEngine(
                open_store(self._store, self._codec, self.name), self, self.name, self._clock
            )
            self._open_telemetry(self._engine)
            self._open_notifications(self._engine)
            self._engine.watchers.append(self._run_workspaces.on_events)
        return self._engine

    def use_engine(self, engine: Any) -> None:
        """Let an engine execute the runs that is not the one of this process."""
        if self._engine is not None:
            raise RuntimeError(f"Session '{self.name}' is open. Give it an engine before its first use.")
        self._load_budget()
        self._engine = engine

    def _open_telemetry(self, engine: LocalEngine) -> None:
        """Send traces if the session or the configuration of the project says so."""
        if (settings := self.read_telemetry_settings()) is None:
            return
        from nerve.telemetry.telemetry import Telemetry

        self.tracing = self._telemetry = Telemetry(
            engine, self.name, settings, lambda: self.metrics, is_encoded=self._codec is not None
        )
        engine.watchers.append(self._telemetry.on_events)

    def _open_notifications(self, engine: LocalEngine) -> None:
        """Send messages to people about the runs that this process executes."""
        if self._store is None or engine.store.read_only or (notifier := self.open_notifier()) is None:
            return
        self._notifier = notifier
        engine.watchers.append(notifier.on_events)

    def open_notifier(self) -> Notifier | None:
        """Return what sends messages to people; None if the project has neither rules nor chats for them."""
        stream = self.engine.store.stream
        if stream is None or not (self.project / CONFIG_PATH).is_file():
            return None
        if self.config.notify is None and not self.config.chat:
            return None
        from nerve.chat.project_notifier import open_notifier

        return open_notifier(
            self.engine.store,
            stream,
            self.name,
            self.config,
            self.project,
            lambda: self.people.current(),
            self._codec is not None,
        )

    @property
    def notifier(self) -> Notifier | None:
        """What sends messages and keeps those of people in chats; None if the project has neither."""
        return self._notifier

    def read_telemetry_settings(self) -> TelemetrySettings | None:
        """Return what telemetry sends, as the session or the project says; None for nothing."""
        setting = self._telemetry_setting
        if setting is None and (self.project / CONFIG_PATH).is_file():
            setting = self.config.telemetry
        if not setting:
            return None
        from nerve.project.config import TelemetrySettings
        from nerve.telemetry.span_exporter import is_sdk_disabled

        if is_sdk_disabled():
            return None
        return TelemetrySettings() if setting is True else setting

    @property
    def metrics(self) -> SessionMetrics:
        """The metrics of the session; its events are counted from the first access on."""
        if self._metrics is None:
            from nerve.telemetry.metrics import SessionMetrics

            self._metrics = SessionMetrics(self.engine, self.name, lambda: self.provider_slots.snapshot())
        return self._metrics

    @property
    def codec(self) -> Codec | None:
        """The codec of the stored payloads; a configured one is known when the store is open."""
        return self._codec

    def _load_codec(self) -> None:
        """Use the encryption of the project configuration for a stored session without a codec."""
        is_plain = self._codec is None and self._store is not None
        if is_plain and (self.project / CONFIG_PATH).is_file() and self.config.encryption is not None:
            from nerve.crypto import open_project_codec

            self._codec = open_project_codec(self.project, self.config.encryption)

    def _load_budget(self) -> None:
        """Use the budget of the project configuration, unless one was set explicitly."""
        if not self._has_own_budget and (self.project / CONFIG_PATH).is_file():
            config_budget = self.config.budget
            self._budget = None if config_budget is None else Limits.of(config_budget)

    async def __aenter__(self) -> Session:
        self.engine  # noqa: B018 - open the store now, so that an error is raised here
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def budget(self) -> Limits | None:
        """What all runs together may spend per day; beyond it, runs are held until it is raised."""
        return self._budget

    @budget.setter
    def budget(self, budget: Limits | Mapping[str, Any] | None) -> None:
        self._budget = None if budget is None else Limits.of(budget)
        self._has_own_budget = True
        if self._engine is not None:
            self._engine.budgets.change_daily_limits(self._budget)

    async def close(self) -> None:
        """Park the open runs and close the store."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            telemetry, self._telemetry, self.tracing = self._telemetry, None, None
            self._metrics = None
            notifier, self._notifier = self._notifier, None
            if notifier is not None:
                await notifier.close()
            if telemetry is not None:
                await telemetry.flush()
            await engine.close()
            await self._run_workspaces.wait()
            if telemetry is not None:
                await telemetry.close()

    @overload
    async def start(
        self,
        workflow_id: Callable[[WorkflowContext], Awaitable[R]],
        input: Any = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> WorkflowRun[R]: ...

    @overload
    async def start(
        self,
        workflow_id: Callable[Concatenate[WorkflowContext, I, ...], Awaitable[R]],
        input: I,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> WorkflowRun[R]: ...

    @overload
    async def start(
        self,
        workflow_id: str,
        input: Any = None,
        params: Mapping[str, Any] | None = None,
        key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> WorkflowRun: ...

    async def start(
        self,
        workflow_id: str | Callable[..., Any],
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
        tags: Mapping[str, Any] | None = None,
        queue: str | Queue | None = None,
        caller: dict[str, str] | None = None,
        traceparent: str | None = None,
    ) -> WorkflowRun:
        """Start a run and return when the start is on disk. The same idempotency `key` returns the same run.

        A workflow is given by its name or its function; `input` is the first parameter of a typed function
        after the context, and `params` has the others.

        `label` is a name for the run that scopes signals; `conversation` is the one that it belongs to.
        `definition` is the hash of an earlier definition of the workflow to start instead of the current one.
        `tags` are at most 32 names with values, by which `runs` finds the run; numbers and booleans become
        text. `queue` is the queue that the whole run is in, instead of that of the workflow: the run starts
        when it has a slot, and holds it until it ends. `caller` is recorded as what started the run: its
        identity (`by`), and how its request came (`via`). `traceparent` is the span of a distributed trace
        that the run belongs to, as in the W3C header; with telemetry, the current span is used without it.
        """
        if inspect.isfunction(workflow_id):
            workflow_id = find_workflow_name(self.workflows, workflow_id)
        workflow_id = require_name("a workflow", workflow_id)
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
        params = loader.check_start_params(self, workflow, params)
        input = workflow.encode_input(input)
        check_safe_integers(input)
        if params:
            check_safe_integers(params)
        about: dict[str, Any] = {}
        if label is not None:
            about["label"] = require_name("a label", label)
        if branch is not None:
            about["branch"] = require_name("a branch", branch)
        if conversation is not None:
            about["conversation"] = require_name("a conversation", conversation)
        if tags:
            about["tags"] = validate_tags(tags)
        if self.modules:
            about["modules"] = list(self.modules)
        if caller:
            about["caller"] = caller
        if traceparent is None and self._telemetry is not None:
            traceparent = self._telemetry.current_traceparent()
        if traceparent is not None:
            about["traceparent"] = traceparent
        if (name := queue_name(queue) if queue is not None else node_policy(workflow).queue) is not None:
            declared = find_queue(self.queues, name)
            request = workflow.request_queue(declared, input, params, about.get("tags", {}))
            about["queue"] = request.to_data()
        run = WorkflowRun(workflow, input, params, event_sink, limits=limits, about=about)
        if key is not None:
            return await self.engine.start_once(run, require_name("a key", key))
        await self.engine.start(run)
        return run

    async def recover(self) -> Sequence[WorkflowRun]:
        """Resume all open runs of this session after a restart, and return them.

        Runs that only wait are left in the store. If there are many runs, the rest follows in the background
        and in the result.
        """
        self.engine  # noqa: B018 - opens the store, and telemetry with it
        if self._telemetry is not None:
            await self._telemetry.resend()
        if self._notifier is not None:
            self._notifier.start()
        await self._run_workspaces.close_ended(self.engine.store)
        if self.engine.store.fact_version(self.name) == 0:
            # Without any facts, skip the dataspace, whose imports take long.
            return await self.engine.recover()
        # Definitions first: open runs may belong to workflows that only facts define.
        self.dataspace.define_all()
        runs = await self.engine.recover()
        runs.extend(await self.dataspace.start_all())
        return runs

    async def signal(self, label: str, key: str | None = None, value: Any = None) -> None:
        """Assert a signal, which resumes all runs that wait for it and stays until it is retracted."""
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
        definition: str | None = None,
        reply: Any = None,
        caller: dict[str, str] | None = None,
    ) -> WorkflowRun:
        """Return a new run that copies the settled steps of `run_id` up to the path `at`.

        `input` is the new input of the step at `at`, or of the workflow without `at`. `overrides` changes
        settings of steps by path, and those steps run again. The new run inherits the current limits, and
        `limits` raises them for the run, or for steps by path. `definition` is the hash of another
        definition of the workflow, or `current` for the one that a start uses now. The same idempotency `key`
        returns the same run; the store keeps `reply` in the same transaction. `caller` is as for `start`.
        """
        raised_limits = validate_raise(limits)
        check_safe_integers([input, overrides])
        source, hash = self._check_fork(run_id, at, definition)
        return await self.engine.fork(
            source, at, input, overrides or {}, key, raised_limits, reply, hash, caller
        )

    def preview_fork(
        self,
        run_id: str,
        at: str | None = None,
        input: Any = ...,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        definition: str | None = None,
    ) -> ForkPreview:
        """Return which steps `fork` with the same arguments would reuse and run again; nothing starts."""
        source, hash = self._check_fork(run_id, at, definition)
        return self.engine.preview_fork(source, at, input, overrides or {}, hash)

    def find_reused_answers(
        self,
        run_id: str,
        at: str | None = None,
        input: Any = ...,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        definition: str | None = None,
    ) -> list[ReusedAnswer]:
        """Return the answers of people that `fork` with the same arguments would reuse; nothing starts."""
        source, hash = self._check_fork(run_id, at, definition)
        return self.engine.find_reused_answers(source, at, input, overrides or {}, hash)

    def preview_retry(self, run_id: str) -> ForkPreview:
        """Return which steps `retry` would reuse and run again; nothing starts."""
        run = self.get_workflow_run(run_id)
        return self.engine.preview_retry(run.current.run_id if run else run_id)

    def _check_fork(self, run_id: str, at: str | None, definition: str | None) -> tuple[str, str | None]:
        """Return the id of the run to fork and the hash of the definition that the fork uses."""
        if at is not None:
            require_str("the path to fork at", at)
        source = self._full_id(run_id)
        row = self.engine.store.run(source) if definition is not None else None
        if definition is None or row is None:
            return source, None
        current = self.find_startable(row.workflow)
        current_hash = None if current is None else current.definition()[0]
        if definition == "current" and current_hash is not None:
            return source, current_hash
        stored = self.engine.store.definition(require_str("the hash of a definition", definition))
        if definition != current_hash and (stored is None or stored.workflow != row.workflow):
            raise ValueError(
                f"Workflow '{row.workflow}' has no definition '{definition}'. Use 'current', or the hash of a"
                " definition that its runs were started from"
            )
        return source, definition

    async def retry(
        self,
        run_id: str,
        key: str | None = None,
        *,
        reply: Any = None,
        caller: dict[str, str] | None = None,
    ) -> WorkflowRun:
        """Return a new run that copies the settled steps of `run_id` and executes the failed ones again.

        Failed child runs are retried in the same way. Of a run that continued as new, the last run of its
        chain is retried. The same idempotency `key` returns the same run; the
        store keeps `reply` in the same transaction. `caller` is as for `start`.
        """
        run = self.get_workflow_run(run_id)
        return await self.engine.retry(run.current.run_id if run else run_id, key, reply, caller)

    def get_workflow_run(self, run_id: str) -> WorkflowRun | None:
        """Return a run by its id or a unique prefix of it; None if there is none.

        The id of the first run of a chain, if that run was deleted, returns the current run of the chain.
        """
        if not is_valid_unicode(run_id):
            return None
        from nerve.engine.run_chain import find_run_of_chain  # the engine is imported with the first run

        store = self.engine.store
        exact = store.run(run_id)
        if exact is not None and exact.session == self.name:
            return self.engine.run_handle(exact)
        rows = store.runs(session=self.name, prefix=run_id, newest=2)
        if not rows and (current := find_run_of_chain(store, self.name, run_id)) is not None:
            return self.engine.run_handle(current)
        return self.engine.run_handle(rows[0]) if len(rows) == 1 else None

    def runs(
        self,
        *,
        workflow: str | None = None,
        state: WorkflowState | str | None = None,
        label: str | None = None,
        tags: Mapping[str, Any] | None = None,
        since: str | datetime | timedelta | None = None,
        search: str | None = None,
        patch: str | None = None,
        before: WorkflowRun | None = None,
        limit: int = 50,
    ) -> list[WorkflowRun]:
        """Return the newest runs of this session that match all filters, newest first.

        `since` is the earliest start, or how long ago it is: `2d`. `search` is a text in the workflow, label,
        tags or input of one of the newest 5,000 runs that match otherwise. With a `patch`, these are the
        open runs that may need its old branch. `before` is the last run of the previous page.
        """
        filters = RunFilters(
            workflow,
            None if state is None else [parse_workflow_state(state).value],
            label,
            None,
            validate_tags(tags or {}),
            since,
            search,
            patch,
        )
        store = self.engine.store
        previous = None if before is None else store.run(before.run_id)
        number, now = require_int("limit", limit, 1), self._clock.time()
        rows = filters.find_newest(store, self.name, previous, number, now)
        return [self.engine.run_handle(row) for row in rows]

    def list_workflow_runs(
        self, workflow_id: str | None = None, state: WorkflowState | str | None = None
    ) -> list[WorkflowRunInfo]:
        """Return information about the runs of this session, oldest first; optionally only of one state."""
        wanted_state = None if state is None else parse_workflow_state(state)
        rows = self.engine.store.runs(session=self.name, workflow=workflow_id)
        loadable = [row for row in rows if self.engine.has_workflow(row)]
        infos = [self.engine.run_handle(row).to_info() for row in loadable]
        return [info for info in infos if wanted_state in (None, info.state)]

    @property
    def _workflow_runs(self) -> dict[str, WorkflowRun]:
        return dict(self.engine.run_handles)

    def _full_id(self, run_id: str) -> str:
        run = self.get_workflow_run(run_id)
        return run.run_id if run else run_id


def parse_workflow_state(state: WorkflowState | str) -> WorkflowState:
    """Return the state of a name; ValueError for an unknown one."""
    if isinstance(state, WorkflowState):
        return state
    return WorkflowState(require_one_of("state", state, [member.value for member in WorkflowState]))
