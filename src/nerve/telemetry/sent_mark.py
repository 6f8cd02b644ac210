"""The time up to which the collector has all spans of a session, as a property of its store."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from nerve.errors import OwnershipLost, StoreError

if TYPE_CHECKING:
    from nerve.store.port import Store

log = logging.getLogger("nerve")

MARK_INTERVAL_S = 5.0
"""Seconds between two marks; each is a synced write."""


class SentMark:
    """Reads and writes the mark; writing blocks, for long if a database does not answer.

    A mark that cannot be written is logged: spans are sent again after a crash then. A process that has lost
    its session leaves the mark to the one that has taken over.
    """

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._name = store, f"telemetry_sent_until {session}"
        self._lock = threading.Lock()
        self._is_open, self._has_written = True, False
        self._next_at = 0.0

    def read(self) -> float | None:
        """Return the mark of an earlier process; None after a clean end, or without one."""
        text = self._store.read_property(self._name)
        return float(text) if text else None

    def write_first(self, opened_at: float) -> None:
        """Record that nothing was sent yet, unless a later mark was written meanwhile."""
        with self._lock:
            if not self._has_written:
                self._write(str(opened_at))

    def write_sometimes(self, until: float) -> None:
        """Record up to which time the collector has everything, if the last mark is some seconds old."""
        with self._lock:
            if time.monotonic() >= self._next_at:
                self._next_at = time.monotonic() + MARK_INTERVAL_S
                self._write(str(until))

    def clear(self) -> None:
        """Record that the collector has everything."""
        with self._lock:
            self._write("")

    def close(self) -> None:
        """Write nothing any more, because the store closes."""
        self._is_open = False

    def _write(self, text: str) -> None:
        if not self._is_open or not self._store.durable:
            return
        self._has_written = True
        try:
            self._store.write_property(self._name, text)
        except OwnershipLost as error:
            log.debug("which spans were sent is not recorded: %s", error)
        except StoreError as error:
            log.warning("could not record which spans were sent: %s", error)
