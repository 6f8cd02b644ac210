"""The stream of the open pages of a run: what changes in its header and in the tab that is shown."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from nerve.core.events import WorkflowEventType
from nerve.ui.followed_run import RunConversation
from nerve.ui.step_transcript import TranscriptEntry
from nerve.web.live import EventStream, LivePage, events_until_end_of
from nerve.web.rendering import make_partial
from nerve.web.run_values import (
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
    from nerve.api.models import EventResponse, RunDetailResponse
    from nerve.ui.followed_run import FollowedStep, RunPicture
    from nerve.web.pages.run import RunPages
    from nerve.web.site import Visit

TICK_S = 1.0
"""Seconds after which the timeline of a running run is drawn again, because its bars have grown."""
IDLE_TICK_S = 15.0
MAX_TAIL_EVENTS, DROPPED_TAIL_EVENTS = 600, 200
"""New events that a list of events keeps; if there are more, that many of the oldest are removed."""
OUTPUT = "output"
STATE = "state"


class RunStream:
    """What the open pages of one address show, and how they are brought up to date."""

    def __init__(self, pages: RunPages, visit: Visit, run: RunDetailResponse, picture: RunPicture) -> None:
        self._pages, self._visit, self._run, self._picture = pages, visit, run, picture
        self._tab = visit.query.get("tab", "")
        self._query = TimelineQuery.of_visit(visit, visit.query.get("step", ""))
        self._step: FollowedStep | None = None
        self._conversation = RunConversation(run.run_id)
        self._is_read = False
        """Whether all recorded events were read; those of a long run are read in parts."""
        self._sent: dict[str, str] = {}
        """The HTML that the pages have, by the selector of its place."""
        self._rows: dict[str, str] = {}
        """The rows of the timeline that they have, by id."""
        self._transcripts: dict[str, TranscriptUpdates] = {}
        self._turns: list[tuple[int, int]] = []
        """The turns of the conversation that they have: numbers of threads and of turns in them."""
        self._tail: dict[int, str] = {}
        """The rows of the new events that they have, by number."""
        self._left_out_events = 0
        """New events that they do not have, because there are too many."""
        self._drawn_at = 0.0
        self._shown_events = read_number(visit.query.get("shown", ""))
        self._event_query = EventQuery.of_visit(visit)

    @classmethod
    async def open(cls, pages: RunPages, visit: Visit) -> LivePage:
        """Return what keeps a page of a run up to date."""
        run = await find_run(visit)
        stream = cls(pages, visit, run, await pages.load_picture(visit.client, run.run_id))
        if not stream._tab and stream._query.selected:
            stream._step = await load_step(visit, stream._picture, stream._query.selected)
        tick_s = TICK_S if not stream._tab else None
        return LivePage(stream.select, stream.render, stream.render_page, stream.open_events, tick_s)

    async def open_events(self, cursor: str) -> EventStream:
        """Yield after each part of the recorded events that was read, then new events until the run ends."""
        client, run_id = self._visit.client, self._run.run_id
        while not self._is_read:
            self._is_read = await self._read_part()
            if not self._is_read:
                yield cursor, None
        async with contextlib.aclosing(events_until_end_of(client, run_id)(cursor)) as events:
            async for item in events:
                yield item

    async def _read_part(self) -> bool:
        """Read a part of the recorded events; return whether all were read."""
        client, run_id = self._visit.client, self._run.run_id
        self._picture = await self._pages.load_picture(client, run_id)
        if self._tab != "conversation":
            return self._picture.is_complete
        self._conversation = await self._pages.load_conversation(client, run_id)
        return self._picture.is_complete and self._conversation.is_complete

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
        client, is_first = self._visit.client, not self._sent
        if self._is_read:
            await self._picture.catch_up(client)
        has_news = keys is None or is_first or STATE in keys
        parts: list[str] = []
        if has_news or self._tab == "events":
            self._run = await client.run(run=self._run.run_id, steps=False)
        if has_news:
            parts += self._render_header()
        match self._tab:
            case "":
                if self._step is not None:
                    await self._step.catch_up(client, self._picture)
                if has_news or self._is_tick_due():
                    self._drawn_at = time.monotonic()
                    parts += self._render_timeline()
                if has_news or keys:
                    parts += self._render_pane(has_news)
            case "graph" if has_news:
                parts += await self._render_graph()
            case "conversation" if has_news or keys:
                parts += await self._render_conversation()
            case "events":
                parts += await self._render_events(is_first)
        return "".join(parts)

    async def render_page(self) -> str:
        """Return everything that the pages have."""
        parts = [make_fragment(target, html) for target, html in self._sent.items()]
        if self._rows:
            parts.append(make_partial("#timeline-rows", "".join(self._rows.values()), "innerMorph"))
        parts += [transcript.render_sent() for transcript in self._transcripts.values()]
        if self._tab == "events":
            parts.append(self._render_tail())
        return "".join(parts)

    def _is_tick_due(self) -> bool:
        interval = TICK_S if self._run.state == "running" else IDLE_TICK_S
        return time.monotonic() - self._drawn_at >= interval - 0.1

    def _render_if_changed(self, target: str, template: str, values: dict[str, Any]) -> list[str]:
        return self._send_if_changed(target, self._visit.render(template, **values))

    def _send_if_changed(self, target: str, html: str) -> list[str]:
        if self._sent.get(target) == html:
            return []
        self._sent[target] = html
        return [make_fragment(target, html)]

    # -- header ------------------------------------------------------------------------------------------

    def _render_header(self) -> list[str]:
        values = header_values(self._run, self._picture)
        return [
            part
            for name in ("head", "alerts", "actions", "progress")
            for part in self._render_if_changed(f"#run-{name}", f"parts/run_{name}.html", values)
        ]

    # -- tabs --------------------------------------------------------------------------------------------

    def _render_timeline(self) -> list[str]:
        """Return the rows that have changed; all of them, if there are others."""
        visit = self._visit
        values = timeline_values(visit, self._picture, self._query)
        parts = self._render_if_changed("#timeline-axis", "parts/timeline_axis.html", values)
        parts += self._render_if_changed("#timeline-count", "parts/timeline_count.html", values)
        rows = {
            row.dom_id: visit.render("parts/timeline_row.html", row=row, run=self._run)
            for row in values["rows"]
        }
        if list(self._rows) == list(rows):
            parts += [make_partial(f"#{id}", html) for id, html in rows.items() if html != self._rows[id]]
        else:
            parts.append(make_partial("#timeline-rows", "".join(rows.values()), "innerMorph"))
        self._rows = rows
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
        dropped = self._step.detail.transcript.dropped_entries
        return [*parts, self._update_transcript("transcript", values["entries"], dropped)]

    def _update_transcript(self, place: str, entries: list[TranscriptEntry], dropped: int) -> str:
        def render_entry(entry: TranscriptEntry, entry_id: str) -> str:
            return self._visit.render("parts/transcript_entry.html", entry=entry, entry_id=entry_id)

        def render_older(count: int, older_id: str) -> str:
            return self._visit.render("parts/older_entries.html", older=count, older_id=older_id)

        updates = self._transcripts.setdefault(place, TranscriptUpdates(place, render_entry, render_older))
        return updates.render_changes(entries, dropped)

    async def _render_graph(self) -> list[str]:
        values = graph_values(await load_graph(self._visit, self._run.run_id, self._picture))
        parts: list[str] = []
        for name in ("shape", "states"):
            text = values[f"graph_{name}"]
            script = f'<script type="application/json" id="graph-{name}">{text}</script>'
            parts += self._send_if_changed(f"#graph-{name}", script)
        return parts

    async def _render_conversation(self) -> list[str]:
        if self._is_read:
            await self._conversation.followed.catch_up(self._visit.client)
        threads = self._conversation.threads
        turns = [
            (number, turn_number)
            for number, thread in enumerate(threads)
            for turn_number in range(len(thread.turns))
        ]
        parts: list[str] = []
        if self._turns != turns or "#threads" not in self._sent:
            self._turns = turns
            self._transcripts.clear()
            html = self._visit.render("parts/threads.html", threads=threads, run=self._run)
            parts += self._send_if_changed("#threads", html)
        for number, turn_number in turns:
            turn = threads[number].turns[turn_number]
            place = f"turn-{number}-{turn_number}"
            parts.append(self._update_transcript(place, turn.entries, turn.dropped_entries))
        return parts

    async def _render_events(self, is_first: bool) -> list[str]:
        """Return the new events: those after the page first, since the page may have some of them already."""
        rows = await self._read_new_events()
        self._tail |= rows
        removed: list[int] = []
        if len(self._tail) > MAX_TAIL_EVENTS:
            removed = list(self._tail)[: len(self._tail) - MAX_TAIL_EVENTS + DROPPED_TAIL_EVENTS]
        for seq in removed:
            del self._tail[seq]
        self._left_out_events += len(removed)
        if is_first:
            return [self._render_tail()]
        parts = [make_partial(f"#e{seq}", "", "delete") for seq in removed if seq not in rows]
        if removed:
            parts.append(make_partial("#event-gap", self._render_gap()))
        new = "".join(html for seq, html in rows.items() if seq in self._tail)
        return [*parts, make_partial("#event-tail", new, "beforeend")] if new else parts

    async def _read_new_events(self) -> dict[int, str]:
        """Return the rows of the events that the pages do not have; of very many, only the newest."""
        query, newest_seq = self._event_query, self._run.last_seq - MAX_TAIL_EVENTS
        if not query.filters and newest_seq > self._shown_events:
            self._left_out_events += newest_seq - self._shown_events
            self._shown_events = newest_seq
        rows: dict[int, str] = {}
        is_more = True
        while is_more:
            new = query._replace(after=self._shown_events, whole=0)
            found = await new.find_events(self._visit, self._run.run_id, MAX_TAIL_EVENTS)
            self._shown_events = found.next or max(found.last_seq, self._shown_events)
            is_more = found.more
            for view in found.events:
                html = self._visit.render("parts/event_row.html", view=view, run=self._run)
                rows[view.event.seq] = html
        return rows

    def _render_tail(self) -> str:
        return make_partial("#event-tail", self._render_gap() + "".join(self._tail.values()), "innerHTML")

    def _render_gap(self) -> str:
        return self._visit.render(
            "parts/event_gap.html",
            left_out=self._left_out_events,
            run=self._run,
            after=read_number(self._visit.query.get("shown", "")),
            filters=self._event_query.filters,
        )


def make_fragment(target: str, html: str) -> str:
    """Return what replaces an element; a script is not morphed, because its text would not be read again."""
    return make_partial(target, html, "outerHTML" if html.startswith("<script") else "outerMorph")
