"""Triggers."""

from datetime import datetime
from typing import Any

from nerve.api.models.base import ApiRequest, ApiResponse, CommandRequest, Name, PageResponse
from nerve.api.models.runs import RunResponse


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


class TriggerPage(PageResponse):
    triggers: list[TriggerResponse] = []
    problems: list[dict[str, Any]] = []
    """The problems of the trigger files."""


class FiredResponse(ApiResponse):
    """The run that a trigger has started, or why it starts none."""

    run: RunResponse | None = None
    reason: str = ""


class BackfillResponse(ApiResponse):
    """The runs of the times in a range."""

    runs: list[RunResponse] = []
