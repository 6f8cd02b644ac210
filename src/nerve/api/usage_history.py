"""What the runs of a session have used in the last days, by model, workflow and step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.core.usage_ledger import sum_amounts
from nerve.engine.run_summary import ALL_MODELS, STEP_USAGE_SINCE, WHOLE_RUN
from nerve.store.port import StepUsageRow, UsageRow

if TYPE_CHECKING:
    from nerve.session import Session


async def usage_history(session: Session, request: models.UsageHistoryRequest) -> models.UsageHistoryResponse:
    store, today = session.engine.store, datetime.fromtimestamp(session.engine.clock.time()).date()
    days = (today - timedelta(days=request.days - 1)).isoformat(), today.isoformat()
    rows = store.daily_step_usage(session.name, *days)
    since = store.read_property(STEP_USAGE_SINCE)
    return models.UsageHistoryResponse(
        days=daily_usage_responses(store.daily_usage(session.name, *days)),
        workflows=workflow_usage_responses(rows),
        steps=step_usage_responses(rows),
        steps_since=None if since is None else float(since),
    )


def daily_usage_responses(rows: Sequence[UsageRow]) -> list[models.DailyUsageResponse]:
    days: dict[str, models.DailyUsageResponse] = {}
    for row in rows:
        day = days.setdefault(row.day, models.DailyUsageResponse(day=row.day))
        if row.model == ALL_MODELS:
            day.total = dict(row.amounts)
        else:
            day.models[row.model] = dict(row.amounts)
    return list(days.values())


def workflow_usage_responses(rows: Sequence[StepUsageRow]) -> list[models.WorkflowUsageResponse]:
    groups: dict[tuple[str, str], list[StepUsageRow]] = {}
    for row in rows:
        groups.setdefault((row.day, row.workflow), []).append(row)
    return [
        models.WorkflowUsageResponse(
            day=day,
            workflow=workflow,
            runs=count_runs([row for row in group if row.step == WHOLE_RUN]),
            usage=sum_amounts(row.amounts for row in group),
        )
        for (day, workflow), group in groups.items()
    ]


def step_usage_responses(rows: Sequence[StepUsageRow]) -> list[models.StepUsageResponse]:
    groups: dict[tuple[str, str], dict[str, list[StepUsageRow]]] = {}
    for row in rows:
        if row.step != WHOLE_RUN:
            groups.setdefault((row.workflow, row.step), {}).setdefault(row.model, []).append(row)
    return [
        models.StepUsageResponse(
            workflow=workflow,
            step=step,
            runs=sum(map(count_runs, by_model.values())),
            usage=sum_amounts(row.amounts for group in by_model.values() for row in group),
            models={model: sum_amounts(row.amounts for row in group) for model, group in by_model.items()},
        )
        for (workflow, step), by_model in sorted(groups.items())
    ]


def count_runs(rows: Sequence[StepUsageRow]) -> int:
    """Return the number of runs that used something first in these rows."""
    return int(sum(row.amounts.get("runs", 0) for row in rows))
