"""Request and response models of the API.

Annotations are not strings, except recursive ones: pydantic compiles each string at import.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from nerve.api.callers import LOCAL_CALLER, Caller
from nerve.api.pending_reply import PendingReply
from nerve.core.events import GATE_EVENTS, SHOWN_IN_KEY
from nerve.core.notation_table import NotationName
from nerve.core.trace_context import TRACEPARENT_PATTERN
from nerve.core.workflow.state import WorkflowState
from nerve.store.port import ReplyRow

Text = Annotated[str, Field(max_length=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Key = Annotated[str, Field(min_length=1, max_length=256)]
NameList = Annotated[
    list[Name],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(max_length=32),
]
"""Names; a single one may be given without a list. A query repeats the parameter."""


class ApiRequest(BaseModel):
    """A request; unknown fields are rejected. The caller is not part of it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    key_field: ClassVar[str] = ""
    """The field with the idempotency key."""

    _caller: Caller = PrivateAttr(default=LOCAL_CALLER)
    _reply: PendingReply | None = PrivateAttr(default=None)

    @property
    def caller(self) -> Caller:
        """The sender of the request: this program if no server has received it."""
        return self._caller

    @property
    def pending_reply(self) -> PendingReply | None:
        """The reply that the store keeps for the idempotency key; None without a key."""
        return self._reply

    def set_caller(self, caller: Caller) -> None:
        self._caller = caller

    def set_pending_reply(self, reply: PendingReply) -> None:
        self._reply = reply

    def reply_maker(self, respond: "Callable[[Any], ApiResponse]") -> Callable[[Any], ReplyRow] | None:
        """Return a function that makes the reply row of an effect, to store with it; None without a key."""
        reply = self._reply
        return None if reply is None else lambda effect: reply.completed_row(respond(effect))

    @property
    def request_key(self) -> str | None:
        """The idempotency key, if there is one."""
        return getattr(self, self.key_field) if self.key_field else None


class ApiResponse(BaseModel):
    """A response; later versions may add fields."""

    model_config = ConfigDict(extra="allow", defer_build=True)


# -- requests ------------------------------------------------------------------------------------------


class EmptyRequest(ApiRequest):
    pass


class ListWorkflowsRequest(ApiRequest):
    all: bool = False
    """Include workflows that the project's configuration disables."""


class CommandRequest(ApiRequest):
    key_field: ClassVar[str] = "key"

    key: Key | None = None
    """Idempotency key: a repeated command with the same key returns the first reply."""


class DefineRequest(CommandRequest):
    source: Text
    notation: NotationName | None = None
    file: Text | None = None
    """The name to show in problems; the file is not read."""
    prompts: dict[str, Text] = {}
    """Prompt texts that it references, stored with it; others are read from the project."""
    keep: bool = True
    """Whether its name refers to it from now on; if not, runs can start it by its `hash`."""


class ChatMessageRequest(CommandRequest):
    """A message of a person in a chat, or a button that they have pressed."""

    chat: Name
    thread: Name
    account: Name
    text: Text = ""
    addressed: bool = True
    gate: Name | None = None
    choice: int | None = None
    hash: Name | None = None


class StartRequest(CommandRequest):
    workflow: Name
    """A workflow, graph or node by its name or a unique prefix of it."""
    input: Any = None
    params: dict[str, Any] = {}
    definition: Name | None = None
    """The `hash` of a definition of the workflow; by default the current one."""
    key: Key | None = None
    """Idempotency key: a repeated start with the same key returns the same run."""
    label: Name | None = None
    branch: Name | None = None
    conversation: Name | None = None
    limits: dict[str, float] | None = None
    tags: dict[str, str | int | float | bool] = {}
    """Names and values by which lists find the run; numbers and booleans become text."""
    queue: Name | None = None
    """The queue that the run is in, instead of that of the workflow."""
    traceparent: Annotated[str, Field(pattern=TRACEPARENT_PATTERN)] | None = None
    """The span that starts the run, as in the W3C header of this name, which is accepted too."""
    wait: bool = False
    """Return when the run has ended, or waits for a user."""


class RunRequest(ApiRequest):
    run: Name
    """Its id, a prefix of the id, or its label; if several runs match, the one that is open."""


