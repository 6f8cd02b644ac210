"""Usage by day, model, workflow and step."""

from __future__ import annotations

from datetime import date

from nerve.api.models import DailyUsageResponse, UsageHistoryResponse, WorkflowUsageResponse
from nerve.client import Client
from nerve.ui.usage_charts import (
    MAX_SERIES,
    chart_by_model,
    chart_by_workflow,
    rows_by_model,
    rows_by_step,
    rows_by_workflow,
)

from .conftest import ship

HISTORY = UsageHistoryResponse(
    days=[
        DailyUsageResponse(
            day="2026-01-01", models={"opus": {"reported_cost": 3.0, "tokens": 30, "turns": 1}}
        ),
        DailyUsageResponse(
            day="2026-01-03",
            models={
                "opus": {"reported_cost": 1.0, "computed_cost": 0.5, "tokens": 10},
                "small": {"tokens": 40, "turns_without_cost": 2},
            },
        ),
    ],
    workflows=[
        WorkflowUsageResponse(workflow="ship", day="2026-01-03", runs=2, usage={"cost": 2.0, "tokens": 9})
    ],
)


def test_a_chart_has_every_day_and_the_largest_series_first() -> None:
    chart = chart_by_model(HISTORY, date(2026, 1, 3), 3, "cost")
    assert chart.days == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert [(series.name, series.values) for series in chart.series] == [("opus", [3.0, 0.0, 1.5])]
    tokens = chart_by_model(HISTORY, date(2026, 1, 3), 3, "tokens")
    assert [series.name for series in tokens.series] == ["opus", "small"]
    assert tokens.totals == [30, 0, 50]


def test_bars_are_stacked_and_within_the_chart() -> None:
    bars = chart_by_model(HISTORY, date(2026, 1, 3), 3, "tokens").bars()
    assert [(bar.series, bar.day) for bar in bars] == [
        ("opus", "2026-01-01"),
        ("opus", "2026-01-03"),
        ("small", "2026-01-03"),
    ]
    assert all(0 <= bar.y <= 1 and bar.x + bar.width <= 1 for bar in bars)
    assert bars[2].y == 0
    assert round(bars[1].y + bars[1].height, 9) == 1


def test_many_series_are_added_up() -> None:
    models = {f"model-{number}": {"tokens": 100 - number} for number in range(20)}
    history = UsageHistoryResponse(days=[DailyUsageResponse(day="2026-01-03", models=models)])
    chart = chart_by_model(history, date(2026, 1, 3), 1, "tokens")
    assert len(chart.series) == MAX_SERIES
    assert chart.series[-1].name == "other"
    assert chart.maximum == sum(100 - number for number in range(20))


def test_rows_add_up_days_and_count_turns_of_unknown_cost() -> None:
    opus, small = rows_by_model(HISTORY)
    assert (opus.name, opus.cost, opus.tokens) == ("opus", 4.5, 40)
    assert (small.cost, small.turns_without_cost) == (0, 2)
    [row] = rows_by_workflow(HISTORY)
    assert (row.name, row.runs, row.cost, row.tokens) == ("ship", 2, 2.0, 9)


async def test_the_usage_of_real_runs_is_counted_by_day_workflow_model_and_step(client: Client) -> None:
    for text in ("tea", "milk"):
        await ship(client, text)
    history = await client.usage_history(days=7)
    [day] = history.days
    assert day.total["cost"] == 0.5
    assert day.models["opus"]["turns"] == 2
    [by_workflow] = history.workflows
    assert (by_workflow.workflow, by_workflow.runs, by_workflow.usage["reported_cost"]) == ("ship", 2, 0.5)
    assert by_workflow.day == day.day
    chart = chart_by_workflow(history, date.fromisoformat(day.day), 7, "cost")
    assert chart.totals == [0, 0, 0, 0, 0, 0, 0.5]
    [step] = rows_by_step(history)
    assert (step.workflow, step.name, step.runs, step.cost) == ("ship", "/claude", 2, 0.5)
    assert history.steps[0].models["opus"]["turns"] == 2
