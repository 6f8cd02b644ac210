"""One run: header, timeline with a detail pane, graph, conversation, events and definition."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import HTMLResponse, Response

from nerve.api.errors import ApiError
from nerve.ui.followed_run import RunConversation, RunPicture
from nerve.web.live import LivePage
from nerve.web.pages.run_actions import add_actions
from nerve.web.rendering import describe_error, make_partial
from nerve.web.run_values import (
    EVENTS_PER_PAGE,
    MAX_READ_EVENTS,
    STACK_TAB,
    EventQuery,
    find_run,
    graph_values,
    load_changes,
    load_graph,
    load_step,
    page_values,
    run_pane_values,
    span_values,
    step_values,
    stream_address,
    timeline_values,
)
from nerve.web.timeline_view import ZOOMS, TimelineQuery, step_page

if TYPE_CHECKING:
    from nerve.client import Client
    from nerve.web.site import Site, Visit

T = TypeVar("T", RunPicture, RunConversation)

STACK_QUERY = "~stack"
"""The query that every run with code answers: where its code waits."""
MAX_KEPT_RUNS, MAX_KEPT_EVENTS = 24, 500_000
"""Runs whose picture is kept, so that their pages need not read all events again, and the events of these."""


def add_pages(site: Site) -> None:
    from nerve.web.run_stream import RunStream

    pages = RunPages()

    async def follow(visit: Visit) -> LivePage:
        return await RunStream.open(pages, visit)

    site.get("/runs/{run}", pages.show_timeline)
    site.get("/runs/{run}/steps/{path:path}", pages.show_timeline)
    site.get("/runs/{run}/graph", pages.show_graph)
    site.get("/runs/{run}/conversation", pages.show_conversation)
    site.get("/runs/{run}/events", pages.show_events)
    site.get("/runs/{run}/definition", pages.show_definition)
    site.get("/runs/{run}/stack", pages.show_stack)
    site.live("/runs/{run}/stream", follow)
    add_actions(site, pages)


class RunPages:
    """The pages of runs, and the pictures of the runs that were opened last."""

    def __init__(self) -> None:
        self._pictures: OrderedDict[str, RunPicture] = OrderedDict()
        self._conversations: OrderedDict[str, RunConversation] = OrderedDict()

    async def load_picture(self, client: Client, run_id: str) -> RunPicture:
        """Return the picture of a run, which its open pages share; that of a long run is read in parts."""
        picture = keep_newest(self._pictures, run_id, RunPicture(run_id))
        await picture.catch_up(client, MAX_READ_EVENTS)
        return picture

    async def load_conversation(self, client: Client, run_id: str) -> RunConversation:
        conversation = keep_newest(self._conversations, run_id, RunConversation(run_id))
        await conversation.followed.catch_up(client, max_events=MAX_READ_EVENTS)
        return conversation

    # -- tabs --------------------------------------------------------------------------------------------

    async def show_timeline(self, visit: Visit) -> Response:
        """Show the timeline and the detail of a step; an open page gets only the detail."""
        run = await find_run(visit)
        picture = await self.load_picture(visit.client, run.run_id)
        selected = "/" + visit.argument("path") if "path" in visit.request.path_params else ""
        query = TimelineQuery.of_visit(visit, selected)
        if selected:
            step = await load_step(visit, picture, selected)
            pane = step_values(visit, run, step, selected, query)
            pane["changes"] = await load_changes(visit, step)
        else:
            pane = run_pane_values(run, picture)
        stream = stream_address(visit, run, picture, "", step=selected, **query.address())
        if visit.is_htmx:
            live = visit.render("parts/run_live.html", stream=stream)
            html = visit.render(pane["pane_template"], run=run, **pane)
            return HTMLResponse(html + make_partial("#live", live, "outerHTML"))
        return await visit.page(
            "run_timeline.html",
            **page_values(visit, run, picture, "", stream),
            **timeline_values(visit, picture, query),
            **pane,
            **span_values(visit, run.run_id, query),
            zooms=[
                (zoom, visit.site.url(step_page(run.run_id, selected), query.address(zoom=zoom)))
                for zoom in ZOOMS
            ],
        )

    async def show_graph(self, visit: Visit) -> Response:
        run = await find_run(visit)
        picture = await self.load_picture(visit.client, run.run_id)
        graph = await load_graph(visit, run.run_id, picture)
        values = page_values(visit, run, picture, "/graph")
        return await visit.page("run_graph.html", **values, **graph_values(graph))

    async def show_conversation(self, visit: Visit) -> Response:
        run = await find_run(visit)
        picture = await self.load_picture(visit.client, run.run_id)
        conversation = await self.load_conversation(visit.client, run.run_id)
        stream = stream_address(visit, run, conversation, "/conversation")
        values = page_values(visit, run, picture, "/conversation", stream)
        return await visit.page("run_conversation.html", **values, threads=conversation.threads)

    async def show_events(self, visit: Visit) -> Response:
        run = await find_run(visit)
        picture = await self.load_picture(visit.client, run.run_id)
        query = EventQuery.of_visit(visit)
        page = await query.find_events(visit, run.run_id)
        is_last = not page.more
        shown = {"shown": max(page.last_seq, query.after), **query.filters}
        stream = stream_address(visit, run, picture, "/events", **shown) if is_last else ""
        return await visit.page(
            "run_events.html",
            **page_values(visit, run, picture, "/events", stream),
            events=page.events,
            query=query,
            next=page.next,
            newest=max(0, run.last_seq - EVENTS_PER_PAGE),
        )

    async def show_definition(self, visit: Visit) -> Response:
        run = await find_run(visit)
        picture = await self.load_picture(visit.client, run.run_id)
        definition, problem = None, ""
        try:
            definition = await visit.client.definition(run=run.run_id)
        except ApiError as error:
            if error.code != "not_found":
                raise
            problem = error.message
        values = page_values(visit, run, picture, "/definition")
        return await visit.page("run_definition.html", **values, definition=definition, problem=problem)

    async def show_stack(self, visit: Visit) -> Response:
        """Show where the code of an open run waits; a run that is parked on disk is loaded for it."""
        run = await find_run(visit)
        picture = await self.load_picture(visit.client, run.run_id)
        stack = problem = ""
        try:
            stack = (await visit.client.query(run=run.run_id, query=STACK_QUERY)).result
        except ApiError as error:
            problem = describe_error(error)
        values = page_values(visit, run, picture, STACK_TAB.path)
        return await visit.page("run_stack.html", **values, stack=stack, problem=problem)


def keep_newest(kept: OrderedDict[str, T], key: str, new: T) -> T:
    """Return what is kept under a key, or the new value; the oldest of too many are dropped."""
    value = kept.setdefault(key, new)
    kept.move_to_end(key)
    events = sum(each.followed.applied_events for each in kept.values())
    while len(kept) > 1 and (len(kept) > MAX_KEPT_RUNS or events > MAX_KEPT_EVENTS):
        events -= kept.popitem(last=False)[1].followed.applied_events
    return value
