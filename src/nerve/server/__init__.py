"""The server: the API over HTTP, server-sent events, WebSockets and a Unix socket."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return what a name of upstream Nerve is here, or raise an error that says what to use."""
    from nerve.upstream_names import find_upstream_name

    return find_upstream_name(__name__, name)
