"""What a run leaves: events, artifacts, changes of files and threads of agents."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from nerve.api.models.base import ApiResponse, Name, NameList, PageResponse
from nerve.api.models.runs import RunRequest
from nerve.core.events import GATE_EVENTS, SHOWN_IN_KEY


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


class ListArtifactsRequest(RunRequest):
    after: Annotated[str, Field(max_length=4096)] | None = None
    """List the artifacts after this name: the `next` of the previous page."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class ListChangesRequest(RunRequest):
    path: Name | None = None
    """Only those of the step at this path and of the steps inside it."""


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


class EventPage(PageResponse):
    events: list[EventResponse] = []
    next: int | None = None
    """What to pass as `after` to get the events that follow; None if there are none. A page of filtered
    events may have fewer events than its limit, or none, and yet have a next one."""


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


class ThreadResponse(ApiResponse):
    run_id: str
    agent: str
    thread: str
    provider: str


class ThreadPage(PageResponse):
    threads: list[ThreadResponse] = []
