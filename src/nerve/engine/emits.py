"""Emits: what a body tells watchers, and the clock and the chance it may ask."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from nerve.core.event import is_reserved
from nerve.core.values import AROUND, encode
from nerve.core.workflow.replay import Record

if TYPE_CHECKING:
    from nerve.engine.drive import Drive

ITERATIONS = ("loop_iteration", "state_entered")
"""What counts as going round once more."""


class Emits:
    """Counted like calls, by place and type; one that is recorded is neither written nor shown again."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._counts: dict[tuple[str, str], int] = {}
        self._unwritten: list[tuple[str, str, str]] = []
        self._clock_read = 0

    @property
    def clock_unwritten(self) -> bool:
        """Whether the body knows a time that is not on disk: after a crash it would get another one."""
        return self._clock_read > self._drive.journal.committed

    def emit(self, place: str, type: str, data: dict[str, Any]) -> None:
        drive = self._drive
        if drive.left:
            return
        if is_reserved(type):
            raise ValueError(f"'{type}' is written by the engine only; emit another name")
        text = encode(data, deep=AROUND)
        if self._recorded(place, type) is not None:
            drive.delivery.pump()
            return
        self._write_or_keep(type, place, text)
        if type in ITERATIONS:
            drive.usage.iterations += 1
            drive.check_limits(place)

    def now(self, place: str) -> datetime:
        if self._drive.left:
            return datetime.now(UTC)
        record = self._recorded(place, "clock_read")
        if record is not None:
            self._drive.delivery.pump()
            return datetime.fromisoformat(record.data["now"])
        now = datetime.now(UTC)
        self._write_or_keep("clock_read", place, encode({"now": now.isoformat()}))
        return now

    def random(self, place: str) -> float:
        return self._chance(place).random()

    def new_id(self, place: str) -> str:
        from uuid import UUID  # it takes milliseconds to import, and few need it

        return str(UUID(int=self._chance(place).getrandbits(128), version=4))

    def _chance(self, place: str) -> Random:
        return Random(f"{self._drive.start.get('seed')}{place}")

    def _recorded(self, place: str, type: str) -> Record | None:
        count = self._counts[(place, type)] = self._counts.get((place, type), 0) + 1
        delivery = self._drive.delivery
        source = delivery.replay or delivery.offers
        return source.made((place, type, count)) if source is not None else None

    def _write_or_keep(self, type: str, place: str, text: str) -> None:
        """Nothing new is written before the replay is known to match."""
        if self._drive.delivery.replay is not None:
            self._unwritten.append((type, place, text))
        else:
            self._write(type, place, text)

    def write_kept(self) -> None:
        """The replay is over: what was emitted meanwhile is new."""
        for type, place, text in self._unwritten:
            self._write(type, place, text)
        self._unwritten.clear()

    def _write(self, type: str, place: str, text: str) -> None:
        seq = self._drive.journal.note(type, place, text, urgent=False)
        if type == "clock_read":
            self._clock_read = seq
