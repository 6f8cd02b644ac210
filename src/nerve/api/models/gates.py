"""Gates, and the answers to them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from nerve.api.models.base import ApiRequest, ApiResponse, CommandRequest, Key, Name, PageResponse, Text


class ListGatesRequest(ApiRequest):
    mine: bool = False
    """Only gates that wait for the caller: they may answer, and have not."""
    person: Name | None = None
    """Only gates that wait for this person."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 200
    after: Annotated[str, Field(max_length=10_000)] | None = None
    """The field `next` of the page before."""


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


class GatePage(PageResponse):
    """Open gates, oldest first."""

    gates: list[GateResponse] = []
    next: str | None = None
    """What to pass as `after` to get the gates that follow; None if there are none."""


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
