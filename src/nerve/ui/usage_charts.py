"""Usage for charts: tokens and cost by day, model, workflow and step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import date, timedelta
from typing import Literal

from nerve.api.models import UsageHistoryResponse
from nerve.core.limits import RunUsage
from nerve.lazy_dataclass import dataclass

Measure = Literal["cost", "tokens"]
MAX_SERIES = 8
"""Series of a chart; the smallest ones are added up as `other`."""
OTHER = "other"


@dataclass(slots=True)
class UsageSeries:
    """The values of one model or workflow, one for each day of the chart."""

    name: str
    values: list[float] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.values)


@dataclass(frozen=True, slots=True)
class UsageBar:
    """A part of the bar of a day, as fractions of the chart; `y` is the distance of its top from the top."""

    series: str
    day: str
    value: float
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class UsageChart:
    """A chart of stacked bars: the days, and a series for each name, the largest first."""

    measure: Measure
    days: list[str]
    series: list[UsageSeries]

    @property
    def totals(self) -> list[float]:
        """The value of each day."""
        return [sum(series.values[number] for series in self.series) for number in range(len(self.days))]

    @property
    def maximum(self) -> float:
        return max(self.totals, default=0.0)

    def bars(self) -> list[UsageBar]:
        """Return the bars with their positions; days without usage have none."""
        if not self.maximum:
            return []
        step, bars = 1 / len(self.days), []
        for number, day in enumerate(self.days):
            top = 1.0
            for series in self.series:
                height = series.values[number] / self.maximum
                if height:
                    top -= height
                    bars.append(
                        UsageBar(
                            series.name,
                            day,
                            series.values[number],
                            (number + 0.1) * step,
                            0.8 * step,
                            max(0.0, top),
                            height,
                        )
                    )
        return bars


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """A row of a table of usage."""

    name: str
    runs: int
    tokens: float
    cost: float
    turns_without_cost: int = 0
    """Turns whose cost is not known, and not in the sum."""
    workflow: str = ""
    """The workflow of a step."""


def chart_by_model(history: UsageHistoryResponse, last_day: date, days: int, measure: Measure) -> UsageChart:
    """Return the usage of each day by model."""
    values: dict[str, dict[str, float]] = {}
    for day in history.days:
        for model, amounts in day.models.items():
            values.setdefault(model, {})[day.day] = read_measure(amounts, measure)
    return make_chart(values, last_day, days, measure)


def chart_by_workflow(
    history: UsageHistoryResponse, last_day: date, days: int, measure: Measure
) -> UsageChart:
    """Return the usage of each day by workflow."""
    values: dict[str, dict[str, float]] = {}
    for entry in history.workflows:
        values.setdefault(entry.workflow, {})[entry.day] = read_measure(entry.usage, measure)
    return make_chart(values, last_day, days, measure)


def make_chart(
    values: Mapping[str, Mapping[str, float]], last_day: date, days: int, measure: Measure
) -> UsageChart:
    """Return a chart of values by name and day; the days without a value are 0."""
    names = [(last_day - timedelta(days=number)).isoformat() for number in reversed(range(days))]
    series = [UsageSeries(name, [by_day.get(day, 0.0) for day in names]) for name, by_day in values.items()]
    series = sorted((each for each in series if each.total), key=lambda each: (-each.total, each.name))
    if len(series) > MAX_SERIES:
        rest = series[MAX_SERIES - 1 :]
        sums = [sum(each.values[number] for each in rest) for number in range(days)]
        series = [*series[: MAX_SERIES - 1], UsageSeries(OTHER, sums)]
    return UsageChart(measure, names, series)


def rows_by_model(history: UsageHistoryResponse) -> list[UsageTotal]:
    """Return the usage of each model, the most expensive first."""
    sums: dict[str, dict[str, float]] = {}
    for day in history.days:
        for model, amounts in day.models.items():
            add_amounts(sums.setdefault(model, {}), amounts)
    return sort_rows(make_row(model, 0, amounts) for model, amounts in sums.items())


def rows_by_workflow(history: UsageHistoryResponse) -> list[UsageTotal]:
    """Return the usage of each workflow, the most expensive first."""
    sums: dict[str, dict[str, float]] = {}
    runs: dict[str, int] = {}
    for entry in history.workflows:
        add_amounts(sums.setdefault(entry.workflow, {}), entry.usage)
        runs[entry.workflow] = runs.get(entry.workflow, 0) + entry.runs
    return sort_rows(make_row(name, runs[name], amounts) for name, amounts in sums.items())


def rows_by_step(history: UsageHistoryResponse) -> list[UsageTotal]:
    """Return the usage of each step, the most expensive first."""
    return sort_rows(make_row(used.step, used.runs, used.usage, used.workflow) for used in history.steps)


def add_amounts(total: dict[str, float], amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def read_measure(amounts: Mapping[str, float], measure: Measure) -> float:
    """Return the tokens or the cost of amounts, of a run in total or of a model by source."""
    if measure == "tokens":
        return tokens_of(amounts) or 0.0
    return cost_of(amounts) or RunUsage.of(amounts).cost


def make_row(name: str, runs: int, amounts: Mapping[str, float], workflow: str = "") -> UsageTotal:
    tokens, cost = read_measure(amounts, "tokens"), read_measure(amounts, "cost")
    return UsageTotal(name, runs, tokens, cost, int(amounts.get("turns_without_cost", 0)), workflow)


def sort_rows(rows: Iterable[UsageTotal]) -> list[UsageTotal]:
    return sorted(rows, key=lambda row: (-row.cost, -row.tokens, row.workflow, row.name))


def cost_of(usage: Mapping[str, float] | None) -> float | None:
    """Return the cost of a step or model, whatever its source; None if it is not known."""
    if usage is None:
        return None
    names = ("reported_cost", "inferred_cost", "computed_cost")
    return sum(usage[name] for name in names if name in usage) if usage.keys() & set(names) else None


def tokens_of(usage: Mapping[str, float] | None) -> float | None:
    return None if usage is None else float(RunUsage.of(usage).tokens)
