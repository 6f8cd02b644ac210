"""Runs: start, list, show and delete."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from nerve.api.models.base import (
    ApiRequest,
    ApiResponse,
    CommandRequest,
    Key,
    Name,
    NameList,
    PageResponse,
    Text,
)
from nerve.api.models.gates import GateResponse
from nerve.core.trace_context import TRACEPARENT_PATTERN
from nerve.core.workflow.state import WorkflowState


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


class RunPage(PageResponse):
    runs: list[RunResponse] = []


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


class RouteRequest(CommandRequest):
    text: Text
    conversation: Name | None = None
    start: bool = False
    watching: Name | None = None
    """The run that the user watches: while it waits for an answer, no message starts another run."""
    traceparent: Annotated[str, Field(pattern=TRACEPARENT_PATTERN)] | None = None
    """The span that starts the run, as in the W3C header of this name, which is accepted too."""


class RouteResponse(ApiResponse):
    kind: Literal["workflow", "conversation", "question"]
    workflow: str | None = None
    inputs: dict[str, Any] = {}
    text: str = ""
    by: str = ""
    reason: str = ""
    run: RunResponse | None = None


class SessionResponse(ApiResponse):
    """A session in the store, and its number of runs."""

    name: str
    current: bool
    runs: dict[str, int]


class SessionPage(PageResponse):
    sessions: list[SessionResponse] = []
