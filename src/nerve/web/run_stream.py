"""The stream of an open page of a run: what changes in its header and in the tab that is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from nerve.core.events import WorkflowEventType
from nerve.ui.step_transcript import TranscriptEntry
from nerve.web.rendering import make_partial
from nerve.web.run_values import (
    EVENTS_PER_PAGE,
    EventQuery,
    find_run,
    graph_values,
    header_values,
    load_graph,
    load_step,
    read_number,
    run_pane_values,
    step_values,
    timeline_values,
)
from nerve.web.timeline_view import TimelineQuery
from nerve.web.transcript_updates import TranscriptUpdates

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import EventResponse, RunDetailResponse
    from nerve.ui.followed_run import FollowedStep, RunPicture
    from nerve.web.pages.run import RunPages
    from nerve.web.site import Visit

TICK_S = 1.0
"""Seconds after which the timeline of a running run is drawn again, because its bars have grown."""
IDLE_TICK_S = 15.0
SLOW_RENDER_S, REST_FACTOR, MAX_REST_S = 0.05, 3, 2.0
"""A page that took long to render rests several times as long, so that it does not keep others waiting."""
OUTPUT = "output"
STATE = "state"


class RunStream:
    """What one open page shows, and how it is brought up to date."""

    def __init__(self, pages: RunPages, visit: Visit, run: RunDetailResponse, picture: RunPicture) -> None:
        self._pages, self._visit, self._run, self._picture = pages, visit, run, picture
        self._tab = visit.query.get("tab", "")
        self._query = TimelineQuery.of_visit(visit, visit.query.get("step", ""))
        self._step: FollowedStep | None = None
        self._sent: dict[str, Any] = {}
        """What the page has, by the selector of its place."""
        self._transcripts: dict[str, TranscriptUpdates] = {}
        self._is_first = True
        self._drawn_at = 0.0
        self._shown_events = read_number(visit.query.get("shown", ""))
        self._event_query = EventQuery.of_visit(visit)

    @classmethod
    async def respond(cls, pages: RunPages, visit: Visit) -> Response:
        """Respond with the stream of a page."""
        run = await find_run(visit)
        stream = cls(pages, visit, run, await pages.load_picture(visit.client, run.run_id))
        if not stream._tab and stream._query.selected:
            stream._step = await load_step(visit, stream._picture, stream._query.selected)
        tick_s = TICK_S if not stream._tab else None
        return visit.stream(stream.select, stream.render, run.run_id, tick_s)

    def select(self, event: EventResponse) -> str | None:
        """Return what an event changes on the page: its state, or only the text that a step writes."""
        if event.run_id not in self._picture.followed.run_ids:
            return None
        if event.event_type != WorkflowEventType.OUTPUT_CHUNK:
            return STATE
        if self._tab == "conversation" or self._tab == "events":
            return OUTPUT
        step = self._step.detail if self._step is not None else None
        return OUTPUT if step is not None and (step.run_id, step.path) == (event.run_id, event.path) else None

    async def render(self, keys: Collection[str] | None) -> str:
        """Return the fragments for what has changed."""
        began = time.monotonic()
        await self._picture.catch_up(self._visit.client)
        is_first, self._is_first = self._is_first, False
        has_news = keys is None or is_first or STATE in keys
        parts: list[str] = []
        if has_news:
            self._run = await self._visit.client.run(run=self._run.run_id)
            parts += self._render_header()
        match self._tab:
            case "":
                if self._step is not None:
                    await self._step.catch_up(self._visit.client, self._picture)
                if has_news or self._is_tick_due(keys):
                    self._drawn_at = began
                    parts += self._render_timeline()
                if has_news or keys:
                    parts += self._render_pane(has_news)
            case "graph" if has_news:
                parts += await self._render_graph()
            case "conversation" if has_news or keys:
                parts += await self._render_conversation()
            case "events":
                parts += await self._render_events()
        taken = time.monotonic() - began
        if taken > SLOW_RENDER_S and not is_first:  # the first time, templates may be compiled
            await asyncio.sleep(min(REST_FACTOR * taken, MAX_REST_S))
        return "".join(parts)

    def _is_tick_due(self, keys: Collection[str] | None) -> bool:
        interval = TICK_S if self._run.state == "running" else IDLE_TICK_S
        return time.monotonic() - self._drawn_at >= interval - 0.1

    def _render_if_changed(self, target: str, template: str, values: dict[str, Any]) -> list[str]:
        html = self._visit.render(template, **values)
        if self._sent.get(target) == html:
            return []
        self._sent[target] = html
        return [make_partial(target, html)]

    # -- header ------------------------------------------------------------------------------------------

    def _render_header(self) -> list[str]:
        values = header_values(self._run, self._picture)
        parts = self._render_if_changed("#run-head", "parts/run_head.html", values)
        parts += self._render_if_changed("#run-alerts", "parts/run_alerts.html", values)
        # Compared by what they show, because every form has a new key; a form that the user fills in stays.
        shown = values["actions"], values["seen"], values["profile"].agents, self._run.held
        if self._sent.get("#run-actions") != shown:
            self._sent["#run-actions"] = shown
            parts.append(make_partial("#run-actions", self._visit.render("parts/run_actions.html", **values)))
        return parts

    # -- tabs --------------------------------------------------------------------------------------------

    def _render_timeline(self) -> list[str]:
        """Return the rows that have changed; all of them, if there are others."""
        visit = self._visit
        values = timeline_values(visit, self._picture, self._query)
        parts = self._render_if_changed("#timeline-axis", "parts/timeline_axis.html", values)
        rows = {
            row.dom_id: visit.render("parts/timeline_row.html", row=row, run=self._run)
            for row in values["rows"]
        }
        sent = self._sent.get("#timeline-rows", {})
        if list(sent) == list(rows):
            parts += [make_partial(f"#{id}", html) for id, html in rows.items() if html != sent[id]]
        else:
            parts.append(make_partial("#timeline-rows", "".join(rows.values()), "innerMorph"))
        self._sent["#timeline-rows"] = rows
        return parts

    def _render_pane(self, has_news: bool) -> list[str]:
        visit, run = self._visit, self._run
        if self._step is None:
            values = run_pane_values(run, self._picture) | {"run": run}
            return self._render_if_changed("#pane", "parts/run_pane.html", values) if has_news else []
        values = step_values(visit, run, self._step, self._query.selected, self._query) | {"run": run}
        parts: list[str] = []
        if has_news:
            for name in ("head", "result", "more"):
                parts += self._render_if_changed(f"#step-{name}", f"parts/step_{name}.html", values)
        return [*parts, self._update_transcript("transcript", values["entries"])]

    def _update_transcript(self, place: str, entries: list[TranscriptEntry]) -> str:
        def render_entry(entry: TranscriptEntry, entry_id: str) -> str:
            return self._visit.render("parts/transcript_entry.html", entry=entry, entry_id=entry_id)

        updates = self._transcripts.setdefault(place, TranscriptUpdates(place, render_entry))
        return updates.render_changes(entries)

    async def _render_graph(self) -> list[str]:
        values = graph_values(await load_graph(self._visit, self._run.run_id, self._picture))
        parts: list[str] = []
        for name in ("shape", "states"):
            target, text = f"#graph-{name}", values[f"graph_{name}"]
            if self._sent.get(target) != text:
                self._sent[target] = text
                script = f'<script type="application/json" id="graph-{name}">{text}</script>'
                parts.append(make_partial(target, script, "outerHTML"))
        return parts

    async def _render_conversation(self) -> list[str]:
        conversation = await self._pages.load_conversation(self._visit.client, self._run.run_id)
        threads = conversation.threads
        turns = [
            (number, turn_number)
            for number, thread in enumerate(threads)
            for turn_number in range(len(thread.turns))
        ]
        if self._sent.get("turns") != turns:
            self._sent["turns"] = turns
            self._transcripts.clear()
            html = self._visit.render("parts/threads.html", threads=threads, run=self._run)
            parts = [make_partial("#threads", html)]
        else:
            parts = []
        for number, turn_number in turns:
            entries = threads[number].turns[turn_number].entries
            parts.append(self._update_transcript(f"turn-{number}-{turn_number}", entries))
        return parts

    async def _render_events(self) -> list[str]:
        """Return the new events: those after the page first, since the page may have some of them already."""
        found = await self._event_query._replace(after=self._shown_events, whole=0).find_events(
            self._visit, self._run.run_id, 10 * EVENTS_PER_PAGE
        )
        is_first = "events" not in self._sent
        self._sent["events"] = True
        if not found.events and not is_first:
            return []
        self._shown_events = max(found.last_seq, self._shown_events)
        rows = [self._visit.render("parts/event_row.html", view=view, run=self._run) for view in found.events]
        return [make_partial("#event-tail", "".join(rows), "innerHTML" if is_first else "beforeend")]
