"""The API: executes every command and query on a session."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from nerve.api import commands, queries
from nerve.api.artifacts import OpenArtifact, open_artifact
from nerve.api.callers import LOCAL_CALLER, Caller
from nerve.api.errors import ApiError, to_api_error
from nerve.api.event_hub import EventHub
from nerve.api.idempotency import execute_once
from nerve.api.lookup import find_run_row
from nerve.api.models import ApiResponse, RunResponse, StartRequest
from nerve.api.operations import OPERATIONS
from nerve.api.permissions import check_permission, require_scope
from nerve.api.request_parsing import parse_request
from nerve.errors import JournalBroken

if TYPE_CHECKING:
    from nerve.session import Session

log = logging.getLogger("nerve")


class Api:
    """Every operation as a method with its name: `await api.start(workflow="hello", input="you")`."""

    def __init__(self, session: Session, caller: Caller = LOCAL_CALLER, hub: EventHub | None = None) -> None:
        self.session, self.caller = session, caller
        self.hub = hub or EventHub(session)

    def as_caller(self, caller: Caller) -> Api:
        """Return the same API for another caller."""
        return Api(self.session, caller, self.hub)

    async def perform(self, name: str, arguments: dict[str, Any]) -> ApiResponse:
        """Execute one operation; raise ApiError if it fails."""
        operation = OPERATIONS.get(name)
        if operation is None:
            raise ApiError("not_found", f"Unknown operation '{name}'", f"Available: {', '.join(OPERATIONS)}.")
        check_permission(self.caller, operation, arguments)
        request = parse_request(operation, arguments)
        request._caller = self.caller
        function = getattr(commands if operation.is_command else queries, name)
        try:
            result = await execute_once(self.session, operation, request, function)
            if isinstance(result, RunResponse) and isinstance(request, StartRequest) and request.wait:
                # After the command: a repeated start with the same key must not wait for this one.
                result = await commands.run_when_idle(self.session, result)
        except Exception as error:
            api_error = to_api_error(error)
            if api_error.code == "internal" and not isinstance(error, JournalBroken):
                log.exception("%s failed", name)
            raise api_error from error
        return result

    async def open_artifact(self, run: str, name: str) -> OpenArtifact:
        """Open a file that a step of a run has made; raise ApiError if there is none with that name."""
        require_scope(self.caller, "read")
        try:
            row = find_run_row(self.session, run)
            return await asyncio.to_thread(open_artifact, self.session.project, row.run, name)
        except Exception as error:
            raise to_api_error(error) from error

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(f"Api has no operation '{name}'")

        async def operation(**arguments: Any) -> ApiResponse:
            return await self.perform(name, arguments)

        return operation
