"""WebSocket protocol with limits, so that a client that floods frames cannot block the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from websockets.frames import Frame

MAX_READ_BYTES = 16 * 1024
"""Bytes read per loop iteration, because they may contain thousands of frames."""
MAX_FRAGMENTS = 1024
"""Maximum fragments of one message."""
MAX_PONG_BUFFER_BYTES = 1024 * 1024
"""Buffered bytes at which a client that sends pings without reading is disconnected."""
CLOSE_TOO_BIG = 1009


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
