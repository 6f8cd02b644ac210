"""The usage: tokens and cost by day, workflow, step and model, and the budget of the day."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.api.errors import ApiError
from nerve.core.events import WorkflowEventType
from nerve.core.limits import RunUsage
from nerve.ui.formatting import format_cost, format_token_count
from nerve.ui.usage_charts import (
    Measure,
    UsageChart,
    UsageTotal,
    chart_by_model,
    chart_by_workflow,
    rows_by_model,
    rows_by_step,
    rows_by_workflow,
)
from nerve.web.live import LivePage
from nerve.web.rendering import make_partial

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import EventResponse, UsageResponse
    from nerve.web.site import Site, Visit

PERIODS = {7: "7 days", 30: "30 days", 90: "90 days", 365: "A year"}
DEFAULT_DAYS = 30
MAX_STEPS = 200
"""Steps in the table; those that used most are shown."""
CHANGES = frozenset(
    {
        WorkflowEventType.USAGE,
        WorkflowEventType.COMPLETED,
        WorkflowEventType.FAILED,
        WorkflowEventType.CANCELLED,
    }
)
"""Events that change the charts."""
DAYS_PER_LABEL = 6
"""About how many days have their date below a chart."""


def add_pages(site: Site) -> None:
    site.get("/usage", show_usage)
    site.live("/usage/stream", follow_usage)


class BudgetMeter(NamedTuple):
    """A limit of the day, and how much of it is used."""

    name: str
    used: str
    limit: str
    percent: float

    @property
    def level(self) -> str:
        """How much is left, as a class."""
        return "over" if self.percent >= 100 else "near" if self.percent >= 80 else "fine"


class ShownChart(NamedTuple):
    """A chart with what is around it."""

    name: str
    title: str
    chart: UsageChart
    rows: list[UsageTotal]
    """The totals of the table below."""
    labels: list[str]
    """The dates below the chart; empty texts for days without one."""

    def format(self, value: float) -> str:
        return format_measure(value, self.chart.measure)

    @property
    def columns(self) -> list[tuple[str, list[Any]]]:
        """The days that have bars, each with its bars."""
        return [(day, list(bars)) for day, bars in groupby(self.chart.bars(), key=lambda bar: bar.day)]

    def series_number(self, name: str) -> int:
        return next(number for number, series in enumerate(self.chart.series) if series.name == name)

    @property
    def summary(self) -> str:
        """What the chart shows, for users who do not see it."""
        total = sum(self.chart.totals)
        if not total:
            return "Nothing was used."
        largest = max(range(len(self.chart.days)), key=self.chart.totals.__getitem__)
        parts = ", ".join(f"{series.name} {self.format(series.total)}" for series in self.chart.series)
        return (
            f"{self.format(total)} in {len(self.chart.days)} days: {parts}. "
            f"The most on {self.chart.days[largest]}: {self.format(self.chart.maximum)}."
        )


def format_measure(value: float, measure: Measure) -> str:
    return format_cost(value) or "$0" if measure == "cost" else f"{format_token_count(value)} tokens"


async def show_usage(visit: Visit) -> Response:
    days, measure = read_period(visit)
    return await visit.page(
        "usage.html",
        periods=PERIODS,
        days=days,
        measure=measure,
        **await usage_values(visit, days, measure),
    )


def read_period(visit: Visit) -> tuple[int, Measure]:
    """Return the days and the measure in the address."""
    text, measure = visit.query.get("days", str(DEFAULT_DAYS)), visit.query.get("measure", "cost")
    if not text.isdecimal() or not 1 <= int(text) <= 366:
        raise ApiError("bad_request", f"Invalid days '{text}'", "Use a number from 1 to 366.")
    if measure == "cost":
        return int(text), "cost"
    if measure == "tokens":
        return int(text), "tokens"
    raise ApiError("bad_request", f"Unknown measure '{measure}'", "Use cost or tokens.")


async def usage_values(visit: Visit, days: int, measure: Measure) -> dict[str, Any]:
    """Return what changes while the page is open."""
    history, usage = await visit.client.usage_history(days=days), await visit.client.usage()
    today = datetime.now().date()
    models, workflows, steps = rows_by_model(history), rows_by_workflow(history), rows_by_step(history)
    by_model = chart_by_model(history, today, days, measure)
    by_workflow = chart_by_workflow(history, today, days, measure)
    labels = day_labels(by_model.days)
    period = RunUsage()
    for day in history.days:
        period.spend(day.total)
    return {
        "meters": budget_meters(usage),
        "tiles": [
            ("Today", format_amounts(RunUsage.of(usage.today))),
            (f"Last {days} days", format_amounts(period)),
            ("Runs with agents", (f"{sum(row.runs for row in workflows):,}", "")),
            ("Turns without a known cost", (f"{sum(row.turns_without_cost for row in models):,}", "")),
        ],
        "charts": [
            ShownChart("models", "By model", by_model, models, labels),
            ShownChart("workflows", "By workflow", by_workflow, workflows, labels),
        ],
        "steps": steps[:MAX_STEPS],
        "steps_left_out": len(steps[MAX_STEPS:]),
        "steps_since": first_time_in(history.steps_since, days),
    }


def format_amounts(usage: RunUsage) -> tuple[str, str]:
    """Return a cost and its tokens; the tokens alone if no cost is known."""
    tokens = f"{format_token_count(usage.tokens)} tokens"
    return (format_cost(usage.cost), tokens) if usage.cost else (tokens, "")


def budget_meters(usage: UsageResponse) -> list[BudgetMeter]:
    """Return how much of each limit of the day is used."""
    used, meters = RunUsage.of(usage.today), []
    for name, limit in (usage.budget or {}).items():
        amount = float(getattr(used, name, usage.today.get(name, 0)) or 0)
        used_text, limit_text = (
            f"${value:,.2f}" if name == "cost" else f"{value:,.0f}" for value in (amount, limit)
        )
        meters.append(
            BudgetMeter(name, used_text, limit_text, round(100 * amount / limit, 1) if limit else 100.0)
        )
    return meters


def day_labels(days: Sequence[str]) -> list[str]:
    """Return the dates to write below a chart; the last day always has its own."""
    step = max(1, -(-len(days) // DAYS_PER_LABEL))
    dates = [date.fromisoformat(day) for day in days]
    is_labelled = [(len(days) - 1 - number) % step == 0 for number in range(len(days))]
    return [f"{day:%b} {day.day}" if shown else "" for day, shown in zip(dates, is_labelled, strict=True)]


def first_time_in(since: float | None, days: int) -> float | None:
    """Return a time that is within the last days, before which they have no figures; None for another."""
    first_day = datetime.now().date() - timedelta(days=days - 1)
    return since if since is not None and date.fromtimestamp(since) >= first_day else None


async def follow_usage(visit: Visit) -> LivePage:
    """Send the meters, the totals and the charts when something was used."""
    days, measure = read_period(visit)

    def select(event: EventResponse) -> str | None:
        return "usage" if event.event_type in CHANGES else None

    async def render(keys: Collection[str] | None) -> str:
        values = await usage_values(visit, days, measure)
        return make_partial("#usage", visit.render("parts/usage.html", **values))

    return LivePage(select, render)
