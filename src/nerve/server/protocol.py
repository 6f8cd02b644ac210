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

CONNECTIONS = 256
"""Over TCP, and as many over the Unix socket, which those who only reach the port cannot take."""
ACCEPTED_AT_ONCE = 16
"""Connections that one socket takes before the others have their turn, also while more of them wait."""
HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
"""In which the head of a request must have come."""
UNREAD = 16 * 1024 * 1024
"""Bytes of a body that nobody reads which are thrown away; closing at once would take the answer with it."""

LINGER = 2.0
"""Seconds for which whoever is sent away may still speak, and is not heard."""

SILENT = 25
"""Seconds in which a peer must take what is sent to it; then it is taken for dead."""

SENT = 128 * 1024
"""Bytes that the kernel may keep for a peer who does not read; it would keep megabytes."""

FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SLOW = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


STOPPING = ApiError("busy", "the server stops; runs go on with the next one", "Ask again when it is back.")


class StrictHttp(h11.Connection):
    """HTTP in which the length of a body is said once: what is said twice may be read in two ways."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding")
        return event


class Connection(H11Protocol):
    """One connection of HTTP."""

    _slow: asyncio.TimerHandle | None = None
    _lines: Any = None
    _upgraded = False
    _unread = 0
    _over = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = StrictHttp(h11.SERVER, HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort, "pid": pid_of(transport)}
        bound_the_peer(transport)
        if not same_user(transport):
            transport.abort()
        elif self._is_one_too_many():
            self._close(FULL)
        else:
            self._watch()

    def _is_one_too_many(self) -> bool:
        local = is_unix(self.transport)
        taken = sum(is_unix(each.transport) == local for each in self.connections)
        return taken > CONNECTIONS

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if data[:1] == b"{" and self._takes_lines():
            self._switch(data)
            return
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._unread += len(data)
            if self._unread > UNREAD:
                self.transport.abort()
                return
        super().data_received(data)
        if self._upgraded or not self._idle:
            self._unwatch()
        elif not self.transport.is_closing():
            self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade(event)

    def _takes_lines(self) -> bool:
        begun = self.conn.trailing_data[0] or self.conn.their_state is not h11.IDLE
        return not begun and is_unix(self.transport)

    def _switch(self, data: bytes) -> None:
        """No request of HTTP begins like that: what comes are lines of JSON."""
        self._unwatch()
        app: Any = self.config.app
        self._lines = app.lines.protocol(self.connection_lost)
        self._lines.connection_made(self.transport)
        self.transport.set_protocol(self._lines)
        self._lines.data_received(data)

    def shutdown(self) -> None:
        if self._lines is not None:
            self._lines.stop()
        else:
            super().shutdown()

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if self._slow is None:
            self._slow = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _unwatch(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        self._slow = None
        if not self.transport.is_closing():
            self._send_away(SLOW if self.cycle is None else b"")

    def _close(self, last: bytes) -> None:
        self.transport.write(last)
        self.transport.close()

    def _send_away(self, last: bytes) -> None:
        """Close, but not at once: that would take the answer with it, from who is speaking."""
        self._over = True
        self.transport.write(last)
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)


def bound_the_peer(transport: asyncio.BaseTransport) -> None:
    """Let the kernel find out soon who does not read, and who is gone without a word."""
    if not is_unix(transport):
        peer: Any = transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT // 3)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT // 3)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT * 1000)


def is_unix(transport: asyncio.BaseTransport) -> bool:
    peer: Any = transport.get_extra_info("socket")
    return peer is not None and peer.family == socket.AF_UNIX


def same_user(transport: asyncio.BaseTransport) -> bool:
    """Whether a Unix socket was opened by the user we are; over TCP only the token says who it is."""
    return not is_unix(transport) or told_by_the_kernel(transport)[1] == os.getuid()


def pid_of(transport: asyncio.BaseTransport) -> int | None:
    """The process that opened a Unix socket."""
    return told_by_the_kernel(transport)[0] if is_unix(transport) else None


def told_by_the_kernel(transport: asyncio.BaseTransport) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket, as they were when it was opened."""
    peer: Any = transport.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid
