"""What runs share: providers of agents, queues and budgets, and the health of the engine."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from nerve.api.models.base import ApiRequest, ApiResponse, CommandRequest, Name, PageResponse


class UsageHistoryRequest(ApiRequest):
    days: Annotated[int, Field(ge=1, le=366)] = 30
    """The number of days, of which today is the last."""


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


class ChangeQueueRequest(CommandRequest):
    queue: Name


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


class QueuePage(PageResponse):
    queues: list[QueueResponse] = []


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
