"""What the store keeps of triggers: definitions from the API, pauses, positions, and versions of files.

The rows are beside the waits of runs, as those of queues are, and are written in the same group commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any

from nerve.core.json_codec import decode_json, encode_json
from nerve.engine.group_commit import CommitOutcome, GroupCommitter
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Append, Store, WaitRow

TRIGGER_KIND, FILE_KIND = "trigger", "trigger_file"
"""The kinds of the rows. In place of a run, they name the trigger."""
MAX_SKIPS = 50
"""The number of occurrences that were not started and are kept with their reasons."""


@dataclass(slots=True)
class Skip:
    """An occurrence that was not started, and why."""

    occurrence: str
    at: float
    """When that was decided."""
    reason: str
    is_final: bool = True
    """Whether it is not started either if the clock goes back."""


@dataclass(slots=True)
class TriggerState:
    """What is known of a trigger besides its definition."""

    definition: dict[str, Any] | None = None
    """The definition, if the API created it."""
    is_paused: bool = False
    paused_by: str = ""
    hash: str = ""
    """What the position belongs to; another schedule starts from now."""
    considered: float | None = None
    """The time up to which occurrences are decided."""
    floor: float = 0.0
    """The time before which no occurrence counts."""
    seen: float = 0.0
    """The latest time at which occurrences were decided."""
    queued: list[float] = field(default_factory=list)
    """Times that wait until the previous run has ended."""
    version: int | None = None
    """The version of the facts up to which they are decided."""
    open_since: float | None = None
    """When the oldest run was started that had not ended when runs were decided last."""
    skips: list[Skip] = field(default_factory=list)

    def add_skip(self, occurrence: str, at: float, reason: str, is_final: bool = True) -> None:
        """Record an occurrence that is not started; the latest ones are kept."""
        self.skips = [skip for skip in self.skips if skip.occurrence != occurrence][-MAX_SKIPS + 1 :]
        self.skips.append(Skip(occurrence, at, reason, is_final))

    def is_skipped(self, occurrence: str) -> bool:
        """Whether it was decided for good not to start an occurrence."""
        return any(skip.occurrence == occurrence and skip.is_final for skip in self.skips)

    def encode(self) -> str:
        return encode_json({name: value for name, value in asdict(self).items() if value not in (None, [])})

    @classmethod
    def decode(cls, text: str) -> TriggerState:
        data = decode_json(text)
        data["skips"] = [Skip(**skip) for skip in data.get("skips", [])]
        return cls(**data)


class TriggerStates:
    """The states of the triggers of a session, and the versions of the files that they have seen."""

    def __init__(self, store: Store, session: str, get_committer: Callable[[], GroupCommitter]) -> None:
        self._store, self._session, self._get_committer = store, session, get_committer
        self._states: dict[str, TriggerState] = {}
        self._files: dict[str, dict[str, str]] = {}
        self._pending_rows: list[WaitRow] = []
        self._durable: asyncio.Future[None] | None = None
        self._in_flight: asyncio.Future[None] | None = None
        self.load()

    def load(self) -> None:
        """Read everything again, because another process may have written it."""
        prefix = self._row_owner("")
        self._states = {
            wait.run.removeprefix(prefix): TriggerState.decode(wait.data or "{}")
            for wait in self._store.open_waits(self._session, TRIGGER_KIND)
        }
        self._files = {}
        for wait in self._store.open_waits(self._session, FILE_KIND):
            self._files.setdefault(wait.run.removeprefix(prefix), {})[wait.path] = decode_json(
                wait.data or '""'
            )

    def get(self, name: str) -> TriggerState:
        """Return the state of a trigger, which exists from the first write on."""
        return self._states.setdefault(name, TriggerState())

    @property
    def definitions(self) -> Mapping[str, dict[str, Any]]:
        """The definitions that the API created, by name."""
        return {
            name: state.definition for name, state in self._states.items() if state.definition is not None
        }

    def files(self, name: str) -> Mapping[str, str]:
        """Return the versions of the files that a trigger has seen."""
        return self._files.get(name, {})

    async def write(self, name: str, at: float, files: Mapping[str, str | None] | None = None) -> None:
        """Write the state of a trigger, with versions of files (None for a removed one), in one commit."""
        owner = self._row_owner(name)
        row = WaitRow(self._session, owner, "", TRIGGER_KIND, at, self.get(name).encode())
        known = self._files.setdefault(name, {}) if files else {}
        rows = [row]
        for path, version in (files or {}).items():
            if version is None:
                known.pop(path, None)
            else:
                known[path] = version
            data = None if version is None else encode_json(version)
            rows.append(WaitRow(self._session, owner, path, FILE_KIND, at, data))
        await self._write_rows(rows)

    async def remove(self, name: str) -> None:
        """Remove everything about a trigger."""
        owner = self._row_owner(name)
        paths = self._files.pop(name, {})
        self._states.pop(name, None)
        rows = [WaitRow(self._session, owner, path, FILE_KIND, 0.0, None) for path in paths]
        await self._write_rows([*rows, WaitRow(self._session, owner, "", TRIGGER_KIND, 0.0, None)])

    def _row_owner(self, name: str) -> str:
        return f"trigger {self._session}/{name}"

    # -- group commit --------------------------------------------------------------------------

    async def _write_rows(self, rows: list[WaitRow]) -> None:
        self._pending_rows += rows
        if self._durable is None:
            self._durable = asyncio.get_running_loop().create_future()
        durable = self._durable
        self._get_committer().flush_soon(self)
        await asyncio.shield(durable)

    def drain(self) -> Append | None:
        rows, self._pending_rows = self._pending_rows, []
        self._in_flight, self._durable = self._durable, None
        # The last row of a path counts; a store accepts each path once in a write.
        latest = {(row.run, row.path): row for row in rows}
        return Append("", 0, (), waits=list(latest.values())) if latest else None

    def on_commit(self, error: CommitOutcome) -> None:
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None or in_flight.done():
            return
        if error is None:
            in_flight.set_result(None)
        else:
            in_flight.set_exception(error)
            in_flight.exception()  # a waiter that was cancelled does not read it
