"""The API: executes every command and query on a session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from nerve.api import commands, queries
from nerve.api.artifacts import OpenArtifact, open_artifact
from nerve.api.callers import LOCAL_CALLER, Caller
from nerve.api.errors import ApiError, to_api_error
from nerve.api.event_hub import EventHub
from nerve.api.idempotency import execute_once
from nerve.api.lookup import find_run_row
from nerve.api.models import ApiRequest, ApiResponse, ReloadResponse, RunResponse, StartRequest
from nerve.api.operations import OPERATIONS, Operation
from nerve.api.permissions import check_permission, require_scope
from nerve.api.request_parsing import parse_request
from nerve.errors import StoreError
from nerve.session import Session

if TYPE_CHECKING:
    from nerve.api.shared_session import SharedEventHub, SharedSession

T = TypeVar("T")
log = logging.getLogger("nerve")


class Api:
    """Every operation as a method with its name: `await api.start(workflow="hello", input="you")`."""

    def __init__(
        self,
        session: Session | SharedSession,
        caller: Caller = LOCAL_CALLER,
        hub: EventHub | SharedEventHub | None = None,
    ) -> None:
        self.shared: SharedSession | None = None if isinstance(session, Session) else session
        self._session, self.caller = session, caller
        self.hub = hub or (EventHub(session) if isinstance(session, Session) else session.hub)

    @property
    def session(self) -> Session:
        """The session of this process."""
        return self._session if isinstance(self._session, Session) else self._session.session

    @property
    def executes_runs(self) -> bool:
        """Whether this process executes the runs of the session."""
        return self.shared is None or self.shared.is_owner

    def as_caller(self, caller: Caller) -> Api:
        """Return the same API for another caller."""
        return Api(self._session, caller, self.hub)

    async def perform(self, name: str, arguments: dict[str, Any]) -> ApiResponse:
        """Execute one operation; raise ApiError if it fails."""
        operation = OPERATIONS.get(name)
        if operation is None:
            raise ApiError("not_found", f"Unknown operation '{name}'", f"Available: {', '.join(OPERATIONS)}.")
        check_permission(self.caller, operation, arguments)
        request = parse_request(operation, arguments)
        request.set_caller(self.caller)
        try:
            if self.shared is not None:
                return await self.shared.perform(operation, request)
            return await execute_operation(self.session, operation, request)
        except Exception as error:
            api_error = to_api_error(error)
            if api_error.code == "internal" and not isinstance(error, StoreError):  # its message says it all
                log.exception("%s failed", name)
            raise api_error from error

    async def read(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Return the result of a coroutine that only reads, with a session to read from."""
        if self.shared is not None:
            return await self.shared.read(work)
        return await work(self.session)

    async def measure(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Return the result of a coroutine with the session that executes the runs here, or that reads."""
        return await (work(self.session) if self.shared is None else self.shared.measure(work))

    async def reload_definitions(self) -> ReloadResponse:
        """Load the definitions of the project again, in this process."""
        reply: Any = await (self.perform("reload", {}) if self.shared is None else self.shared.reload())
        return reply  # type: ignore[no-any-return]

    async def open_artifact(self, run: str, name: str) -> OpenArtifact:
        """Open a file that a step of a run has made; raise ApiError if there is none with that name."""
        require_scope(self.caller, "read")

        async def find_run_id(session: Session) -> str:
            return find_run_row(session, run).run

        try:
            run_id = await self.read(find_run_id)
            return await asyncio.to_thread(open_artifact, self.session.project, run_id, name)
        except Exception as error:
            raise to_api_error(error) from error

    def __getattr__(self, name: str) -> Any:
        if name not in OPERATIONS:
            raise AttributeError(f"Api has no operation '{name}'")

        async def operation(**arguments: Any) -> ApiResponse:
            return await self.perform(name, arguments)

        return operation


async def execute_operation(session: Session, operation: Operation, request: ApiRequest) -> ApiResponse:
    """Execute one operation that the caller may execute, on a session of this process."""
    function = getattr(commands if operation.is_command else queries, operation.name)
    result = await execute_once(session, operation, request, function)
    if isinstance(result, RunResponse) and isinstance(request, StartRequest) and request.wait:
        # After the command: a repeated start with the same key must not wait for this one.
        result = await commands.run_when_idle(session, result)
    return result