class ShowRunRequest(RunRequest):
    before: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Show the steps with events before this number: the `next` of the response with the later ones."""
    steps: bool = True
    """Without them, no journal is read, so that a run of any length costs the same."""


class ListArtifactsRequest(RunRequest):
    after: Annotated[str, Field(max_length=4096)] | None = None
    """List the artifacts after this name: the `next` of the previous page."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class ListChangesRequest(RunRequest):
    path: Name | None = None
    """Only those of the step at this path and of the steps inside it."""


class WorkflowRequest(ApiRequest):
    workflow: Name


class PauseRequest(RunRequest, CommandRequest):
    pass


class ChangeQueueRequest(CommandRequest):
    queue: Name


class TriggerRequest(ApiRequest):
    trigger: Name


class ChangeTriggerRequest(CommandRequest):
    trigger: Name


class DefineTriggerRequest(CommandRequest):
    trigger: Name
    definition: dict[str, Any]
    """What a trigger file contains, such as `{"workflow": "report", "schedule": "0 3 * * *"}`."""


class FireTriggerRequest(CommandRequest):
    trigger: Name
    event: dict[str, Any] = {}
    """What expressions of the trigger read, such as `{"body": …}` of a webhook or `{"mail": …}`."""
    delivery: Name | None = None
    """The id of the event: one that is fired again with the same id starts nothing more."""


class BackfillTriggerRequest(CommandRequest):
    trigger: Name
    since: Name
    """The first time of the range such as `2027-01-01T00:00`, in UTC if it has no offset."""
    until: Name
    """The last time of the range."""


class AnswerRequest(CommandRequest):
    run: Name | None = None
    gate: Name | None = None
    """The gate's id, path, node or end of the path, or a unique prefix; not needed if only one is open."""
    answer: Any = None
    """A choice, a text or a value. `{"allow": INPUT}` allows an editable action with that input."""
    key: Key | None = None
    """Idempotency key: a repeated answer with the same key returns the first reply."""
    reason: Text = ""
    """The reason, stored with the answer."""
    hash: Name | None = None
    """The `hash` of the gate that the user was shown; an open gate with another one is not answered. A gate
    with a `policy` needs it."""
    action: Literal["answer", "delegate", "claim", "release"] = "answer"
    """What a person does at a gate with a policy: `delegate` to the person that `answer` names, `claim` the
    gate, or `release` it."""


class PersonFields(CommandRequest):
    person: Name
    """The name of the person: lower-case letters, digits, `-` and `_`."""
    roles: list[Name] | None = None
    scope: Literal["read", "answer", "run", "member", "admin"] | None = None
    """What the token of the person permits; `member` is `answer` and `run` together."""
    contacts: dict[str, Text | None] | None = None
    """Addresses by kind, such as `email` or `slack`, to add or change; null removes one. `unix` is the
    name of the user of this machine who is this person."""
    token_hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The SHA-256 of a new token in hex. A token begins with `nvp_`; the caller makes it and
    never sends it."""


class AddPersonRequest(PersonFields):
    pass


class ChangePersonRequest(PersonFields):
    disabled: bool | None = None
    """Whether the person cannot sign in and answer."""


class RemovePersonRequest(CommandRequest):
    person: Name


class SignalRequest(ApiRequest):
    key_field: ClassVar[str] = "idempotency_key"

    label: Name
    key: Name | None = None
    """The key of the signal, such as the label of a run."""
    value: Any = None
    idempotency_key: Key | None = None
    """Idempotency key: a repeated signal with the same key is sent once."""


class FactRequest(CommandRequest):
    fact: Any
    """A record or a pattern, as text or as JSON."""


class ListFactsRequest(ApiRequest):
    pattern: Any = None
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Only that many facts, the newest first. Without it, all facts, the oldest first."""
    before: Name | None = None
    """Only facts that were asserted before this one, the last of the previous page; the newest first."""
    asserted: bool = False
    """Without the facts that are read from definitions and the journals of runs."""


class ResumeRequest(RunRequest, CommandRequest):
    limits: dict[str, float | dict[str, float]] = {}
    """Limits to raise: those of the run by name, or those of a step under its path."""
    with_changes: bool = False


class SteerRequest(RunRequest, CommandRequest):
    text: Text
    path: str | None = None
    """The step; optional if only one agent accepts messages."""


class SendRequest(RunRequest, CommandRequest):
    channel: Name
    value: Any = None


class UpdateRequest(RunRequest, CommandRequest):
    update: Name
    """The name under which the code of the run handles it."""
    value: Any = None


