"""The caller of a request, derived from its connection and token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.api.callers import Caller, current_user_name
from nerve.api.operations import Scope
from nerve.server.auth import TOKEN_SUBPROTOCOL_PREFIX, header_values, read_session_cookie

CLIENT_HEADER = b"x-nerve-client"
SCREEN_NAMES = ("cli", "commander")
"""Client names that a Unix socket client of the same user may use."""


def caller_of_request(scope: Mapping[str, Any], level: Scope | None = None) -> Caller:
    """Return the caller of a request or WebSocket."""
    token_scope: Scope = level or scope["nerve.caller"]
    server = scope.get("server")
    if not server or server[1] is None:
        return unix_socket_caller(token_scope, scope["state"]["pid"], client_name(scope))
    via = "ws" if scope["type"] == "websocket" else "http"
    return Caller(f"{'browser' if uses_cookie(scope) else 'token'}:{token_scope}", via, token_scope)


def unix_socket_caller(token_scope: Scope, pid: int | None, client: str = "") -> Caller:
    """Return the caller of a Unix socket connection; `client` is the name that it sent."""
    return Caller(
        f"unix:{current_user_name()}", client if client in SCREEN_NAMES else "unix socket", token_scope, pid
    )


def client_name(scope: Mapping[str, Any]) -> str:
    names = header_values(scope, CLIENT_HEADER)
    return names[0] if len(names) == 1 else ""


def uses_cookie(scope: Mapping[str, Any]) -> bool:
    token = header_values(scope, b"authorization") or any(
        subprotocol.startswith(TOKEN_SUBPROTOCOL_PREFIX) for subprotocol in scope.get("subprotocols", ())
    )
    return not token and read_session_cookie(scope) is not None
