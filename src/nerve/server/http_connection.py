"""Connections: how many there may be, whose they may be, and how long they may take to say what they want."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from nerve.api.errors import ApiError

MAX_CONNECTIONS = 256
"""Over TCP, and as many over the Unix socket, which those who only reach the port cannot take."""
ACCEPT_BATCH = 16
"""Connections that one socket takes before the others have their turn, also while more of them wait."""
MAX_HEAD_BYTES = 16 * 1024
HEAD_TIMEOUT_S = 10.0
"""In which the head of a request must have come."""
MAX_DISCARDED_BYTES = 16 * 1024 * 1024
"""Bytes of a body that nobody reads which are thrown away; closing at once would take the answer with it."""

LINGER_S = 2.0
"""Seconds for which whoever is sent away may still speak, and is not heard."""

PEER_TIMEOUT_S = 25
"""Seconds in which a peer must take what is sent to it; then it is taken for dead."""

SEND_BUFFER_BYTES = 128 * 1024
"""Bytes that the kernel may keep for a peer who does not read; it would keep megabytes."""

FULL_RESPONSE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
TIMEOUT_RESPONSE = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


STOPPING_ERROR = ApiError(
    "busy", "the server stops; runs go on with the next one", "Ask again when it is back."
)


class StrictH11Connection(h11.Connection):
    """HTTP in which the length of a body is said once: what is said twice may be read in two ways."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding")
        return event


class LimitedHttpProtocol(H11Protocol):
    """One connection of HTTP."""

    _head_timer: asyncio.TimerHandle | None = None
    _jsonl: Any = None
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
        if not is_same_user(transport):
            transport.abort()
        elif self._exceeds_limit():
            self._close_with(FULL_RESPONSE)
        else:
            self._start_head_timer()

    def _exceeds_limit(self) -> bool:
        local = is_unix_socket(self.transport)
        count = sum(is_unix_socket(connection.transport) == local for connection in self.connections)
        return count > MAX_CONNECTIONS

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_rejected:
            return
        if data[:1] == b"{" and self._accepts_jsonl():
            self._switch_to_jsonl(data)
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

    def _accepts_jsonl(self) -> bool:
        has_started = self.conn.trailing_data[0] or self.conn.their_state is not h11.IDLE
        return not has_started and is_unix_socket(self.transport)

    def _switch_to_jsonl(self, data: bytes) -> None:
        """No request of HTTP begins like that: what comes are lines of JSON."""
        self._stop_head_timer()
        app: Any = self.config.app
        self._jsonl = app.lines.protocol(self.connection_lost)
        self._jsonl.connection_made(self.transport)
        self.transport.set_protocol(self._jsonl)
        self._jsonl.data_received(data)

    def shutdown(self) -> None:
        if self._jsonl is not None:
            self._jsonl.stop()
        else:
            super().shutdown()

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
        self._head_timer = None
        if not self.transport.is_closing():
            self._reject_gracefully(TIMEOUT_RESPONSE if self.cycle is None else b"")

    def _close_with(self, last: bytes) -> None:
        self.transport.write(last)
        self.transport.close()

    def _reject_gracefully(self, last: bytes) -> None:
        """Close, but not at once: that would take the answer with it, from who is speaking."""
        self._is_rejected = True
        self.transport.write(last)
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def limit_peer(transport: asyncio.BaseTransport) -> None:
    """Let the kernel find out soon who does not read, and who is gone without a word."""
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


def is_same_user(transport: asyncio.BaseTransport) -> bool:
    """Whether a Unix socket was opened by the user we are; over TCP only the token says who it is."""
    return not is_unix_socket(transport) or peer_credentials(transport)[1] == os.getuid()


def peer_pid(transport: asyncio.BaseTransport) -> int | None:
    """The process that opened a Unix socket."""
    return peer_credentials(transport)[0] if is_unix_socket(transport) else None


def peer_credentials(transport: asyncio.BaseTransport) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket, as they were when it was opened."""
    peer: Any = transport.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid
