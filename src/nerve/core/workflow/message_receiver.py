"""MessageReceiver: the messages of one channel, to be awaited or iterated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import MessageWait, ReceivedMessage
from nerve.core.value_codec import ValueCodec

V = TypeVar("V")


class MessageReceiver(Coroutine[Any, Any, V], AsyncIterator[V]):
    """The next message of a channel for `await` and tasks, or all of them for `async for`.

    The path of the first wait is assigned now, like that of a call.
    """

    def __init__(
        self, execution: ExecutionContext, channel: str, codec: ValueCodec, timeout: float | None
    ) -> None:
        self._execution, self._channel, self._codec, self._timeout = execution, channel, codec, timeout
        self._path: str | None = execution.next_path(channel)
        self._coroutine: Coroutine[Any, Any, V] | None = None

    async def __anext__(self) -> V:
        path, self._path = self._path or self._execution.next_path(self._channel), None
        received: ReceivedMessage = await self._execution.wait(
            MessageWait(path, self._channel, self._timeout)
        )
        value: V = self._codec.decode(received.value)
        return value

    # -- a coroutine, so that asyncio.create_task, gather and wait take it -------------------------

    def __await__(self) -> Generator[Any, Any, V]:
        return self.__anext__().__await__()

    def send(self, value: Any) -> Any:
        return self._get_coroutine().send(value)

    def throw(self, error: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        return self._get_coroutine().throw(error if value is None else value)

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()

    def _get_coroutine(self) -> Coroutine[Any, Any, V]:
        # Created when it is needed: one that is never awaited would be reported by Python.
        if self._coroutine is None:
            self._coroutine = self.__anext__()
        return self._coroutine