class QueryRequest(RunRequest):
    query: Name
    """The name under which the code of the run answers it."""


class StopRequest(RunRequest, CommandRequest):
    reason: Text = ""


class ForkRequest(RunRequest, CommandRequest):
    at: str | None = None
    input: Any = None
    """A new input; by default the previous one."""
    overrides: dict[str, dict[str, Any]] = {}
    """Settings of steps by path; those steps run again."""
    limits: dict[str, float | dict[str, float]] = {}
    """Limits to raise: those of the run by name, or those of a step under its path."""
    definition: Name | None = None
    """The `hash` of another definition of the workflow, or `current`; by default that of the run."""


class PreviewForkRequest(RunRequest):
    at: Annotated[str, Field(max_length=10_000)] | None = None
    new_input: bool = False
    """Whether the fork gets another input, of the step `at` or of the workflow."""
    overridden: NameList = []
    """The paths of steps with changed settings."""
    definition: Name | None = None
    """The `hash` of another definition of the workflow, or `current`; by default that of the run."""
    retry: bool = False
    """Preview a retry, which runs all failed steps again; without `at` and the other fields."""


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
    """The run that the user watches: while it waits for an answer, no message starts another run."""
    traceparent: Annotated[str, Field(pattern=TRACEPARENT_PATTERN)] | None = None
    """The span that starts the run, as in the W3C header of this name, which is accepted too."""


class DeleteRunsRequest(CommandRequest):
    older_than: Annotated[float, Field(ge=1, le=36_500)] = 30
    """Days since the end of a run; at least one, because keys stay valid for a day."""
    output_older_than: Annotated[float, Field(ge=0, le=36_500)] | None = None
    """Days; older agent output is removed from the runs that stay."""
    dry_run: bool = True
    """Only report what would be deleted."""
    discard: Annotated[list[Name], Field(max_length=1000)] = []
    """Runs whose work in workspaces is given up."""


class DeleteRunRequest(RunRequest, CommandRequest):
    pass


class ListRunsRequest(ApiRequest):
    """Only the runs that match all of these."""

    workflow: Name | None = None
    state: NameList = []
    """One of these states."""
    label: Name | None = None
    conversation: Name | None = None
    tag: NameList = []
    """Tags in the form `name=value`."""
    since: Name | None = None
    """The earliest start: a date or time, or how long ago it is, such as `2d`."""
    search: Name | None = None
    """A text in the workflow, label, tags or input of the newest 5,000 runs that match otherwise."""
    patch: Name | None = None
    """Only open runs that may need the old branch of this patch."""
    sort: Literal["started", "duration", "cost"] = "started"
    """Newest, longest or most expensive first; the last two among the newest 5,000 runs that match."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    before: Name | None = None
    """Only the runs that follow this one in the order of the list, such as those that started before it."""
    largest: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Maximum characters of a result or error; larger ones are omitted and listed in the run's `left_out`."""


class UsageHistoryRequest(ApiRequest):
    days: Annotated[int, Field(ge=1, le=366)] = 30
    """The number of days, of which today is the last."""


class AuditRequest(ApiRequest):
    """Only the decisions that match all of these."""

    since: Name | None = None
    """The earliest time: a date or time, or how long ago it is, such as `2d`."""
    until: Name | None = None
    """The latest time."""
    run: Name | None = None
    """Only decisions about this run."""
    person: Name | None = None
    """Only decisions of this person, or about them."""
    after: Annotated[str, Field(max_length=1000)] | None = None
    """The field `next` of the page before."""


