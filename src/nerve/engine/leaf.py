"""Leaves: what they see of the engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nerve.core.nodes.attempt import Clock, above, heard, stopped
from nerve.core.nodes.direct import DirectRuntime
from nerve.core.runtime import Call, Gate
from nerve.core.threads import Threads

if TYPE_CHECKING:
    from nerve.engine.drive import Drive


class LeafRuntime(DirectRuntime):
    """A leaf may emit, from any thread; what it executes itself is not recorded."""

    def __init__(self, call: Call, drive: Drive, again: bool) -> None:
        context = call.context
        assert context is not None
        super().__init__(context.event_sink, context.workflow_id, context.run_id, drive.calls.home)
        self._call, self.path, self._drive, self.again = call, call.path, drive, again

    @property
    def threads(self) -> Threads:
        return self._drive.threads

    def hear(self, clock: Clock) -> None:
        self._clocks[self.path] = clock

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        if threading.get_ident() != self._home[0]:
            self._drive.text_of(type, data)  # whoever emits what cannot be written is told, and not the loop
        super().emit(place, type, data)

    def _emitted(self, place: str, type: str, data: dict[str, Any]) -> None:
        self._tell(place, type, data)
        self._drive.calls.told_by_leaf(self.path, type, data)

    async def record(self, place: str, type: str, data: dict[str, Any]) -> None:
        heard(self._clocks, place)
        drive = self._drive
        drive.waits.tell_stopped()
        await drive.journal.written_upto(drive.note(type, self.path, data, urgent=True))

    def recorded(self, type: str) -> dict[str, Any] | None:
        return self._drive.waits.recorded(self.path, type)

    def said(self) -> list[str]:
        return self._drive.waits.words(self.path)

    async def afford(self, used: Mapping[str, Any]) -> None:
        limits, purses = self._call.policy.limits, self._drive.purses
        with stopped(above(self._clocks, self.path)):
            await self._drive.calls.afford(
                self.path, lambda promised: purses.short_of_a_turn(self.path, limits, used, promised)
            )

    def begin_turn(self, used: Mapping[str, Any]) -> bool:
        return self._drive.purses.begin_turn(self.path, self._call.policy.limits, used)

    def end_turn(self, used: Mapping[str, Any]) -> None:
        self._drive.purses.end_turn(self.path, used)

    @contextmanager
    def unhurried(self, place: str) -> Iterator[None]:
        with stopped(above(self._clocks, place)), self._drive.calls.unhurried(place):
            yield

    async def ask(self, gate: Gate) -> Any:
        return await self._drive.waits.beside(gate)
