"""A TCP proxy on the loopback interface that can cut, stop and delay what it forwards."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from faults.schedule import Effect

CHUNK_BYTES = 65536
LONG_DELAY_S = 0.3
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which the other side gets a reset instead of an end."""


class TcpProxy:
    """Forwards connections to a port, in a thread of its own, until the end of the `with` statement."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_forwarding = asyncio.Event()
        self._is_cut = False
        self._delay = 0.0

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._is_forwarding.set()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        self._break_connections()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset all connections, and every new one."""

        def cut() -> None:
            self._is_cut = True
            self._break_connections()

        self._run(cut)

    def stall(self) -> None:
        """Accept connections and keep those that exist, but forward nothing."""
        self._run(self._is_forwarding.clear)

    def delay(self, seconds: float) -> None:
        """Forward everything that much later."""

        def delay() -> None:
            self._delay = seconds

        self._run(delay)

    def restore(self) -> None:
        """Forward as if nothing had happened; what was held back arrives."""

        def restore() -> None:
            self._is_cut = False
            self._delay = 0.0
            self._is_forwarding.set()

        self._run(restore)

    def faults(self) -> dict[str, Effect]:
        return {
            "cut": Effect(self.cut, self.restore),
            "stall": Effect(self.stall, self.restore),
            "delay": Effect(functools.partial(self.delay, LONG_DELAY_S), self.restore),
        }

    def _run(self, action: Callable[[], None]) -> None:
        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _break_connections(self) -> None:
        for writer in self._writers:
            reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            reset(writer)
            return
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            reset(writer)
            return
        if self._is_cut:  # since the connection began
            reset(writer)
            reset(target_writer)
            return
        writers = {writer, target_writer}
        self._writers |= writers
        try:
            await asyncio.gather(self._forward(reader, target_writer), self._forward(target_reader, writer))
        finally:
            self._writers -= writers
            for each in writers:
                each.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._is_forwarding.wait()
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()
            return
        reset(writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side gets an error, as after a cut."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()