class ListGatesRequest(ApiRequest):
    mine: bool = False
    """Only gates that wait for the caller: they may answer, and have not."""
    person: Name | None = None
    """Only gates that wait for this person."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    after: Annotated[str, Field(max_length=10_000)] | None = None
    """The field `next` of the page before."""


class ListEventsRequest(RunRequest):
    after: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    whole: bool = False
    """Return long agent output in full."""
    path: Annotated[str, Field(max_length=10_000)] | None = None
    """Only events of the step at this path, and of what is inside it."""
    type: NameList = []
    """Only events of these types."""
    search: Name | None = None
    """Only events with this text in their type, path or data, without regard to case."""


# -- responses -----------------------------------------------------------------------------------------


class MessageResponse(ApiResponse):
    run_id: str
    channel: str


class UpdateResponse(ApiResponse):
    run_id: str
    update: str
    result: Any = None
    """What the handler returned."""


class QueryResponse(ApiResponse):
    run_id: str
    query: str
    result: Any = None


RunState = Annotated[str, Field(json_schema_extra={"enum": [state.value for state in WorkflowState]})]
"""The state of a run."""
HeldFields = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "properties": {name: {"type": "string"} for name in ("reason", "message", "path", "run_id")},
            "required": ["reason", "message"],
        }
    ),
]
"""Why a run, or a child run of it, needs a decision."""
ProblemFields = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "properties": {
                **{name: {"type": "string"} for name in ("file", "message", "fix")},
                **{name: {"type": "integer"} for name in ("line", "column")},
                "severity": {"type": "string", "enum": ["error", "warning", "note"]},
            },
            "required": ["file", "line", "column", "severity", "message", "fix"],
        }
    ),
]
"""A problem of a definition."""


class GateResponse(ApiResponse):
    gate_id: str
    run_id: str
    workflow: str | None = None
    label: str | None = None
    """The label of the run."""
    path: str
    prompt: str
    choices: list[str] | None = None
    options: list[str] | None = None
    node_id: str | None = None
    note: str | None = None
    input_preview: str | None = None
    """The beginning of the content to review."""
    created_at: datetime | None = None
    deadline: float | None = None
    action: dict[str, Any] | None = None
    form: dict[str, Any] | None = None
    """The JSON Schema of the answer."""
    hash: str = ""
    """Stands for what the gate asks and when; a later question at the same place has another one."""
    policy: dict[str, Any] | None = None
    """Who decides the gate, if not the first answer does: `approvers`, `quorum` and the others."""
    votes: list[dict[str, Any]] = []
    """The answers of people so far, each with `person`, `answer`, `by`, `via` and `at`."""
    delegations: list[dict[str, Any]] = []
    claimed_by: str | None = None
    approvers: list[str] = []
    """The people and roles who may answer now, with those to whom the gate was escalated."""
    missing: str = ""
    """Whose answer the gate still needs, if it has a policy."""


class RunResponse(ApiResponse):
    run_id: str
    workflow: str
    state: RunState
    label: str | None = None
    tags: dict[str, str] = {}
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    error_type: str | None = None
    """The type of the exception that failed it."""
    location: str | None = None
    """Where it failed, if the workflow function raised: `flow.py:12 in charge`."""
    held: HeldFields | None = None
    waiting_for: str | None = None
    """What a waiting run waits for: `for signal shipped (key 42)`, `until 14:05`, `for 3 gates`."""
    gates: list[GateResponse] = []
    parent: str | None = None
    continued_as: str | None = None
    """The next run of its chain, if it continued as new."""
    continued_from: str | None = None
    """The previous run of its chain."""
    parked: bool = False
    """Whether it was running when its process ended, and no process has continued it."""
    input_preview: str = ""
    """The first words of the input."""
    usage: dict[str, float] = {}
    """The tokens and the cost that it has used so far."""
    started_by: str | None = None
    """The identity of the caller that started it: `browser:admin`, `unix:ada`, `token:run`; `run:ID` if a run
    did; None if it is not known."""
    started_via: str | None = None
    """How the request to start it came: `cli`, `commander`, `mcp`, `acp`, `http`, `router`."""


class NodeResponse(ApiResponse):
    path: str
    name: str
    state: str
    seconds: float | None = None
    iteration: int | None = None
    max_iterations: int | None = None
    attempts: int = 1
    error: str | None = None
    error_type: str | None = None
    location: str | None = None
    """Where it failed, if it raised: `flow.py:12 in charge`."""
    traceback: str | None = None
    held: str | None = None
    """Why it is blocked although it runs: `held: claude limit until 14:30`."""
    usage: dict[str, float] = {}
    parts: "list[NodeResponse]" = []


class RunDetailResponse(RunResponse):
    traceback: str | None = None
    input: Any = None
    params: dict[str, Any] = {}
    tree: list[NodeResponse] = []
    models: dict[str, dict[str, float]] = {}
    """Usage by model; unknown figures are omitted, and the turns without them are counted."""
    last_seq: int = 0
    """The number of its events."""
    next: int | None = None
    """The tree has only the newest and the open steps; earlier ones are requested with this as `before`."""
    left_out: list[str] = []
    """Fields that are omitted because the run is long, or was requested without its steps."""


class ForkStepResponse(ApiResponse):
    """A step of the run to fork, and what the fork does with it."""

    path: str
    """The path in the fork; that of a step in a child run starts with the path of the call."""
    run_id: str
    """The run that has executed it."""
    kind: str
    """leaf, control, child, gate, timer, signal or message."""
    node: str = ""
    fate: Literal["reused", "reused_if_same", "continues", "again", "held"]
    """`reused_if_same`: its outcome counts if the fork requests it with the same input. `continues`: it is
    open, and what is inside it has its own entries. `held`: its outcome is unknown, and it must run once."""


class ForkPreviewResponse(ApiResponse):
    """What a fork would reuse and run again; nothing has been started."""

    run_id: str
    at: str | None = None
    definition: str = ""
    """The hash of the definition that the fork uses."""
    is_definition_changed: bool = False
    is_input_changed: bool = False
    counts: dict[str, int] = {}
    """The number of steps by `fate`."""
    steps: list[ForkStepResponse] = []
    """In the order in which the run has requested them."""
    refusal: dict[str, Any] | None = None
    """The error with which the fork would be refused, such as the reuse of an answer of people."""


class AnswerResponse(ApiResponse):
    """A recorded answer; repeated requests return the same."""

    run_id: str
    gate_id: str
    path: str
    node_id: str | None = None
    answer: Any = None
    by: str = ""
    """The verified identity: `person:NAME`, `token:SCOPE`, `browser:SCOPE`, `unix:USER`, or `api`."""
    via: str = ""
    """The transport: `http`, `ws`, `api`, `unix socket`; or what a client says: `cli`, `mcp` and others."""
    scope: str | None = None
    """The scope of the token."""
    pid: int | None = None
    """The process of the caller, if it is local."""
    address: str | None = None
    """The address of the caller, if it is connected over a network."""
    reason: str = ""
    key: str | None = None
    action: Literal["answer", "delegate", "claim", "release"] = "answer"
    """What was done. An answer to a gate with a `policy` is one vote, and may not settle the gate."""


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
        """Whether it is an event of a child run in the stream of an enclosing run."""
        return self.event_type in GATE_EVENTS and SHOWN_IN_KEY in self.data


class InputResponse(ApiResponse):
    name: str
    type: str
    required: bool = False
    default: Any = None
    description: str = ""
    choices: list[Any] | None = None
    format: str = ""
    """What a text stands for: `date-time`, `decimal`, `uuid` and the other formats of JSON Schema."""


class WorkflowResponse(ApiResponse):
    id: str
    kind: str
    description: str = ""
    inputs: list[InputResponse] = []
    """The declared inputs. Those of a typed Python workflow include the fields of its input."""
    input_schema: dict[str, Any] | None = None
    """The JSON Schema of `input`; None if the workflow does not declare it."""
    params_schema: dict[str, Any] | None = None
    """The JSON Schema of `params`."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the result."""
    steps: list[str] = []
    hash: str = ""
    created_at: datetime | None = None
    source: str | None = None
    spec: dict[str, Any] | None = None
    """The parsed workflow; None in lists, and for Python code, which has no parsed form."""
    prompts: dict[str, str] = {}
    """The texts of the prompts that the source references."""
    enabled: bool = True
    """Whether the project's configuration allows it to be started."""


