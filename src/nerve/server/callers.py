"""Who asks, as far as a connection and its token show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nerve.api.callers import Caller, user
from nerve.api.operations import Scope
from nerve.server.auth import OFFERED, cookie_of, values

CLIENT = b"x-nerve-client"
SCREENS = ("cli", "commander")
"""What a screen of the same user may call itself."""


def asking(scope: Mapping[str, Any], level: Scope | None = None) -> Caller:
    """Who sent a request, or opened a WebSocket."""
    shown: Scope = level or scope["nerve.caller"]
    server = scope.get("server")
    if not server or server[1] is None:
        return beside(shown, scope["state"]["pid"], named(scope))
    via = "ws" if scope["type"] == "websocket" else "http"
    return Caller(f"{'browser' if by_cookie(scope) else 'token'}:{shown}", via, shown)


def beside(shown: Scope, pid: int | None, client: str = "") -> Caller:
    """Who is at the Unix socket, which only our own user can open; `client` is what it calls itself."""
    return Caller(f"unix:{user()}", client if client in SCREENS else "unix socket", shown, pid)


def named(scope: Mapping[str, Any]) -> str:
    found = values(scope, CLIENT)
    return found[0] if len(found) == 1 else ""


def by_cookie(scope: Mapping[str, Any]) -> bool:
    token = values(scope, b"authorization") or any(
        each.startswith(OFFERED) for each in scope.get("subprotocols", ())
    )
    return not token and cookie_of(scope) is not None
