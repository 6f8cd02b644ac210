"""The caller of a request, derived from its connection and token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.api.callers import Caller, Scope, current_user_name
from nerve.server.auth import TOKEN_SUBPROTOCOL_PREFIX, header_values, read_session_cookie

CLIENT_HEADER = b"x-nerve-client"
SCREEN_NAMES = ("cli", "commander")
"""Client names that a Unix socket client of the same user may use."""


def caller_of_request(scope: Mapping[str, Any], level: Scope | None = None) -> Caller:
    """Return the caller of a request or WebSocket."""
    token_scope: Scope = level or scope["nerve.caller"]
    server = scope.get("server")
    if not server or server[1] is None:
        names = header_values(scope, CLIENT_HEADER)
        via = names[0] if len(names) == 1 and names[0] in SCREEN_NAMES else "unix socket"
        return Caller(f"unix:{current_user_name()}", via, token_scope, scope["state"]["pid"])
    via = "ws" if scope["type"] == "websocket" else "http"
    return Caller(f"{'browser' if uses_cookie(scope) else 'token'}:{token_scope}", via, token_scope)


def uses_cookie(scope: Mapping[str, Any]) -> bool:
    token = header_values(scope, b"authorization") or any(
        subprotocol.startswith(TOKEN_SUBPROTOCOL_PREFIX) for subprotocol in scope.get("subprotocols", ())
    )
    return not token and read_session_cookie(scope) is not None