class FactResponse(ApiResponse):
    id: str
    record: list[Any]
    text: str
    by: str
    at: float


class UsageResponse(ApiResponse):
    today: dict[str, float] = {}
    models: dict[str, dict[str, float]] = {}
    """Usage of today by model: token counts, and cost by its source."""
    budget: dict[str, float] | None = None
    runs: dict[str, dict[str, float]] = {}
    limited: dict[str, float] = {}


class DailyUsageResponse(ApiResponse):
    """What runs have used on a day."""

    day: str
    """The local date, such as `2025-11-15`."""
    total: dict[str, float] = {}
    """Tokens, cost, turns and agents, as they count against budgets."""
    models: dict[str, dict[str, float]] = {}
    """By model: token counts, and cost by its source."""


class WorkflowUsageResponse(ApiResponse):
    """What the runs of a workflow have used on a day; a child run counts under its own workflow."""

    workflow: str
    day: str
    runs: int = 0
    """The number of runs that used something first on this day."""
    usage: dict[str, float] = {}
    """Token counts, cost by its source, and turns."""


class StepUsageResponse(ApiResponse):
    """What a step of a workflow has used in all days; its iterations and attempts count as one step."""

    workflow: str
    step: str
    runs: int = 0
    """The number of runs in which the step used something first in these days."""
    usage: dict[str, float] = {}
    """Token counts, cost by its source, and turns."""
    models: dict[str, dict[str, float]] = {}
    """The same by model."""


