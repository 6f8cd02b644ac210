"""A run that is followed: its events and those of its child runs, each applied once to what displays them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from datetime import datetime
from typing import Any, Protocol

from nerve.api.errors import ApiError
from nerve.client import Client
from nerve.core.events import STEP_END_EVENTS, STEP_START_EVENTS, WorkflowEvent, WorkflowEventType
from nerve.journal.paths import is_within_step
from nerve.lazy_dataclass import dataclass
from nerve.ui.conversation import AgentThread, Conversation
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.step_detail import StepDetail
from nerve.ui.timeline import WHOLE_RUN, Timeline, TimelineLayout, TimeSpan

EVENTS_PER_LOOP_TURN = 500
EVENTS_PER_REQUEST = 1000
SHARED_LAYOUT_S = 0.5
"""Seconds for which the layout of a timeline is used again while nothing happens."""
MAX_SHARED_LAYOUTS = 8
AGENT_EVENTS = frozenset({WorkflowEventType.AGENT_THREAD, WorkflowEventType.TOOL_CALL})
"""Events that only a step of an agent has."""


class EventReducer(Protocol):
    """What is derived from the events of a run and its child runs."""

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        """Add the next event of a run; `prefix` is the path of the call that started it, or empty."""


@dataclass(slots=True)
class ReadPosition:
    """How far the events of a run were read."""

    run_id: str
    after: int = 0


class FollowedRun:
    """Applies the events of a run and of the child runs that it called to reducers.

    Several pages can share one: each event is read and applied once.
    """

    def __init__(self, run_id: str, *reducers: EventReducer) -> None:
        self.run_id = run_id
        self._reducers = reducers
        self._positions = {"": ReadPosition(run_id)}
        """By the path of the call that started the run."""
        self.applied_events = 0
        self.is_complete = False
        """Whether all events were applied that were recorded when the run was read last."""
        self._lock = asyncio.Lock()

    @property
    def run_ids(self) -> set[str]:
        """The run and its child runs as far as they are known."""
        return {position.run_id for position in self._positions.values()}

    async def catch_up(
        self, client: Client, run_ids: Collection[str] | None = None, max_events: int | None = None
    ) -> None:
        """Apply the events that were recorded since the last time, of all runs or of these.

        With `max_events`, apply at most that many; `is_complete` tells whether these were all.
        """
        async with self._lock:
            last = None if max_events is None else self.applied_events + max_events
            waiting = [
                prefix
                for prefix, position in self._positions.items()
                if run_ids is None or position.run_id in run_ids
            ]
            while waiting and self.applied_events != last:
                prefix = waiting.pop(0)
                try:
                    waiting += await self._read(client, prefix, self._positions[prefix], last)
                except ApiError as error:
                    # A child run that was deleted, or does not exist yet.
                    if error.code != "not_found" or not prefix:
                        raise
            self.is_complete = self.applied_events != last

    async def _read(self, client: Client, prefix: str, position: ReadPosition, last: int | None) -> list[str]:
        """Apply the new events of one run; return the prefixes of the child runs that it has called."""
        called: dict[str, None] = {}
        async with contextlib.aclosing(client.history(position.run_id, position.after)) as history:
            async for response in history:
                event = to_workflow_event(response)
                position.after = event.seq
                self.applied_events += 1
                for reducer in self._reducers:
                    reducer.apply_event(prefix, event)
                child = event.data.get("child") if event.event_type in STEP_START_EVENTS else None
                if isinstance(child, str):
                    called[self._add_child(prefix + event.path, child)] = None
                if self.applied_events == last:
                    break
                if event.seq % EVENTS_PER_LOOP_TURN == 0:
                    await asyncio.sleep(0)
        return list(called)

    def _add_child(self, prefix: str, run_id: str) -> str:
        known = self._positions.get(prefix)
        if known is None or known.run_id != run_id:
            # Another attempt at a child run replaces the previous one and its own child runs.
            for inner in [each for each in self._positions if each.startswith(f"{prefix}/")]:
                del self._positions[inner]
            self._positions[prefix] = ReadPosition(run_id)
        return prefix


@dataclass(slots=True)
class StepEvents:
    """Where the events of a step begin in the journal of its run, and how many there are."""

    first: int
    count: int = 0


class RunProfile:
    """What a run was started with, and which agents work for it now."""

    def __init__(self) -> None:
        self.limits: dict[str, Any] = {}
        """The limits of the run, as they were raised last."""
        self.forked_from: dict[str, Any] = {}
        """Of a fork: the `run`, and the step `at` which it was forked."""
        self.caller_run: str | None = None
        """The run that has started a detached run."""
        self.run_events: dict[str, list[WorkflowEvent]] = {}
        """The start, the end and the changes of state of each run, by its id."""
        self._agents: dict[tuple[str, str], tuple[str, str]] = {}
        self._counts: dict[str, dict[str, StepEvents]] = {}
        """The events of each step, by the id of its run and its path."""

    @property
    def agents(self) -> list[tuple[str, str]]:
        """The run and the path of each step that an agent executes now."""
        return list(self._agents.values())

    def events_within(self, run_id: str, path: str) -> StepEvents:
        """Return how many events there are of a step and of what is inside it."""
        steps = self._counts.get(run_id, {}).items()
        found = [events for step, events in steps if is_within_step(step, path)]
        return StepEvents(min((each.first for each in found), default=0), sum(each.count for each in found))

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        type, data, key = event.event_type, event.data, (prefix, event.path)
        if event.path:
            steps = self._counts.setdefault(event.run_id, {})
            if (step := steps.get(event.path)) is None:
                step = steps[event.path] = StepEvents(event.seq)
            step.count += 1
        if type in AGENT_EVENTS or (type == WorkflowEventType.OUTPUT_CHUNK and is_agent_output(data)):
            self._agents[key] = event.run_id, event.path
        elif type in STEP_END_EVENTS:
            self._agents.pop(key, None)
        elif not event.path and type.startswith("workflow_"):
            self.run_events.setdefault(event.run_id, []).append(event)
            if prefix:
                return
            if type == WorkflowEventType.STARTED:
                self.forked_from = dict(data.get("forked_from") or {})
                self.caller_run = (data.get("started_by") or {}).get("run")
            raised = data.get("limits") or {}
            self.limits |= {name: value for name, value in raised.items() if not name.startswith("/")}


def is_agent_output(data: dict[str, Any]) -> bool:
    return data.get("stream") in ("assistant", "partial", "thought")


class RunPicture:
    """The timeline and the profile of a run, which a page shows."""

    def __init__(self, run_id: str) -> None:
        self.timeline, self.profile = Timeline(), RunProfile()
        self.followed = FollowedRun(run_id, self.timeline, self.profile)
        self._layouts: dict[Any, tuple[int, datetime, TimelineLayout]] = {}

    async def catch_up(self, client: Client, max_events: int | None = None) -> None:
        await self.followed.catch_up(client, max_events=max_events)

    @property
    def is_complete(self) -> bool:
        """Whether it shows all events; those of a long run are read in parts."""
        return self.followed.is_complete

    def has_step(self, full_path: str) -> bool:
        run_id, path = self.find_step(full_path)
        return self.profile.events_within(run_id, path).count > 0

    def layout(
        self,
        now: datetime,
        expanded: tuple[str, ...] = (),
        collapsed: tuple[str, ...] = (),
        span: TimeSpan = WHOLE_RUN,
    ) -> TimelineLayout:
        """Return the rows of the timeline; pages that ask at about the same time share them."""
        version, shown = self.followed.applied_events, (expanded, collapsed, span)
        known = self._layouts.get(shown)
        if known is not None and known[0] == version:
            _, made_at, layout = known
            if not layout.is_running or (now - made_at).total_seconds() < SHARED_LAYOUT_S:
                return layout
        if len(self._layouts) >= MAX_SHARED_LAYOUTS:
            self._layouts.clear()
        layout = self.timeline.layout(now, expanded, collapsed, span)
        self._layouts[shown] = version, now, layout
        return layout

    def find_step(self, full_path: str) -> tuple[str, str]:
        """Return the run and the path in it of a step; the full path goes through the calls of child runs."""
        branches = self.timeline.tree.branches
        prefix = max((each for each in branches if full_path.startswith(f"{each}/")), key=len, default="")
        return branches[prefix].run_id, full_path[len(prefix) :]


class RunConversation:
    """What the agents of a run and of its child runs said, which a page shows."""

    def __init__(self, run_id: str) -> None:
        self._conversation = Conversation()
        self.followed = FollowedRun(run_id, self._conversation)

    @property
    def threads(self) -> list[AgentThread]:
        return self._conversation.threads

    @property
    def is_complete(self) -> bool:
        """Whether it has all events; those of a long run are read in parts."""
        return self.followed.is_complete


class FollowedStep:
    """The detail of a step, kept up to date with the picture of its run."""

    def __init__(self, run_id: str, path: str, *, whole: bool = False) -> None:
        self.detail = StepDetail(run_id, path)
        self._after = self._events_applied = self._run_events_applied = 0
        self._options = {"whole": True} if whole else {}

    async def catch_up(self, client: Client, picture: RunPicture) -> None:
        """Apply the events of the step that the picture has, and that were not applied yet."""
        run_id, path = self.detail.run_id, self.detail.path
        run_events = picture.profile.run_events.get(run_id, [])
        events = run_events[self._run_events_applied :]
        self._run_events_applied = len(run_events)
        known = picture.profile.events_within(run_id, path)
        self._after = max(self._after, known.first - 1)
        # No more than there are, because the search for another one would read the rest of the journal.
        while (missing := known.count - self._events_applied) > 0:
            limit = min(missing, EVENTS_PER_REQUEST)
            page = await client.events(run=run_id, after=self._after, path=path, limit=limit, **self._options)
            events += map(to_workflow_event, page.events)
            self._events_applied += len(page.events)
            if page.next is None and len(page.events) < limit:
                break
            self._after = page.events[-1].seq if len(page.events) == limit else page.next or self._after
        for event in sorted(events, key=lambda event: event.seq):
            self.detail.apply_event(event)
