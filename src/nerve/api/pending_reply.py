"""What is said to a command with a key, kept so that it can be said again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nerve.store.port import ReplyRow

if TYPE_CHECKING:
    from nerve.api.models import ApiResponse


class PendingReply:
    """The reply that a command will have; one that is written with what the command does is `kept`."""

    def __init__(self, session: str, key: str, fingerprint: str) -> None:
        self.session, self.key, self.fingerprint = session, key, fingerprint
        self.is_stored = False

    def started_row(self) -> ReplyRow:
        """That it is done, written with what it does; what is said of it is written later."""
        return ReplyRow(self.session, self.key, time.time(), self.fingerprint, "")

    def completed_row(self, response: ApiResponse) -> ReplyRow:
        self.is_stored = True
        return ReplyRow(self.session, self.key, time.time(), self.fingerprint, response.model_dump_json())