class UsageHistoryResponse(ApiResponse):
    days: list[DailyUsageResponse] = []
    """The days on which something was used, oldest first."""
    workflows: list[WorkflowUsageResponse] = []
    """By workflow and day, oldest first."""
    steps: list[StepUsageResponse] = []
    """By workflow and step, in the order of their names."""
    steps_since: float | None = None
    """The time since which the store has usage by workflow and step, if an earlier version created it."""


class ProviderResponse(ApiResponse):
    """A provider of agents: whether it can be used, its limit of concurrent agents, and its rate limit."""

    name: str
    kind: str = ""
    found: str | None = None
    """The program or library that it uses; None if that is not installed."""
    fix: str = ""
    """How to install it."""
    is_configured: bool = False
    """Whether the configuration of the project names it."""
    slots: int = 0
    busy: int = 0
    limited_until: float | None = None
    """The time at which its rate limit ends, in seconds since 1970."""


class AgentFileResponse(ApiResponse):
    """An agent that a file of the project configures."""

    name: str
    path: str
    description: str = ""
    provider: str | None = None
    model: str | None = None
    tools: list[str] | None = None
    max_turns: int | None = None
    fallback: str | None = None
    limits: dict[str, Any] = {}


class AgentOverviewResponse(ApiResponse):
    providers: list[ProviderResponse] = []
    agents: list[AgentFileResponse] = []
    problems: list[str] = []
    """Problems of agent files."""


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
    """The workflows whose files were removed."""
    python_files: list[str] = []
    """Python files that are not reloaded: the process keeps the code it started with."""
    problems: list[ProblemFields] = []


class DeletedRun(ApiResponse):
    run_id: str
    workflow: str
    state: str
    ended_at: datetime


class KeptRun(ApiResponse):
    """A run that ended long ago and has workspaces with work that is not merged."""

    run_id: str
    workflow: str
    ended_at: datetime
    workspaces: list[str]


class DeleteRunsResponse(ApiResponse):
    """What was deleted, or would be in a dry run."""

    dry_run: bool = True
    runs: int = 0
    events: int = 0
    bytes: int = 0
    files: int = 0
    """Logs and artifact folders, deleted with their runs."""
    chunks: int = 0
    """Output chunks that are emptied in the runs that stay."""
    chunk_bytes: int = 0
    replies: int = 0
    """Stored replies to commands with keys; repeating these commands runs them again."""
    oldest: list[DeletedRun] = []
    """The first of the runs."""
    kept: list[KeptRun] = []
    """Old runs that stay because of work in their workspaces."""


class DefinitionResponse(ApiResponse):
    """A definition that runs were started from."""

    hash: str
    workflow: str
    notation: str
    source: str
    current: bool
    """Whether a run that starts now uses it."""
    runs: int
    spec: dict[str, Any] | None = None
    """The parsed workflow; None in lists, and for Python code, which has no parsed form."""


class ArtifactResponse(ApiResponse):
    """A file that a step put into the artifacts folder of its run."""

    name: str
    """Its path in that folder, such as `charts/cost.png`."""
    path: str
    """Its path in the project, such as `.nerve/artifacts/RUN/charts/cost.png`."""
    size: int
    """In bytes."""
    media_type: str
    """`application/octet-stream` for all but a few types that are safe to show."""
    modified_at: datetime


class SessionResponse(ApiResponse):
    """A session in the store, and its number of runs."""

    name: str
    current: bool
    runs: dict[str, int]


class QueueResponse(ApiResponse):
    """A queue: its limits, and how many entries hold a slot or wait for one."""

    name: str
    concurrency: int | None = None
    rate: str | None = None
    per: str | None = None
    priority: str | None = None
    running: int = 0
    waiting: int = 0
    oldest_wait: datetime | None = None
    """Since when its first entry waits."""
    paused: bool = False
    declared: bool = True
    """Whether the session declares the queue; entries of another one wait until it does."""


class ChannelTestRequest(CommandRequest):
    channel: Name


class ChannelTestResponse(ApiResponse):
    """A test message that a channel has accepted."""

    channel: str
    id: str
    target: str


