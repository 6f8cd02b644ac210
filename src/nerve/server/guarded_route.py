"""Routes with a required scope. All routes of the server are of this kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nerve.api.operations import Scope
from nerve.server.auth import require_scope

Endpoint = Callable[[Request], Awaitable[Response]]
Access = Scope | Literal["open"]


class GuardedRoute(NamedTuple):
    """A route: method, path, required scope and endpoint."""

    method: str
    path: str
    access: Access
    endpoint: Endpoint

    def to_starlette(self) -> Route:
        async def guarded(request: Request) -> Response:
            if self.access != "open":
                require_scope(request.scope["nerve.caller"], self.access)
            return await self.endpoint(request)

        return Route(self.path, guarded, methods=[self.method])
