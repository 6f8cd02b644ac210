"""What the pages of a run show: values of their templates, from responses of the API and pictures of runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.api.errors import ApiError
from nerve.ui.display_values import display_value, json_tree, pretty_json
from nerve.ui.event_lines import format_event_log_text, to_workflow_event
from nerve.ui.followed_run import FollowedStep, RunConversation, RunPicture, RunProfile
from nerve.ui.formatting import format_cost, format_token_count
from nerve.ui.graph_model import encode_for_script
from nerve.ui.run_graph import build_run_graph
from nerve.ui.timeline import WHOLE_RUN
from nerve.web.timeline_view import TimelineQuery, make_row_views, step_page

if TYPE_CHECKING:
    from nerve.api.models import EventResponse, RunDetailResponse, StepChanges
    from nerve.ui.graph_model import RunGraph
    from nerve.ui.time_axis import TimeAxis
    from nerve.web.site import Visit

MAX_READ_EVENTS = 5000
"""Events that are read for one request; a page reads those of a longer run while it is open."""
EVENTS_PER_PAGE = 100
MAX_EVENT_CHARS = 4000
"""Characters of the data of an event in a list; its own page has all."""
SHOWN_STEP_EVENTS = 20
MAX_EVENT_TEXT_CHARS = 300
STEP_PREFIX = re.compile(r"^\[[^\]]*\] ")
"""The name of the step in a line of a log; a list of events has its path."""
BUDGETS = (("cost", "Cost"), ("tokens", "Tokens"), ("turns", "Turns"), ("agents", "Agents"))


class RunTab(NamedTuple):
    name: str
    path: str


TABS = (
    RunTab("Timeline", ""),
    RunTab("Graph", "/graph"),
    RunTab("Conversation", "/conversation"),
    RunTab("Events", "/events"),
    RunTab("Definition", "/definition"),
)


STACK_TAB = RunTab("Stack", "/stack")
"""Of a run that is open."""


class Meter(NamedTuple):
    """What a run has used of a budget."""

    name: str
    used: str
    limit: str
    """Empty without a limit."""
    percent: int


class EventView(NamedTuple):
    """An event in a list."""

    event: EventResponse
    text: str
    data: str
    is_cut: bool


async def find_run(visit: Visit) -> RunDetailResponse:
    return await visit.client.run(run=visit.argument("run"), steps=False)


def find_actions(run: RunDetailResponse, profile: RunProfile) -> list[str]:
    """Return the actions that a run permits in its state."""
    if run.ended_at is not None:
        return ["retry"] if run.state == "failed" else []
    actions: list[str] = []
    hold_reason = (run.held or {}).get("reason", "")
    if run.state in ("running", "waiting") and run.held is None:
        actions.append("pause")
    if run.state == "paused" or (run.held is not None and hold_reason != "in doubt"):
        actions.append("resume")
    if hold_reason == "in doubt":
        actions += ["retry", "skip"]
    if profile.agents:
        actions.append("steer")
    if run.state != "stopping":
        actions += ["send", "stop"]
    return actions


def make_seen_token(run: RunDetailResponse) -> str:
    """Return a text that changes when what the user decides about a run is another question."""
    question = [run.state in ("held", "paused"), run.held, run.ended_at is not None]
    return hashlib.sha256(json.dumps(question, default=str, sort_keys=True).encode()).hexdigest()[:16]


def page_values(
    visit: Visit, run: RunDetailResponse, picture: RunPicture, tab: str, stream: str | None = None
) -> dict[str, Any]:
    """Return what every tab of a run shows."""
    return {
        "tabs": TABS if run.ended_at is not None else (*TABS, STACK_TAB),
        "current_tab": tab,
        "stream": stream_address(visit, run, picture, tab) if stream is None else stream,
        **header_values(run, picture),
    }


def header_values(run: RunDetailResponse, picture: RunPicture) -> dict[str, Any]:
    profile, tree = picture.profile, picture.timeline.tree
    return {
        "run": run,
        "profile": profile,
        "meters": make_meters(tree.usage.to_dict(), profile.limits),
        "gates": tree.gates if run.ended_at is None else [],
        "actions": find_actions(run, profile),
        "seen": make_seen_token(run),
        "budgets": BUDGETS,
        "read_events": None if picture.is_complete else picture.followed.applied_events,
    }


def make_meters(usage: Mapping[str, float], limits: Mapping[str, Any]) -> list[Meter]:
    """Return what is used, and how much of each budget."""
    meters = []
    for name, title in BUDGETS:
        used, limit = usage.get(name, 0), limits.get(name)
        if limit is None and (not used or name not in ("cost", "tokens")):
            continue
        percent = 0 if limit is None else min(100, round(100 * used / limit)) if limit else 100
        shown_limit = "" if limit is None else format_amount(name, limit)
        meters.append(Meter(title, format_amount(name, used), shown_limit, percent))
    return meters


def format_amount(name: str, amount: float) -> str:
    if name == "cost":
        return format_cost(amount) or "$0.00"
    return format_token_count(amount) if name == "tokens" else f"{amount:g}"


def stream_address(
    visit: Visit, run: RunDetailResponse, followed: RunPicture | RunConversation, tab: str, **query: Any
) -> str:
    """Return the address of the stream of a page; empty if nothing can change any more."""
    if run.ended_at is not None and followed.is_complete:
        return ""
    return visit.site.url(f"/runs/{run.run_id}/stream", {"tab": tab.removeprefix("/"), **query})


def timeline_values(visit: Visit, picture: RunPicture, query: TimelineQuery) -> dict[str, Any]:
    layout = picture.layout(datetime.now(UTC), query.expanded, query.collapsed, query.span)
    branches = picture.timeline.tree.branches
    child_runs = {prefix: branch.run_id for prefix, branch in branches.items() if prefix}
    return {
        "rows": list(make_row_views(visit, layout.run_id, layout, query, child_runs)),
        "axis": layout.axis,
        "axis_parts": format_axis_parts(layout.axis),
        "query": query,
        "row_count": len(layout.rows),
    }


def format_axis_parts(axis: TimeAxis) -> str:
    """Return the parts of the time axis as JSON, from which the page finds the times of a selected part."""
    parts = ((part.start - axis.origin, part.end - axis.origin, part.x, part.width) for part in axis.parts)
    return json.dumps([[round(number, 5) for number in part] for part in parts])


def span_values(visit: Visit, run_id: str, query: TimelineQuery) -> dict[str, Any]:
    """Return what the form shows that selects a part of the run by its time."""
    page, address = step_page(run_id, query.selected), query.address()
    kept = query.address(**{"from": "", "to": ""})
    return {
        "page_path": page,
        "is_part": query.span != WHOLE_RUN,
        "span_query": [
            (name, each)
            for name, value in kept.items()
            for each in (value if isinstance(value, list) else [value])
        ],
        "span_from": address.get("from", ""),
        "span_to": address.get("to", ""),
        "whole_address": visit.site.url(page, kept),
    }


def run_pane_values(run: RunDetailResponse, picture: RunPicture) -> dict[str, Any]:
    """Return what the pane shows while no step is selected: the run itself."""
    input, result = display_value(run.input), display_value(run.result)
    params = display_value(run.params) if run.params else None
    return {
        "pane_template": "parts/run_pane.html",
        "input": input,
        "result": result,
        "params": params,
        "models": picture.timeline.tree.root.view.ledger.by_model(),
        "commands": run_commands(run),
    }


def run_commands(run: RunDetailResponse) -> list[tuple[str, str]]:
    """Return the commands of the command line that show the run."""
    id = run.run_id
    commands = [("Show it", f"nerve status {id}"), ("Show its log", f"nerve logs {id}")]
    if run.ended_at is None:
        commands.append(("Follow it", f"nerve watch {id}"))
    if run.state == "failed":
        commands.append(("Retry what failed", f"nerve retry {id} --wait"))
    return commands


async def load_step(visit: Visit, picture: RunPicture, full_path: str) -> FollowedStep:
    while not picture.is_complete and not picture.has_step(full_path):
        await picture.catch_up(visit.client, MAX_READ_EVENTS)
    run_id, path = picture.find_step(full_path)
    whole = visit.query.get("whole") == "1"
    step = FollowedStep(run_id, path, whole=whole)
    await step.catch_up(visit.client, picture)
    branch = next(each for each in picture.timeline.tree.branches.values() if each.run_id == run_id)
    if not step.detail.event_count and path not in branch.view.nodes:
        raise ApiError("not_found", f"Run '{run_id}' has no step '{path}'", "See its steps in the timeline.")
    return step


async def load_changes(visit: Visit, step: FollowedStep) -> StepChanges | None:
    """Return what a step has changed in its workspace, with the difference."""
    detail = step.detail
    if not (detail.attributes.get("workspace") or {}).get("files"):
        return None
    page = await visit.client.changes(run=detail.run_id, path=detail.path)
    return next((each for each in page.steps if each.path == detail.path), None)


def step_values(
    visit: Visit, run: RunDetailResponse, step: FollowedStep, full_path: str, query: TimelineQuery
) -> dict[str, Any]:
    detail = step.detail
    return {
        "pane_template": "parts/step_pane.html",
        "step": detail,
        "step_run_is_open": run.ended_at is None,
        "step_path": full_path,
        "attempts": detail.attempts if len(detail.attempts) > 1 else [],
        "failure": next((each for each in reversed(detail.attempts[-1:]) if each.error), None),
        "entries": detail.transcript.entries,
        "attributes_tree": json_tree(detail.attributes),
        "step_events": [make_event_view(event) for event in list(detail.events)[-SHOWN_STEP_EVENTS:]],
        "close": visit.site.url(f"/runs/{run.run_id}", query.address()),
    }


def make_event_view(event: Any, max_chars: int = MAX_EVENT_CHARS) -> EventView:
    """Return an event of the API, or of a journal, for a list."""
    data = pretty_json(event.data)
    own = to_workflow_event(event) if hasattr(event, "is_of_child") else event
    text = format_event_log_text(own) or str(event.data.get("text") or "")
    text = STEP_PREFIX.sub("", text.strip()).partition("\n")[0][:MAX_EVENT_TEXT_CHARS]
    return EventView(event, text, data[:max_chars], len(data) > max_chars)


async def load_graph(visit: Visit, run_id: str, picture: RunPicture) -> RunGraph:
    try:
        spec = (await visit.client.definition(run=run_id)).spec
    except ApiError as error:
        if error.code != "not_found":
            raise
        spec = None
    return build_run_graph(spec, picture.timeline.tree)


def graph_values(graph: RunGraph) -> dict[str, Any]:
    from markupsafe import Markup

    data = graph.to_dict()
    states = {name: data.pop(name) for name in ("states", "state")}
    # Both are encoded so that no value can end the element around them.
    return {
        "graph_items": graph.list_items(),
        "graph_shape": Markup(encode_for_script(data)),
        "graph_states": Markup(encode_for_script(states)),
    }


class FoundEvents(NamedTuple):
    events: list[EventView]
    next: int | None
    more: bool
    last_seq: int


class EventQuery(NamedTuple):
    """The filters and the page of a list of events, as they are in its address."""

    search: str
    type: str
    path: str
    after: int
    whole: int
    """The number of an event to show with all of its data."""

    @classmethod
    def of_visit(cls, visit: Visit) -> EventQuery:
        text = {name: visit.query.get(name, "").strip() for name in ("search", "type", "path")}
        at, whole = read_number(visit.query.get("at", "")), read_number(visit.query.get("whole", ""))
        after = max(0, at - EVENTS_PER_PAGE // 2) if at else read_number(visit.query.get("after", ""))
        if whole:
            after = whole - 1
        return cls(**text, after=after, whole=whole)

    @property
    def filters(self) -> dict[str, Any]:
        return {name: value for name in ("search", "type", "path") if (value := getattr(self, name))}

    async def find_events(self, visit: Visit, run_id: str, limit: int = EVENTS_PER_PAGE) -> FoundEvents:
        count = 1 if self.whole else limit
        page = await visit.client.events(run=run_id, after=self.after, limit=count, **self.filters)
        max_chars = 10_000_000 if self.whole else MAX_EVENT_CHARS
        views = [make_event_view(event, max_chars) for event in page.events]
        return FoundEvents(views, page.next, page.more, page.events[-1].seq if page.events else 0)


def read_number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0
