"""Commands to a run that has started: pause, resume, steer, send, update, stop, skip and fork."""

from typing import Annotated, Any, Literal

from pydantic import Field

from nerve.api.models.base import ApiResponse, CommandRequest, Name, NameList, Text
from nerve.api.models.runs import RunRequest


class PauseRequest(RunRequest, CommandRequest):
    pass


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


class SkipRequest(RunRequest, CommandRequest):
    path: str = ""
    output: Any = None


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


class SteerResponse(ApiResponse):
    run_id: str
    path: str
    text: str


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
