"""What goes in and comes out of the api."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from nerve.api.callers import LOCAL_CALLER, Caller
from nerve.api.pending_reply import PendingReply
from nerve.core.events import GATE_EVENTS, SHOWN_IN_KEY
from nerve.core.notation_table import NotationName

Text = Annotated[str, Field(max_length=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Key = Annotated[str, Field(min_length=1, max_length=256)]


class ApiRequest(BaseModel):
    """What is asked for; what nobody knows is refused. Who asks is not among what can be said."""

    model_config = ConfigDict(extra="forbid")
    key_field: ClassVar[str] = ""
    """The field with the key under which it counts once."""

    _caller: Caller = PrivateAttr(default=LOCAL_CALLER)
    _reply: PendingReply | None = PrivateAttr(default=None)

    @property
    def request_key(self) -> str | None:
        """The key under which it counts once, if it has one."""
        return getattr(self, self.key_field) if self.key_field else None


class ApiResponse(BaseModel):
    """What is told; more may be told later."""

    model_config = ConfigDict(extra="allow")


# -- what is asked for ---------------------------------------------------------------------------------


class EmptyRequest(ApiRequest):
    pass


class ListWorkflowsRequest(ApiRequest):
    all: bool = False
    """Also those that the project's configuration switches off."""


class CommandRequest(ApiRequest):
    key_field: ClassVar[str] = "key"

    key: Key | None = None
    """The same command with the same key is done once, and told the same each time."""


class DefineRequest(CommandRequest):
    source: Text
    notation: NotationName | None = None
    file: Text | None = None
    """What problems call it; the file is not read."""
    prompts: dict[str, Text] = {}
    """The texts of prompts that it names, which are kept with it; others are looked for in the project."""
    keep: bool = True
    """Whether its name means it from now on; if not, it is for runs that are started with its `hash`."""


class StartRequest(CommandRequest):
    workflow: Name
    """A workflow, a graph or a node by its name, or any unique beginning of it."""
    input: Any = None
    params: dict[str, Any] = {}
    definition: Name | None = None
    """The `hash` of what the workflow was defined as; without it, what its name means now."""
    key: Key | None = None
    """The same key gives the same run."""
    label: Name | None = None
    branch: Name | None = None
    conversation: Name | None = None
    limits: dict[str, float] | None = None
    wait: bool = False
    """Return when the run has ended, or waits for somebody."""


class RunRequest(ApiRequest):
    run: Name
    """Its id, the beginning of it, or its label; of several that go by it, the one that is open."""


class WorkflowRequest(ApiRequest):
    workflow: Name


class PauseRequest(RunRequest, CommandRequest):
    pass


class AnswerRequest(CommandRequest):
    run: Name | None = None
    gate: Name | None = None
    """The gate's id, path or node, or a beginning that no other has; not needed where only one is open."""
    answer: Any = None
    key: Key | None = None
    """The same answer with the same key counts once, and is told the same each time."""
    reason: Text = ""
    """Why; it is kept with the answer."""


class SignalRequest(ApiRequest):
    key_field: ClassVar[str] = "idempotency_key"

    label: Name
    key: Name | None = None
    """Whose signal it is, such as the label of a run."""
    value: Any = None
    idempotency_key: Key | None = None
    """The same signal with the same key is sent once."""


class FactRequest(CommandRequest):
    fact: Any
    """A record or a pattern: its text, or its JSON form."""


class ListFactsRequest(ApiRequest):
    pattern: Any = None


class ResumeRequest(RunRequest, CommandRequest):
    limits: dict[str, float | dict[str, float]] = {}
    """What is raised: limits of the run by their names, or those of a step under its path."""
    with_changes: bool = False


class SteerRequest(RunRequest, CommandRequest):
    text: Text
    path: str | None = None
    """The step; may be left out where only one agent listens."""


class StopRequest(RunRequest, CommandRequest):
    reason: Text = ""


class ForkRequest(RunRequest, CommandRequest):
    at: str | None = None
    input: Any = None
    """A new input; without it, the same as before."""
    overrides: dict[str, dict[str, Any]] = {}
    """Settings of steps under their paths; those steps are run again."""
    limits: dict[str, float | dict[str, float]] = {}
    """What is raised: limits of the run by their names, or those of a step under its path."""


