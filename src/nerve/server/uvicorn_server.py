"""Uvicorn on sockets that are already bound, with limits on connections, peers, heads, frames and time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nerve.server.request_body import MAX_BODY_BYTES

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send
    from websockets.frames import Frame

UNIX_SHARE = 16
"""One of so many connections is reserved for the Unix socket, so that TCP clients cannot exhaust it."""
ACCEPT_BATCH = 16
"""Connections that one socket accepts per loop iteration, so that other sockets are not starved."""
MAX_HEAD_BYTES = 16 * 1024
HEAD_TIMEOUT_S = 10.0
"""Seconds within which the request head must arrive."""
MAX_DISCARDED_BYTES = 16 * 1024 * 1024
"""Bytes of an unread body that are discarded. Closing at once would reset the connection before the reply."""
LINGER_S = 2.0
"""Seconds a rejected connection stays open for reading, so that the client receives the reply."""
PEER_TIMEOUT_S = 25
"""Seconds within which a peer must acknowledge data before the kernel closes the connection."""
SEND_BUFFER_BYTES = 128 * 1024
"""Kernel send buffer per peer. The default would keep megabytes for a peer that does not read."""
FULL_RESPONSE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
TIMEOUT_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
MAX_READ_BYTES = 16 * 1024
"""Bytes read per loop iteration, because they may contain thousands of frames."""
MAX_FRAGMENTS = 1024
"""Maximum fragments of one message."""
MAX_PONG_BUFFER_BYTES = 1024 * 1024
"""Buffered bytes at which a client that sends pings without reading is disconnected."""
CLOSE_TOO_BIG = 1009
SHUTDOWN_GRACE_S = 5
"""Seconds that requests may take to finish when the server stops."""
LISTEN_QUEUE = 256
"""Connections that the kernel holds until the server accepts them."""
KEEP_ALIVE_S = 20
"""Seconds an idle connection is kept. Longer than most clients keep theirs (5 to 15 seconds), so that the
server does not close a connection that a client is about to reuse."""


class StrictH11Connection(h11.Connection):
    """Rejects requests with both Content-Length and Transfer-Encoding, to prevent request smuggling."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding")
        return event


class LimitedHttpProtocol(H11Protocol):
    """One HTTP connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _is_upgraded = False
    _discarded_bytes = 0
    _is_rejected = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = StrictH11Connection(h11.SERVER, MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort, "pid": peer_pid(transport)}
        limit_peer(transport)
        if is_unix_socket(transport) and peer_credentials(transport)[1] != os.getuid():
            transport.abort()
        elif self._exceeds_limit():
            transport.write(FULL_RESPONSE)
            transport.close()
        else:
            self._start_head_timer()

    def _exceeds_limit(self) -> bool:
        app: Any = self.config.app
        limit: int = app.max_connections
        tcp_limit = limit - max(limit // UNIX_SHARE, 1)
        if is_unix_socket(self.transport) or len(self.connections) <= tcp_limit:
            return len(self.connections) > limit
        return sum(not is_unix_socket(connection.transport) for connection in self.connections) > tcp_limit

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_rejected:
            return
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > MAX_DISCARDED_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        if self._is_upgraded or not self._is_idle:
            self._stop_head_timer()
        elif not self.transport.is_closing():
            self._start_head_timer()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._is_upgraded = True
        super().handle_websocket_upgrade(event)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        """Send a last reply and close later. Closing at once could reset the connection before the reply."""
        self._head_timer = None
        if not self.transport.is_closing():
            self._is_rejected = True
            self.transport.write(TIMEOUT_RESPONSE if self.cycle is None else b"")
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)


def limit_peer(transport: asyncio.BaseTransport) -> None:
    """Set socket options so that the kernel soon detects peers that do not read or have vanished."""
    if not is_unix_socket(transport):
        peer: Any = transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PEER_TIMEOUT_S // 3)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PEER_TIMEOUT_S // 3)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_TIMEOUT_S * 1000)


def is_unix_socket(transport: asyncio.BaseTransport) -> bool:
    peer: Any = transport.get_extra_info("socket")
    return peer is not None and peer.family == socket.AF_UNIX


def peer_pid(transport: asyncio.BaseTransport) -> int | None:
    """Return the process id of a Unix socket peer, or None for TCP."""
    return peer_credentials(transport)[0] if is_unix_socket(transport) else None


def peer_credentials(transport: asyncio.BaseTransport) -> tuple[int, int]:
    """Return process id and user id of a Unix socket peer at the time it connected."""
    peer: Any = transport.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


# -- websockets ----------------------------------------------------------------------------------------


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection with limits."""

    _last_received_at = 0.0
    """Loop time of the last received data."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        reading: Any = transport
        reading.max_size = MAX_READ_BYTES

    def data_received(self, data: bytes) -> None:
        self._last_received_at = self.loop.time()
        super().data_received(data)

    def keepalive_timeout(self) -> None:
        """Keep the connection if the client sent data since the ping, or if reading is paused."""
        # In both cases, the pong may be queued after data that the server has not read yet.
        if self.read_paused or self._last_received_at > self.ping_sent_at:
            self.pong_timer = None
            self.send_keepalive_ping()
        else:
            super().keepalive_timeout()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MAX_FRAGMENTS:
            super().handle_cont(event)
        elif not self.close_sent:
            self.frames = []
            self.conn.send_close(CLOSE_TOO_BIG, "too many fragments")
            self.handle_parser_exception()

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > MAX_PONG_BUFFER_BYTES:
            self.transport.abort()
        else:
            super().handle_ping()


# -- the server ----------------------------------------------------------------------------------------


class ServedApp(Protocol):
    """An ASGI application with a limit of connections."""

    max_connections: int
    closing: asyncio.Event
    """Set when the server stops, so that streams end and do not block the shutdown."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class GracefulServer(uvicorn.Server):
    """A uvicorn server that stops by an event and leaves signal handling to the caller."""

    def __init__(self, app: ServedApp) -> None:
        self.app = app
        self.ready_event, self.stop_event = asyncio.Event(), asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=LimitedHttpProtocol,
                ws=LimitedWebSocketProtocol,
                ws_max_size=MAX_BODY_BYTES,
                ws_per_message_deflate=False,
                lifespan="off",
                backlog=ACCEPT_BATCH,
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def has_connections(self) -> bool:
        """Whether a client is connected."""
        return bool(self.server_state.connections)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(LISTEN_QUEUE)  # the accept batch stays as configured
        self.ready_event.set()

    async def main_loop(self) -> None:
        """Run until the stop event is set. The loop of uvicorn itself polls only ten times per second."""
        tick_task = asyncio.create_task(super().main_loop())
        try:
            await self.stop_event.wait()
        finally:
            tick_task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.closing.set()
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def run_server(app: ServedApp, sockets: list[socket.socket]) -> AsyncIterator[GracefulServer]:
    """Serve while the context is open; then stop accepting and let running requests finish."""
    server = GracefulServer(app)
    serve_task = asyncio.create_task(server.serve(sockets))
    try:
        await server.ready_event.wait()
        yield server
    finally:
        server.stop_event.set()
        await serve_task
