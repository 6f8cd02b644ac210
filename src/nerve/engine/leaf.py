"""Leaves: what they see of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nerve.core.nodes.attempt import IdleClock, heard
from nerve.core.nodes.direct import DirectRuntime, Home
from nerve.core.runtime import Gate
from nerve.core.threads import Threads

if TYPE_CHECKING:
    from nerve.engine.drive import Drive


class LeafRuntime(DirectRuntime):
    """A leaf may emit, from any thread; what it executes itself is not recorded."""

    def __init__(
        self,
        path: str,
        forward: Callable[[str, str, dict[str, Any]], None],
        home: Home,
        drive: Drive,
        again: bool,
    ) -> None:
        super().__init__(None, home=home)
        self._path, self._forward, self._drive = path, forward, drive
        self.again = again

    @property
    def threads(self) -> Threads:
        return self._drive.threads

    def hear(self, clock: IdleClock) -> None:
        self._clocks[self._path] = clock

    def _emitted(self, place: str, type: str, data: dict[str, Any]) -> None:
        heard(self._clocks, place)
        self._forward(self._path, type, data)

    async def record(self, place: str, type: str, data: dict[str, Any]) -> None:
        heard(self._clocks, place)
        drive = self._drive
        await drive.journal.written_upto(drive.note(type, self._path, data, urgent=True))

    def recorded(self, type: str) -> dict[str, Any] | None:
        return self._drive.waits.recorded(self._path, type)

    async def ask(self, gate: Gate) -> Any:
        return await self._drive.waits.beside(gate)
