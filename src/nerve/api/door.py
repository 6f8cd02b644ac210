"""The door: a session behind every command and query."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from nerve.api import commands, queries
from nerve.api.callers import HERE, Caller
from nerve.api.errors import ApiError, told
from nerve.api.hub import Hub
from nerve.api.models import Told
from nerve.api.once import done_once
from nerve.api.operations import OPERATIONS
from nerve.api.reading import read
from nerve.errors import JournalBroken

if TYPE_CHECKING:
    from nerve.core.session import Session

log = logging.getLogger("nerve")


class Api:
    """Every operation as a method of its name: `await api.start(workflow="hello", input="you")`."""

    def __init__(self, session: Session, caller: Caller = HERE, hub: Hub | None = None) -> None:
        self.session, self.caller = session, caller
        self.hub = hub or Hub(session)

    def asked_by(self, caller: Caller) -> Api:
        """The same api for somebody else."""
        return Api(self.session, caller, self.hub)

    async def perform(self, name: str, given: dict[str, Any]) -> Told:
        """Do one operation; ApiError says why not."""
        operation = OPERATIONS.get(name)
        if operation is None:
            raise ApiError(
                "not_found", f"there is no operation '{name}'", f"There are: {', '.join(OPERATIONS)}."
            )
        asked = read(operation, given)
        asked._caller = self.caller
        function = getattr(commands if operation.changes else queries, name)
        try:
            result = await done_once(self.session, operation, asked, function)
        except Exception as error:
            seen = told(error)
            if seen.code == "internal" and not isinstance(error, JournalBroken):
                log.exception("%s failed", name)
            raise seen from error
        return result

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(f"the api has no operation '{name}'")

        async def operation(**given: Any) -> Told:
            return await self.perform(name, given)

        return operation