class SkipRequest(RunRequest, CommandRequest):
    path: str = ""
    output: Any = None


class ReloadRequest(CommandRequest):
    pass


class RouteRequest(CommandRequest):
    text: Text
    conversation: Name | None = None
    start: bool = False
    watching: Name | None = None
    """The run that the user watches: while it waits for an answer, no text starts another run."""


class DeleteRunsRequest(CommandRequest):
    older_than: Annotated[float, Field(ge=1, le=36_500)] = 30
    """Days since the end of a run; keys are good for a day at least."""
    output_older_than: Annotated[float, Field(ge=0, le=36_500)] | None = None
    """Days; what agents said before is emptied in the runs that stay."""
    dry_run: bool = True
    """Only say what would be deleted."""


class ListRunsRequest(ApiRequest):
    workflow: Name | None = None
    state: Name | None = None
    label: Name | None = None
    conversation: Name | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    before: Name | None = None
    """Only runs that started before this one."""
    largest: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Characters of a result, or of an error; larger ones are left out, and `left_out` of the run says so."""


class ListEventsRequest(RunRequest):
    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    whole: bool = False
    """Tell what agents said at great length as a whole, too."""


# -- what is told --------------------------------------------------------------------------------------


class GateResponse(ApiResponse):
    gate_id: str
    run_id: str
    workflow: str | None = None
    path: str
    prompt: str
    choices: list[str] | None = None
    options: list[str] | None = None
    node_id: str | None = None
    note: str | None = None
    input_preview: str | None = None
    """The beginning of what is to be judged."""
    created_at: datetime | None = None
    deadline: float | None = None
    action: dict[str, Any] | None = None
    form: dict[str, Any] | None = None
    """A JSON Schema that the answer fits."""


class RunResponse(ApiResponse):
    run_id: str
    workflow: str
    state: str
    label: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    held: dict[str, Any] | None = None
    gates: list[GateResponse] = []
    parent: str | None = None
    input_preview: str = ""
    """The first words of the input."""


class NodeResponse(ApiResponse):
    path: str
    name: str
    state: str
    seconds: float | None = None
    iteration: int | None = None
    max_iterations: int | None = None
    attempts: int = 1
    error: str | None = None
    held: str | None = None
    """Why it stands although it runs: `held: claude limit until 14:30`."""
    usage: dict[str, float] = {}
    parts: list[NodeResponse] = []


class RunDetailResponse(RunResponse):
    input: Any = None
    params: dict[str, Any] = {}
    tree: list[NodeResponse] = []
    usage: dict[str, float] = {}
    models: dict[str, dict[str, float]] = {}
    """What was taken by each model; what nobody told is left out, and the turns without it are counted."""
    last_seq: int = 0


class AnswerResponse(ApiResponse):
    """An answer as it was recorded: the same each time it is told."""

    run_id: str
    gate_id: str
    path: str
    node_id: str | None = None
    answer: Any = None
    by: str = ""
    """Who, as far as that is known for sure: `token:SCOPE`, `browser:SCOPE`, `unix:USER`, or `api`."""
    via: str = ""
    """From where: `http`, `ws`, `api`; and `unix socket`, or `cli` or `commander`, if it calls itself so."""
    scope: str | None = None
    """What the token was for."""
    pid: int | None = None
    """The process that asked, if it is one of this machine."""
    reason: str = ""
    key: str | None = None


class EventResponse(ApiResponse):
    seq: int
    run_id: str
    workflow_id: str
    event_type: str
    path: str
    timestamp: datetime
    data: dict[str, Any]

    @property
    def is_of_child(self) -> bool:
        """Whether it is an event of a child run, in the stream of a run around it."""
        return self.event_type in GATE_EVENTS and SHOWN_IN_KEY in self.data


class InputResponse(ApiResponse):
    name: str
    type: str
    required: bool = False
    default: Any = None
    description: str = ""
    choices: list[Any] | None = None


class WorkflowResponse(ApiResponse):
    id: str
    kind: str
    description: str = ""
    inputs: list[InputResponse] = []
    steps: list[str] = []
    hash: str = ""
    created_at: datetime | None = None
    source: str | None = None
    prompts: dict[str, str] = {}
    """The texts of the prompts that the source names."""
    enabled: bool = True
    """Whether the project's configuration lets it be started."""


