"""The comparison of two runs: steps side by side, values as differences, time and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.api.errors import ApiError
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.formatting import format_cost, format_token_count, format_two_units
from nerve.ui.run_comparison import ComparedStep, RunComparison, RunOutline, compare_runs
from nerve.web.rendering import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from nerve.api.models import RunDetailResponse
    from nerve.web.site import Site, Visit

MAX_EVENTS = 20_000
"""Events of a run that are compared; more would block the other pages."""
EVENTS_PER_REQUEST = 2000
MAX_STEPS = 1000
"""Steps in the table."""
OFFERED_RUNS = 50
"""Newest runs that the form offers."""
SHOWN_CHANGES = {"changed": "Changed", "only_a": "Only in A", "only_b": "Only in B", "same": "Same"}


class Figure(NamedTuple):
    """A number of both runs, and the difference."""

    name: str
    a: str
    b: str
    change: str
    is_worse: bool | None
    """Whether B is slower or more expensive; None without a difference."""


def add_pages(site: Site) -> None:
    site.get("/compare", show_comparison)


async def show_comparison(visit: Visit) -> Response:
    a, b = visit.query.get("a", "").strip(), visit.query.get("b", "").strip()
    problems: dict[str, str] = {}
    details: list[RunDetailResponse] = []
    outlines: list[RunOutline] = []
    is_truncated = False
    for name, run in (("a", a), ("b", b)):
        if not run:
            continue
        try:
            details.append(await visit.client.run(run=run))
        except ApiError as error:
            problems[name] = describe_error(error)
    if len(details) == 2:
        for detail in details:
            outline, is_cut = await read_outline(visit, detail.run_id)
            outlines.append(outline)
            is_truncated |= is_cut
    comparison = compare_runs(*outlines) if outlines else None
    return await visit.page(
        "compare.html",
        404 if problems else 200,
        a=a,
        b=b,
        problems=problems,
        offered=(await visit.client.runs(limit=OFFERED_RUNS, largest=0)).runs,
        runs=details if comparison else [],
        comparison=comparison,
        is_truncated=is_truncated,
        **({} if comparison is None else comparison_values(visit, comparison, details)),
    )


def comparison_values(
    visit: Visit, comparison: RunComparison, runs: list[RunDetailResponse]
) -> dict[str, Any]:
    shown = visit.query.get("show", "")
    steps = [step for step in comparison.steps if step.change == shown or not shown]
    return {
        "figures": compare_figures(comparison),
        "steps": steps[:MAX_STEPS],
        "left_out": max(0, len(steps) - MAX_STEPS),
        "counts": {name: comparison.counts.get(name, 0) for name in SHOWN_CHANGES},
        "change_names": SHOWN_CHANGES,
        "shown": shown,
        "step_figures": step_figures,
    }


async def read_outline(visit: Visit, run: str) -> tuple[RunOutline, bool]:
    """Return what a comparison needs of a run, and whether its end is left out."""
    outline, after, count = RunOutline(), 0, 0
    while count < MAX_EVENTS:
        page = await visit.client.events(run=run, after=after, limit=EVENTS_PER_REQUEST, whole=True)
        for event in page.events:
            outline.apply_event(to_workflow_event(event))
        count += len(page.events)
        if not page.more:
            return outline, False
        after = page.next or page.events[-1].seq
    return outline, True


def compare_figures(comparison: RunComparison) -> list[Figure]:
    """Return the time, the cost and the tokens of both runs."""
    used_a, used_b = comparison.usage_a, comparison.usage_b
    return [
        make_figure("Time", comparison.seconds_a, comparison.seconds_b, format_seconds),
        make_figure("Cost", used_a.get("cost"), used_b.get("cost"), format_money),
        make_figure("Tokens", used_a.get("tokens"), used_b.get("tokens"), format_token_count),
    ]


def step_figures(step: ComparedStep) -> list[Figure]:
    """Return the time and the cost of a step in both runs."""
    return [
        make_figure("Time", step.seconds_a, step.seconds_b, format_seconds),
        make_figure("Cost", step.cost_a, step.cost_b, format_money),
    ]


def make_figure(name: str, a: float | None, b: float | None, format: Callable[[float], str]) -> Figure:
    text_a, text_b = ("" if value is None else format(value) for value in (a, b))
    if a is None or b is None or text_a == text_b:
        return Figure(name, text_a, text_b, "", None)
    percent = f" ({(b - a) / a:+.0%})" if a else ""
    return Figure(name, text_a, text_b, f"{'+' if b > a else '−'}{format(abs(b - a))}{percent}", b > a)


def format_seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else format_two_units(seconds)


def format_money(cost: float) -> str:
    return format_cost(cost) or "$0"
