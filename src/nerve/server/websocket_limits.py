"""The frames of a WebSocket: who sends more of them than anybody needs is cut off, and holds up nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from websockets.frames import Frame

MAX_READ_BYTES = 16 * 1024
"""Bytes that are looked at in one turn of the loop; there may be thousands of frames in them."""
MAX_FRAGMENTS = 1024
"""Of which one message may be made."""
MAX_PONG_BUFFER_BYTES = 1024 * 1024
"""Bytes that may wait for who sends pings and reads nothing."""
CLOSE_TOO_BIG = 1009


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket."""

    _last_received_at = 0.0
    """When something came last."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        reading: Any = transport
        reading.max_size = MAX_READ_BYTES

    def data_received(self, data: bytes) -> None:
        self._last_received_at = self.loop.time()
        super().data_received(data)

    def keepalive_timeout(self) -> None:
        """Who speaks is there, though a pong stands behind what was said; who is not read cannot be heard."""
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
            self.conn.send_close(CLOSE_TOO_BIG, "a message in too many pieces")
            self.handle_parser_exception()

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > MAX_PONG_BUFFER_BYTES:
            self.transport.abort()
        else:
            super().handle_ping()
