"""Capture one output stream of a command: forward it as text, and keep its head and tail."""

from __future__ import annotations

import asyncio
import codecs
import io
from collections.abc import Callable, Iterator

DECODE_BYTES = 1024 * 1024


class HeadAndTail:
    """The first and the last `keep` bytes of a stream; the tail is a ring buffer, so memory is bounded."""

    def __init__(self, keep: int) -> None:
        self._keep_bytes = keep
        self._head, self._tail = bytearray(), bytearray()
        self._tail_start = 0  # start of the tail once it is full
        self.dropped = 0

    def add(self, data: bytes) -> None:
        room = self._keep_bytes - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        if data:
            room = self._keep_bytes - len(self._tail)
            self._tail += data[:room]
            self._overwrite(data[room:])

    def _overwrite(self, data: bytes) -> None:
        self.dropped += len(data)
        data = data[-self._keep_bytes :] if self._keep_bytes else b""
        while data:
            count = min(len(data), self._keep_bytes - self._tail_start)
            self._tail[self._tail_start : self._tail_start + count] = data[:count]
            self._tail_start = (self._tail_start + count) % self._keep_bytes
            data = data[count:]

    async def read_text(self) -> str:
        """Return the text; the bytes are released, so that both are never in memory together."""
        text = io.StringIO()
        decoder = _make_decoder()
        for piece in _ring_pieces(self._head, 0):
            text.write(decoder.decode(piece))
            await asyncio.sleep(0)
        self._head.clear()
        if self.dropped:
            text.write(decoder.decode(b"", True))
            text.write(f"\n[{self.dropped} bytes left out here]\n")
            decoder = _make_decoder()
        for piece in _ring_pieces(self._tail, self._tail_start):
            text.write(decoder.decode(piece))
            await asyncio.sleep(0)
        self._tail.clear()
        text.write(decoder.decode(b"", True))
        return text.getvalue()


class OutputCapture(asyncio.Protocol):
    """One output stream: what is kept of it, and a callback that receives it as text.

    `closed` is done at the end of the stream, or when the callback raised `error`, after which it is not
    called again.
    """

    def __init__(self, name: str, keep: int, on_output: Callable[[str, str], None] | None) -> None:
        self._name, self._on_output = name, on_output
        self._decoder = _make_decoder()
        self.captured = HeadAndTail(keep)
        self.error: Exception | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.captured.add(data)
        self._forward(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forward(b"")
        self._set_closed()

    def _forward(self, data: bytes) -> None:
        if self._on_output is None:
            return
        try:
            if text := self._decoder.decode(data, not data):
                self._on_output(self._name, text)
        except Exception as error:
            self._on_output, self.error = None, error
            self._set_closed()

    def _set_closed(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


def _make_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _ring_pieces(data: bytearray, start: int) -> Iterator[bytes]:
    for begin, end in ((start, len(data)), (0, start)):
        for at in range(begin, end, DECODE_BYTES):
            yield bytes(data[at : min(at + DECODE_BYTES, end)])
