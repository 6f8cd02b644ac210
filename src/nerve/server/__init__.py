"""The server: the API over HTTP, server-sent events, WebSockets and a Unix socket."""
