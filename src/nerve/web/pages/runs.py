"""The runs: a list with filters, pages and actions for several runs, which changes as the runs do."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from nerve.api.errors import ApiError
from nerve.core.events import WorkflowEventType
from nerve.core.workflow.state import FINAL_STATES, OPEN_STATE_VALUES, WorkflowState
from nerve.lazy_dataclass import dataclass
from nerve.ui.formatting import count_noun
from nerve.web.live import LivePage
from nerve.web.rendering import make_partial

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import EventResponse, RunPage, RunResponse
    from nerve.web.site import Site, Visit

RUNS_PER_PAGE = 50
MAX_LISTED_GATES = 5
"""Gates in the section of what waits for the user; the inbox has all."""
MAX_RESULT_CHARS = 2000
"""Characters of a result or an error in a list; longer ones are not sent."""
MAX_SELECTED_RUNS = 1000
PERIODS = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
SHOWN_STATES = ("running", "waiting", "held", "paused", "failed", "completed", "cancelled")
FILTER_NAMES = ("search", "workflow", "since", "label")
PAST_TENSE = {"stop": "stopped", "retry": "retried", "rerun": "started again", "delete": "deleted"}
CHANGED_STATES: Mapping[str, list[str]] = {
    "stop": OPEN_STATE_VALUES,
    "retry": [WorkflowState.FAILED.value],
    "delete": [state.value for state in FINAL_STATES],
}
"""The states of the runs that an action changes if it is for all runs that match; without an entry, any."""
SORTS = {"duration": "Duration", "cost": "Cost"}
"""The orders of the list beside the usual one, with the columns that they sort."""
DONE_PATTERN = re.compile(rf"(\d{{1,4}})-({'|'.join(PAST_TENSE.values())})")
UNSHOWN_EVENTS = frozenset({WorkflowEventType.OUTPUT_CHUNK, WorkflowEventType.TOOL_CALL})
"""Frequent events that change nothing in the list."""


def add_pages(site: Site) -> None:
    site.get("/runs", show_runs)
    site.live("/runs/stream", follow_runs)
    site.post("/runs/actions", change_selected_runs)


@dataclass(frozen=True, slots=True)
class RunListQuery:
    """The filters and the page of a list of runs, as they are in its address."""

    values: Mapping[str, Any]
    before: str = ""
    sort: str = ""
    """One of `SORTS`; empty for the newest runs first."""

    @classmethod
    def of_text(cls, text: str) -> RunListQuery:
        """Return the query of an address."""
        given = parse_qs(text.removeprefix("?"))
        values: dict[str, Any] = {name: given.get(name, [""])[-1].strip() for name in FILTER_NAMES}
        values["state"] = given.get("state", [])
        values["tag"] = [tag for text in given.get("tag", []) for tag in text.split()]
        sort = given.get("sort", [""])[-1]
        return cls(values, given.get("before", [""])[-1], sort if sort in SORTS else "")

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that have a value."""
        return {name: value for name, value in self.values.items() if value}

    @property
    def first_page(self) -> dict[str, Any]:
        """The query of the address of the first page."""
        return self.filters | ({"sort": self.sort} if self.sort else {})

    @property
    def address(self) -> dict[str, Any]:
        """The query of the address of this page."""
        return self.first_page | ({"before": self.before} if self.before else {})

    async def find_runs(self, visit: Visit) -> RunPage:
        return await visit.client.runs(**self.address, limit=RUNS_PER_PAGE, largest=MAX_RESULT_CHARS)


class StateTab(NamedTuple):
    """A link to the runs of one state, and their number without other filters."""

    name: str
    state: str
    runs: int
    is_current: bool


async def show_runs(visit: Visit) -> Response:
    query = RunListQuery.of_text(visit.request.url.query)
    workflows = await visit.client.workflows(all=True)
    names = [workflow.id for workflow in workflows.workflows]
    chosen = query.values["workflow"]
    return await visit.page(
        "runs.html",
        workflows=names if not chosen or chosen in names else [*names, chosen],
        periods=PERIODS,
        sorts=SORTS,
        filters=query.values,
        stream=visit.site.url("/runs/stream", query.address),
        back=visit.site.url("", query.address).removeprefix(visit.site.server.prefix),
        notice=format_done(visit.query.get("done", "")),
        **list_values(query, await query.find_runs(visit)),
        **await header_values(visit, query),
    )


def list_values(query: RunListQuery, page: RunPage) -> dict[str, Any]:
    """Return what the rows and the links to other pages show."""
    return {
        "runs": page.runs,
        "more": page.more,
        "query": query.first_page,
        "sort": query.sort,
        "before": query.before,
        "is_filtered": bool(query.filters),
    }


async def header_values(visit: Visit, query: RunListQuery) -> dict[str, Any]:
    """Return what the page shows above the list: open gates, and the number of runs by state."""
    counts = (await visit.client.health()).runs
    states = [state for state in SHOWN_STATES if counts.get(state) or state in query.values["state"]]
    current = query.values["state"]
    tabs = [
        StateTab("All", "", sum(counts.values()), not current),
        *(StateTab(state.title(), state, counts.get(state, 0), current == [state]) for state in states),
    ]
    gates = await visit.client.gates(limit=MAX_LISTED_GATES)
    return {"tabs": tabs, "gates": gates.gates, "more_gates": gates.more}


