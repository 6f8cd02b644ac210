"""The reply to a command with an idempotency key, stored so that it can be repeated."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nerve.store.port import ReplyRow

if TYPE_CHECKING:
    from nerve.api.models import ApiResponse


class PendingReply:
    """The future reply to a command; `is_stored` if it is written together with the command's effect."""

    def __init__(self, session: str, key: str, fingerprint: str) -> None:
        self.session, self.key, self.fingerprint = session, key, fingerprint
        self.is_stored = False

    def started_row(self) -> ReplyRow:
        """Return a row without the reply, to write atomically with the effect; the reply follows later."""
        return ReplyRow(self.session, self.key, time.time(), self.fingerprint, "")

    def completed_row(self, response: ApiResponse) -> ReplyRow:
        self.is_stored = True
        return ReplyRow(self.session, self.key, time.time(), self.fingerprint, response.model_dump_json())