class ChannelResponse(ApiResponse):
    """A channel of notifications, and what was sent to it."""

    name: str
    kind: str
    target: str
    """Where messages go, without secrets."""
    problem: str | None = None
    """Why no message can be delivered, such as a secret that is missing in the process that answers."""
    sent: int = 0
    last_sent: datetime | None = None
    pending: int = 0
    error: str | None = None
    """Why the last attempt to send the next message failed."""


class NotifyRuleResponse(ApiResponse):
    """Which events are sent to which channels."""

    events: list[str]
    to: list[str]
    workflows: list[str] | None = None
    tags: dict[str, str] = {}
    content: bool = False


class FailedMessageResponse(ApiResponse):
    """A message that was not delivered and is not sent any more."""

    id: str
    channel: str
    event: str
    title: str
    count: int
    created_at: datetime
    failed_at: datetime
    attempts: int
    error: str


class NotificationsResponse(ApiResponse):
    """The channels and rules of notifications, and the newest failures."""

    channels: list[ChannelResponse] = []
    rules: list[NotifyRuleResponse] = []
    pending: int = 0
    """Messages that are not sent yet."""
    failures: list[FailedMessageResponse] = []
    public_url: str | None = None
    """The address of the page in links; without it, messages have no links."""


class ChatResponse(ApiResponse):
    """A chat whose threads are conversations, and what was received and sent there."""

    name: str
    kind: str
    target: str
    """The account that writes there, and the places, without secrets."""
    delivery: Literal["webhook", "polling"]
    """How messages of people arrive."""
    content: bool
    problem: str | None = None
    """Why messages cannot be sent or received, such as a missing secret."""
    received: int = 0
    """Messages of people that have no reply yet."""
    sent: int = 0
    last_sent: datetime | None = None
    pending: int = 0
    """Messages that are not sent yet."""
    error: str | None = None
    """Why the last attempt to send the next message failed."""


class FailedChatMessageResponse(ApiResponse):
    """A message that was not delivered to a thread and is not sent any more."""

    id: str
    chat: str
    thread: str
    event: str
    failed_at: datetime
    error: str


class ChatPage(ApiResponse):
    """The chats of a project, and the newest messages that were not delivered."""

    chats: list[ChatResponse] = []
    failures: list[FailedChatMessageResponse] = []
    public_url: str | None = None


class ReceivedChatResponse(ApiResponse):
    """Whether a message of a chat is stored to be replied to."""

    accepted: bool


class ChatRepliesResponse(ApiResponse):
    """The replies to a message of a chat."""

    replies: list[str]


class TriggeredRunResponse(ApiResponse):
    """A run that a trigger has started."""

    run_id: str
    state: str
    started_at: datetime
    occurrence: str
    """The scheduled time, or the id of the event."""


class SkippedResponse(ApiResponse):
    """An occurrence that was not started, or a request that was refused, and why."""

    occurrence: str | None = None
    at: datetime
    reason: str


class TriggerResponse(ApiResponse):
    """A trigger: its definition, what it will start and what it has started."""

    name: str
    kind: str
    workflow: str
    source: str = ""
    """The file of the definition, `Python code` or `api`."""
    definition: dict[str, Any] = {}
    enabled: bool = True
    paused: bool = False
    paused_by: str | None = None
    next_times: list[datetime] = []
    """When a schedule starts the next ten runs."""
    queued: int = 0
    """How many times of a schedule wait until its previous run has ended."""
    last_runs: list[TriggeredRunResponse] = []
    """The last ten runs, newest first."""
    skipped: list[SkippedResponse] = []
    """Occurrences that were not started, newest first."""
    refused: list[SkippedResponse] = []
    """Requests that this process has refused, newest first."""


class FiredResponse(ApiResponse):
    """The run that a trigger has started, or why it starts none."""

    run: RunResponse | None = None
    reason: str = ""


class BackfillResponse(ApiResponse):
    """The runs of the times in a range."""

    runs: list[RunResponse] = []


class HealthResponse(ApiResponse):
    status: Literal["ok", "degraded"] = "ok"
    session: str = ""
    store: str = ""
    runs: dict[str, int] = {}
    held: dict[str, str] = {}
    """Why runs are held, for the newest of them; `runs` counts all."""
    engine: str | None = None
    """Why no run continues at the moment, such as a cluster that does not answer."""
    loss: str | None = None
    """Acknowledged data that the store has lost since the previous process."""
    waits: float = 0.0
    """Seconds for which the disk has not completed the current write."""
    limited: dict[str, float] = {}
    queue: dict[str, int] = {}
    """Active runs, and journals that wait for the disk."""
    providers: dict[str, dict[str, float]] = {}
    """By provider: its limit of concurrent agents (slots), the current number (busy), and `limited_until`."""
    version: str = ""
    owner: str | None = None
    """The process that executes the runs, if several servers may use the store; None if none does."""


