"""The URL of an engine, as options and the environment give it."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import urlsplit

ENGINE_VARIABLE = "NERVE_ENGINE"
"""The environment variable with the URL of the engine."""
ENGINE_SCHEME = "temporal://"
DEFAULT_PORT = 7233
DEFAULT_NAMESPACE = "default"


class TemporalAddress(NamedTuple):
    """What a URL `temporal://HOST:PORT/NAMESPACE` says."""

    target: str
    """The host and the port."""
    namespace: str

    def __str__(self) -> str:
        return f"temporal://{self.target}/{self.namespace}"


def parse_engine_url(url: str) -> TemporalAddress:
    """Return the address in a URL, with port 7233 and the namespace `default` if it has none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host, port = None, 0
    namespace = "" if host is None else parts.path.strip("/")
    if host is None or parts.scheme != "temporal" or "/" in namespace or parts.username or parts.query:
        raise ValueError(f"The engine must be a URL such as temporal://HOST:7233/NAMESPACE, got {url!r}")
    name = f"[{host}]" if ":" in host else host
    return TemporalAddress(f"{name}:{port}", namespace or DEFAULT_NAMESPACE)


def engine_url_of_environment() -> str | None:
    """Return the URL in the environment, or None."""
    return os.environ.get(ENGINE_VARIABLE) or None