# -- live ----------------------------------------------------------------------------------------------


async def follow_runs(visit: Visit) -> LivePage:
    """Send the rows that changed; all of them, if runs were added or do not match any more."""
    query = RunListQuery.of_text(visit.request.url.query)
    shown: dict[str, RunResponse] = {}

    def select(event: EventResponse) -> str | None:
        return None if event.event_type in UNSHOWN_EVENTS else event.run_id

    async def render(keys: Collection[str] | None) -> str:
        page = await query.find_runs(visit)
        known = dict(shown)
        shown.clear()
        shown.update((run.run_id, run) for run in page.runs)
        return await render_changes(page, known)

    async def render_page() -> str:
        return await render_changes(await query.find_runs(visit), {})

    async def render_changes(page: RunPage, known: dict[str, RunResponse]) -> str:
        values = list_values(query, page) | {"inbox_count": await visit.count_open_gates()}
        values |= await header_values(visit, query)
        if known and [run.run_id for run in page.runs] == list(known):
            changed = [run for run in page.runs if run != known[run.run_id]]
            parts = [
                make_partial(f"#run-{run.run_id}", visit.render("parts/run_row.html", run=run))
                for run in changed
            ]
        else:
            rows = visit.render("parts/run_rows.html", **values)
            pages = visit.render("parts/run_pages.html", **values)
            parts = [
                make_partial("#run-rows", rows, "innerMorph"),
                make_partial("#pages", pages, "innerMorph"),
            ]
        for template, target in (("run_tabs", "#run-tabs"), ("waiting_for_me", "#waiting")):
            parts.append(make_partial(target, visit.render(f"parts/{template}.html", **values)))
        return "".join(parts)

    return LivePage(select, render, render_page)


# -- actions -------------------------------------------------------------------------------------------


async def change_selected_runs(visit: Visit) -> Response:
    """Stop, retry or delete the selected runs; what fails is reported, and the others are changed."""
    form = await visit.form()
    action, runs, key = form.get("action"), form.get_all("run"), form.get("key")
    if action == "compare":
        return compare_selected_runs(visit, runs)
    if action not in PAST_TENSE:
        raise ApiError("bad_request", f"Unknown action '{action}'", f"Use: {', '.join(PAST_TENSE)}.")
    is_cut = False
    if form.get("all"):
        runs, is_cut = await find_all_matching(visit, RunListQuery.of_text(form.get("back")), action)
    if not runs or len(runs) > MAX_SELECTED_RUNS:
        raise ApiError("bad_request", "No run is selected", "Select the runs to change first.")
    done, problems = 0, list[str]()
    for run in runs:
        try:
            await change_run(visit, action, run, key)
            done += 1
        except ApiError as error:
            if error.code == "forbidden":
                raise
            problems.append(f"{run}: {error.message}")
    text = f"{count_noun(done, 'run')} {PAST_TENSE[action]}" + (
        f", {len(problems)} not:" if problems else "."
    )
    if is_cut:
        text += f" There are more runs: one action takes at most {MAX_SELECTED_RUNS:,}."
    if visit.is_htmx or problems or is_cut:
        return visit.notice(text, problems) if visit.is_htmx else await show_problems(visit, text, problems)
    back = parse_qs(form.get("back").removeprefix("?"))
    return visit.redirect("/runs", back | {"done": f"{done}-{PAST_TENSE[action]}"})


async def find_all_matching(visit: Visit, query: RunListQuery, action: str) -> tuple[list[str], bool]:
    """Return the runs that match the filters of the list and that an action can change, oldest first.

    The second value is whether there are more than one action takes.
    """
    filters = dict(query.filters)
    if (states := CHANGED_STATES.get(action)) is not None:
        filters["state"] = [state for state in filters.get("state") or states if state in states]
        if not filters["state"]:
            return [], False
    page = await visit.client.runs(**filters, limit=MAX_SELECTED_RUNS, largest=0)
    return [run.run_id for run in reversed(page.runs)], page.more


def compare_selected_runs(visit: Visit, runs: list[str]) -> Response:
    """Lead to the comparison of two runs; the older one is A."""
    if len(runs) != 2:
        raise ApiError("bad_request", f"{len(runs)} runs are selected", "Select two runs to compare.")
    b, a = runs  # the newest comes first in the list
    if not visit.is_htmx:
        return visit.redirect("/compare", {"a": a, "b": b})
    from starlette.responses import Response

    return Response(headers={"HX-Redirect": visit.site.url("/compare", {"a": a, "b": b})})


async def change_run(visit: Visit, action: str, run: str, key: str) -> None:
    keys = {"key": f"{key}-{run}"[:256]} if key else {}
    await visit.client.perform("fork" if action == "rerun" else action, {"run": run, **keys})


async def show_problems(visit: Visit, text: str, problems: list[str]) -> Response:
    return await visit.page("problems.html", section="Runs", text=text, problems=problems)


def format_done(text: str) -> str:
    """Return the sentence for what a form has done, from the address that it led to."""
    match = DONE_PATTERN.fullmatch(text)
    return f"{count_noun(int(match[1]), 'run')} {match[2]}." if match else ""