class PageResponse(ApiResponse):
    """A page of a list, and whether there is more."""

    more: bool = False


class WorkflowPage(PageResponse):
    workflows: list[WorkflowResponse] = []
    nodes: list[str] = []
    """The nodes that can be started by name."""
    graphs: list[str] = []
    problems: list[ProblemFields] = []
    """Problems of the files that the last reload read, with `file`, `line`, `message` and `fix`."""


class RunPage(PageResponse):
    runs: list[RunResponse] = []


class EventPage(PageResponse):
    events: list[EventResponse] = []
    next: int | None = None
    """What to pass as `after` to get the events that follow; None if there are none. A page of filtered
    events may have fewer events than its limit, or none, and yet have a next one."""


class GatePage(PageResponse):
    """Open gates, oldest first."""

    gates: list[GateResponse] = []
    next: str | None = None
    """What to pass as `after` to get the gates that follow; None if there are none."""


class ArtifactPage(PageResponse):
    """The artifacts of a run, by name."""

    run_id: str
    artifacts: list[ArtifactResponse] = []
    next: str | None = None
    """What to pass as `after` to get the artifacts that follow; None if there are none."""


class StepChanges(ApiResponse):
    """What a step has changed in its workspace."""

    path: str
    workspace: str
    files: list[str]
    more_files: int = 0
    """The number of changed files that are not listed."""
    diff: str | None = None
    """The difference as a patch; None if its snapshots were deleted, or the reply is too long."""


class ChangePage(ApiResponse):
    """The changes of the steps of a run, in the order in which the steps ended."""

    run_id: str
    steps: list[StepChanges] = []


class FactPage(PageResponse):
    facts: list[FactResponse] = []


class DefinitionPage(PageResponse):
    definitions: list[DefinitionResponse] = []


class SessionPage(PageResponse):
    sessions: list[SessionResponse] = []


class PersonResponse(ApiResponse):
    name: str
    roles: list[str] = []
    scope: str = "answer"
    contacts: dict[str, str] = {}
    has_token: bool = False
    disabled: bool = False


class PeoplePage(PageResponse):
    people: list[PersonResponse]


class AuditEntry(ApiResponse):
    """One decision: what, by whom, by which way, from where, and about what."""

    at: datetime
    action: str
    """Such as `start`, `answer`, `vote`, `stop`, `raise` or `change person`."""
    by: str | None = None
    """The identity: `person:ann`, `unix:ada`, `token:run`; None if the engine acted, or it is not known."""
    person: str | None = None
    """The person who acted, if they are known."""
    via: str | None = None
    """The way: `cli`, `page`, `oidc`, `http`, `ws` and others."""
    scope: str | None = None
    address: str | None = None
    """The address of the client, if it was connected over a network."""
    pid: int | None = None
    """The process, if it was on this machine."""
    run: str | None = None
    workflow: str | None = None
    seq: int | None = None
    """The number of the event in the journal of the run, or of the change of people."""
    gate: str | None = None
    path: str | None = None
    answer: Any = None
    hash: str | None = None
    """Stands for everything that the gate showed when it was answered."""
    reason: str | None = None
    details: dict[str, Any] = {}


class AuditPage(ApiResponse):
    """Decisions about the newest runs, each run verified; the first page has the changes of people."""

    entries: list[AuditEntry] = []
    runs: int = 0
    """The number of runs whose hash chain was verified."""
    events: int = 0
    """The number of their events."""
    changes: int = 0
    """The number of changes of people, and of the session, that were verified."""
    last_change: str | None = None
    """The hash of the last change, which stands for all of them."""
    next: str | None = None
    """What to pass as `after` to get the decisions about older runs; None if there are none."""


class QueuePage(PageResponse):
    queues: list[QueueResponse] = []


class TriggerPage(PageResponse):
    triggers: list[TriggerResponse] = []
    problems: list[dict[str, Any]] = []
    """The problems of the trigger files."""


class ThreadPage(PageResponse):
    threads: list[ThreadResponse] = []
