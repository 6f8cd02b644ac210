"""A run shown as it goes on, wherever it is driven: its tree drawn, its gates answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from nerve.api import ApiError
from nerve.api.models import EventTold, GateTold, RunTold
from nerve.cli.answers import Answers, name_of, names_of
from nerve.cli.asking import Nobody, ask, can_ask, forget_typed, show_gate
from nerve.cli.common import Door, console, sentence
from nerve.cli.exits import OF_STATES
from nerve.cli.outcome import PARKED, Outcome, awaited
from nerve.cli.screen import say, screen_for
from nerve.commander.core.tree import Tree, event_of
from nerve.commander.core.waits import STARTS
from nerve.commander.drawing import panel
from nerve.core.workflow import WorkflowEvent

TICK = 0.08
"""Seconds between two looks at what is new."""
QUIET = 3
"""Looks without news after which a run that waits for somebody is left."""


class Story:
    """One run on one screen. `known` events of it are old."""

    def __init__(self, door: Door, run_id: str, answers: Answers | None = None, known: int = 0) -> None:
        self.door, self.run_id, self.answers, self.known = door, run_id, answers or Answers(), known
        door.shows, door.seen = run_id, lambda: self.left().to_dict()
        self.console = console(door.common)
        self.screen = screen_for(self.console)
        self.tree = Tree(notes_progress=True)
        self.asks = can_ask(self.console) and not (door.common.quiet or door.common.json)
        self._news: list[WorkflowEvent] = []
        self._watching: list[asyncio.Task[None]] = []
        self._refused: set[str] = set()

    async def told(self, to_end: bool = False) -> Outcome:
        """Show the run until it ends or stands still; waiting for somebody is no end if `to_end`."""
        self._watch(self.run_id, "")
        quiet, main = 0, self._watching[0]
        try:
            while not main.done() and quiet < QUIET:
                await asyncio.wait([main], timeout=TICK)
                self._check()
                news, answered = self._show(), await self._answer()
                quiet = quiet + 1 if self._left_alone(to_end) and not news and not answered else 0
            self._check()
            self._show()
        finally:
            self.screen.rest()
            await self._close()
        return await self.outcome()

    async def as_it_stands(self, past: Iterable[EventTold]) -> Outcome:
        """Show what has happened, and nothing more."""
        for told in past:
            self.tree.take("", event_of(told))
            self._news.append(event_of(told))
        self._show()
        self.screen.rest()
        outcome = await self.outcome()
        return replace(outcome, state=undriven(outcome))

    def _left_alone(self, to_end: bool) -> bool:
        """Whether nothing goes on that could be waited for."""
        held = any(each.view.state in ("held", "paused") for each in self.tree.branches.values())
        asked = self.asks and self.tree.gates
        return held or (self.tree.stands and not to_end and not asked)

    async def outcome(self) -> Outcome:
        """How the run was left; where the server is gone by now, as it was seen to end."""
        try:
            return outcome_of(await self.door.client.run(run=self.run_id), self.tree)
        except ApiError as error:
            seen = self.seen()
            if error.code != "busy" or seen.state not in OF_STATES:
                raise
            return seen

    def seen(self) -> Outcome:
        """How the run was when it was last looked at."""
        root = self.tree.branches.get("")
        if root is None:
            return Outcome(self.run_id, "", "running")
        view = root.view
        gates, waits = gates_told(self.tree.gates), waits_told(self.tree)
        return Outcome(self.run_id, view.workflow_id, view.state, view.result, view.error, gates, None, waits)

    def left(self) -> Outcome:
        """How the run is left by somebody who is interrupted: where no server drives it, nobody does."""
        seen = self.seen()
        return seen if self.door.session is None else replace(seen, state=undriven(seen))

    async def _close(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    def _check(self) -> None:
        """Raise what made a stream fail."""
        for task in self._watching:
            if task.done():
                task.result()

    def _watch(self, run_id: str, prefix: str) -> None:
        self._watching.append(asyncio.create_task(self._take(run_id, prefix)))

    async def _take(self, run_id: str, prefix: str) -> None:
        if prefix:
            await self._begun(run_id)
        async with contextlib.aclosing(self.door.client.watch(run_id)) as events:
            async for told in events:
                if told.is_of_child:
                    continue  # the child run is watched itself
                event = event_of(told)
                self.tree.take(prefix, event)
                if prefix or event.seq > self.known:
                    self._news.append(event)
                if event.event_type in STARTS and (child := event.data.get("child")) is not None:
                    self._watch(child, prefix + event.path)

    async def _begun(self, child: str) -> None:
        """Return when a child run is there; its parent says that it calls it before it is."""
        while True:
            try:
                await self.door.client.run(run=child)
            except ApiError as error:
                if error.code != "not_found":
                    raise
                await asyncio.sleep(TICK)
            else:
                return

    def _show(self) -> bool:
        """Show what is new; whether anything is."""
        news, self._news = self._news, []
        if self.tree.branches and not self.door.common.quiet:
            self.screen.show(partial(panel, self.tree), news)
        return bool(news)

    # -- gates ---------------------------------------------------------------------------------

    async def _answer(self) -> bool:
        """Answer a gate or a signal that can be; whether one was."""
        for gate in self.tree.gates:
            if gate.gate_id in self._refused:
                continue
            if (text := self.answers.take(names_of(gate))) is not None:
                await self._give(gate, text)
                return True
            if self.asks:
                await self._ask(gate)
                return True
        return await self._signal()

    async def _signal(self) -> bool:
        for data in self.tree.waits:
            for wait in awaited(data):
                text = self.answers.take([wait["signal"]]) if "signal" in wait else None
                if text is not None:
                    await self.door.client.signal(label=wait["signal"], key=wait.get("key"), value=text)
                    return True
        return False

    async def _give(self, gate: GateTold, text: str) -> str:
        """Answer a gate; why not, if it does not take that."""
        try:
            await self.door.client.answer(run=gate.run_id, gate=gate.gate_id, answer=text)
        except ApiError as error:
            self._refused.add(gate.gate_id)
            self.screen.rest()
            say(self.console, f"{name_of(gate)}={text}: {sentence(error)}")
            return sentence(error)
        await self._settled(gate)
        return ""

    async def _settled(self, gate: GateTold) -> None:
        """Return when the answer has been seen, so that the gate is not asked again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                while self._is_open(gate):  # noqa: ASYNC110 - what is new comes from several streams
                    await asyncio.sleep(0.01)

    async def _ask(self, gate: GateTold) -> None:
        self.screen.rest()
        forget_typed()
        show_gate(self.console, gate, name_of(gate))
        refused = ""
        while self._is_open(gate):
            try:
                answer = await ask(self.console, gate, refused, lambda: self._is_open(gate))
            except Nobody:
                self.asks = False
                return
            if answer is None:
                say(self.console, "\nThe gate is settled: somebody answered it, or its time is up.")
                return
            try:
                await self.door.client.answer(run=gate.run_id, gate=gate.gate_id, answer=answer)
            except ApiError as error:
                refused = sentence(error)
            else:
                await self._settled(gate)

    def _is_open(self, gate: GateTold) -> bool:
        return any(gate.gate_id == other.gate_id for other in self.tree.gates)


def undriven(run: Outcome | RunTold) -> str:
    """The state of a run that nobody drives: what was running is parked, or waits in one it has called."""
    if run.state != "running":
        return run.state
    return "waiting" if run.gates else PARKED


def outcome_of(run: Any, tree: Tree | None = None) -> Outcome:
    """How a run was left, as `nerve run` tells it."""
    over = run.state in ("completed", "failed", "cancelled")
    gates = [] if over else gates_told(tree.gates if tree is not None else run.gates)
    waits = [] if over or tree is None else waits_told(tree)
    return Outcome(run.run_id, run.workflow, run.state, run.result, run.error, gates, run.held, waits)


def gates_told(gates: Iterable[GateTold]) -> list[dict[str, Any]]:
    told = [{**gate.model_dump(mode="json", exclude_none=True), "name": name_of(gate)} for gate in gates]
    return [{"choices": None} | gate for gate in told]


def waits_told(tree: Tree) -> list[dict[str, Any]]:
    return [each for data in tree.waits for each in awaited(data)]
