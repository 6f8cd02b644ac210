"""What is said to a command with a key, kept so that it can be said again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nerve.store.port import ReplyRow

if TYPE_CHECKING:
    from nerve.api.models import Told


class Reply:
    """The reply that a command will have; one that is written with what the command does is `kept`."""

    def __init__(self, session: str, key: str, asked: str) -> None:
        self.session, self.key, self.asked = session, key, asked
        self.kept = False

    def begun(self) -> ReplyRow:
        """That it is done, written with what it does; what is said of it is written later."""
        return ReplyRow(self.session, self.key, time.time(), self.asked, "")

    def row(self, told: Told) -> ReplyRow:
        self.kept = True
        return ReplyRow(self.session, self.key, time.time(), self.asked, told.model_dump_json())
