"""The server: the API over HTTP, server-sent events, WebSockets and a Unix socket."""

from functools import partial

from nerve.upstream_names import find_upstream_name

__getattr__ = partial(find_upstream_name, __name__)
