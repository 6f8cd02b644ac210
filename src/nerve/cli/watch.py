"""Watching a run to its end, or to where it stands: shown, and its gates answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nerve.cli.answers import Answers, name_of, names_of
from nerve.cli.asking import Nobody, ask, can_ask, show_gate
from nerve.cli.exits import code_of
from nerve.cli.follow import Following
from nerve.cli.rows import Rows
from nerve.cli.screen import say, screen_for
from nerve.core.session import Session
from nerve.core.workflow import GateInfo, WorkflowRun

if TYPE_CHECKING:
    from rich.console import Console

TICK = 0.08
"""Seconds between two looks at the journal."""
QUIET = 3
"""Looks without news after which a run that waits for somebody is left."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run was left."""

    run_id: str
    workflow: str
    state: str
    result: Any = None
    error: str | None = None
    gates: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, Any] | None = None
    waits: list[dict[str, Any]] = field(default_factory=list)
    """The signals and facts it waits for."""

    @property
    def code(self) -> int:
        return code_of(self.state)

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"run_id": self.run_id, "workflow": self.workflow, "state": self.state}
        if self.state == "completed":
            told["result"] = self.result
        if self.error is not None or self.held is not None:
            told["error"] = self.error if self.held is None else self.held["message"]
        told["gates"] = self.gates
        if self.waits:
            told["waits"] = self.waits
        return told


class Watch:
    """One run on one screen."""

    def __init__(
        self, console: Console, session: Session, run: WorkflowRun, answers: Answers, known: int = 0
    ) -> None:
        self.console, self.run, self.answers, self.known = console, run, answers, known
        self._session = session
        self.following = Following(session, run)
        self.rows = Rows()
        self.screen = screen_for(console)
        self.asks = can_ask(console)
        self._refused: dict[str, str] = {}

    async def to_end(self) -> Outcome:
        """Show the run until it ends, is held, or waits for what cannot be had here."""
        end = asyncio.ensure_future(self.run.wait())
        quiet = 0
        try:
            while not end.done() and quiet < QUIET:
                news = await self._follow()
                answered = await self._answer()
                quiet = quiet + 1 if self._left_alone() and not news and not answered else 0
                await asyncio.wait([end], timeout=TICK)
            await self._follow()
        finally:
            self.screen.rest()
            end.cancel()
            await asyncio.wait([end])
        if not end.cancelled():
            end.exception()
        return self.outcome()

    def outcome(self) -> Outcome:
        info = self.run.to_info()
        waits = [] if self.run.is_complete else self._awaited()
        return Outcome(
            info.run_id,
            info.workflow_id,
            info.state.value,
            info.result,
            info.error,
            [{**gate.to_dict(), "name": name_of(gate)} for gate in self.run.pending_gates],
            info.held,
            waits,
        )

    async def _follow(self) -> bool:
        """Take in and show what is new in the journals."""
        news = await self.following.news()
        for followed, event in news:
            self.rows.take(followed, event)
            if not followed.prefix and event.seq == self.known:
                self.rows.reuse()
        new = [event for followed, event in news if followed.prefix or event.seq > self.known]
        self.screen.show(self.rows.panel, new)
        return bool(news)

    def _left_alone(self) -> bool:
        """Whether nothing goes on that this process could wait for."""
        return self.following.stands and not (self.asks and self.run.pending_gates)

    async def _answer(self) -> bool:
        """Answer the gates that can be; whether one was."""
        for gate in self.run.pending_gates:
            if gate.gate_id in self._refused:
                continue
            text = self.answers.take(names_of(gate))
            if text is not None:
                return await self._give(gate, text)
            if self.asks:
                await self._ask(gate)
                return True
        return await self._signal()

    async def _signal(self) -> bool:
        """Send a signal that is waited for and that there is an answer for; whether one was sent."""
        for wait in self._awaited():
            text = self.answers.take([wait["signal"]]) if "signal" in wait else None
            if text is not None:
                await self._session.signal(wait["signal"], wait.get("key"), text)
                return True
        return False

    def _awaited(self) -> list[dict[str, Any]]:
        waits = [wait.data for wait in self.following.waits if wait.event_type == "signal_waiting"]
        return [each for data in waits for each in awaited(data)]

    async def _give(self, gate: GateInfo, text: str) -> bool:
        try:
            await self.run.answer(text, gate.gate_id, by="--answer")
        except (ValueError, RuntimeError) as error:
            self._refused[gate.gate_id] = str(error)
            self.screen.rest()
            say(self.console, f"--answer {name_of(gate)}={text}: {error}.")
        return True

    async def _ask(self, gate: GateInfo) -> None:
        self.screen.rest()
        show_gate(self.console, gate, name_of(gate))
        refused = ""
        while self._is_open(gate):
            try:
                answer = await ask(self.console, gate, refused, lambda: self._is_open(gate))
            except Nobody:
                self.asks = False
                return
            if answer is None:
                say(self.console, "\nThe gate is settled: its time is up, or the run has ended.")
                return
            try:
                await self.run.answer(answer, gate.gate_id, by="terminal")
            except (ValueError, RuntimeError) as error:
                refused = f"{error}."
            else:
                return

    def _is_open(self, gate: GateInfo) -> bool:
        return any(other.gate_id == gate.gate_id for other in self.run.pending_gates)


def awaited(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a wait would be over with: signals by their names, and other facts by their patterns."""
    if "patterns" not in data:
        yield named_signal(data["label"], data.get("key"))
        return
    for pattern in data["patterns"].values():
        match pattern:
            case ["signal", str(label), dict(named)]:
                yield named_signal(label, named.get("key"))
            case _:
                yield {"fact": pattern}


def named_signal(label: str, key: Any) -> dict[str, Any]:
    return {"signal": label} | ({"key": key} if key is not None else {})
