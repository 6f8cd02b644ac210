"""Capture one output stream of a command: forward it as text, and keep its head and tail."""

from __future__ import annotations

import asyncio
import codecs
import io
import os
from collections.abc import Callable, Iterator
from typing import IO

READ_BYTES = 32 * 1024
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


class OutputCapture:
    """The read end of a pipe; `on_error` gets an exception of `on_output`, which is not called again."""

    def __init__(
        self,
        pipe: IO[bytes],
        name: str,
        keep: int,
        on_output: Callable[[str, str], None] | None,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe, self._name, self._on_error = pipe, name, on_error
        self._on_output = on_output
        self._decoder = _make_decoder()
        self.captured = HeadAndTail(keep)
        self.closed: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        self.captured.add(data)
        self._forward(data)
        if not data:
            self.close()

    def _forward(self, data: bytes) -> None:
        if self._on_output is None:
            return
        text = self._decoder.decode(data, not data)
        try:
            if text:
                self._on_output(self._name, text)
        except Exception as error:
            self._on_output = None
            self._on_error(error)

    def close(self) -> None:
        if not self.closed.done():
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.closed.set_result(None)


def _make_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _ring_pieces(data: bytearray, start: int) -> Iterator[bytes]:
    for begin, end in ((start, len(data)), (0, start)):
        for at in range(begin, end, DECODE_BYTES):
            yield bytes(data[at : min(at + DECODE_BYTES, end)])