class FactResponse(ApiResponse):
    id: str
    record: list[Any]
    text: str
    by: str
    at: float


class UsageResponse(ApiResponse):
    today: dict[str, float] = {}
    models: dict[str, dict[str, float]] = {}
    """What was taken today, by model: the counts of tokens, and the cost by where it comes from."""
    budget: dict[str, float] | None = None
    runs: dict[str, dict[str, float]] = {}
    limited: dict[str, float] = {}


class ThreadResponse(ApiResponse):
    run_id: str
    agent: str
    thread: str
    provider: str


class RouteResponse(ApiResponse):
    kind: Literal["workflow", "conversation", "question"]
    workflow: str | None = None
    inputs: dict[str, Any] = {}
    text: str = ""
    by: str = ""
    reason: str = ""
    run: RunResponse | None = None


class SteerResponse(ApiResponse):
    run_id: str
    path: str
    text: str


class DoneResponse(ApiResponse):
    done: bool = True


class ReloadResponse(DoneResponse):
    workflows: int = 0
    removed: list[str] = []
    """The workflows whose files are gone."""
    python_files: list[str] = []
    """Python files that are not read again: their code is the one that the process started with."""
    problems: list[dict[str, Any]] = []


class DeletedRun(ApiResponse):
    run_id: str
    workflow: str
    state: str
    ended_at: datetime


class DeleteRunsResponse(ApiResponse):
    """What was deleted; of a dry run, what would be."""

    dry_run: bool = True
    runs: int = 0
    events: int = 0
    bytes: int = 0
    files: int = 0
    """Logs and folders of artifacts, which go with their runs."""
    chunks: int = 0
    """Pieces of output that are emptied in the runs that stay."""
    chunk_bytes: int = 0
    replies: int = 0
    """Replies to commands with keys, which are not repeated any more."""
    oldest: list[DeletedRun] = []
    """The first of the runs."""


class DefinitionResponse(ApiResponse):
    """A workflow as runs were started from it."""

    hash: str
    workflow: str
    notation: str
    source: str
    current: bool
    """Whether a run that is started now is started from it."""
    runs: int


class SessionResponse(ApiResponse):
    """The names of one project in the store, and how many runs there are of them."""

    name: str
    current: bool
    runs: dict[str, int]


class HealthResponse(ApiResponse):
    status: Literal["ok", "degraded"] = "ok"
    session: str = ""
    store: str = ""
    runs: dict[str, int] = {}
    held: dict[str, str] = {}
    loss: str | None = None
    """What the store has lost since the process before, although it was acknowledged."""
    waits: float = 0.0
    """Seconds for which the disk has not taken what is being written."""
    limited: dict[str, float] = {}
    queue: dict[str, int] = {}
    """Runs that are driven, and journals that wait for the disk."""
    providers: dict[str, dict[str, float]] = {}
    """Of each: how many agents it may have at once (slots), how many it has (busy), and `limited_until`."""
    version: str = ""


class PageResponse(ApiResponse):
    """A list, and whether there is more."""

    more: bool = False


class WorkflowPage(PageResponse):
    workflows: list[WorkflowResponse] = []
    nodes: list[str] = []
    """The nodes that can be started by their names, too."""
    graphs: list[str] = []


class RunPage(PageResponse):
    runs: list[RunResponse] = []


class EventPage(PageResponse):
    events: list[EventResponse] = []


class GatePage(PageResponse):
    gates: list[GateResponse] = []


class FactPage(PageResponse):
    facts: list[FactResponse] = []


class DefinitionPage(PageResponse):
    definitions: list[DefinitionResponse] = []


class SessionPage(PageResponse):
    sessions: list[SessionResponse] = []


class ThreadPage(PageResponse):
    threads: list[ThreadResponse] = []
