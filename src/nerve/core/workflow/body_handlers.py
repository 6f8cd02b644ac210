"""The queries and updates that the body of a run answers while it runs or waits."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from nerve.core.json_codec import decode_json, encode_json
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import error_text
from nerve.core.runtime import MessageWait
from nerve.core.suggest import did_you_mean_hint
from nerve.core.value_codec import FunctionSignature, ValueCodec
from nerve.errors import UpdateRejected
from nerve.lazy_dataclass import dataclass

UPDATE_CHANNEL_PREFIX = "~update/"
"""Prefix of the channels that carry updates; names of channels cannot start with it."""

READ_ONLY_MESSAGE = "The {} called the workflow context. It may only read."


@dataclass(frozen=True, slots=True)
class UpdateReply:
    """What the handler of an update returned, or the error that it raised."""

    name: str
    message: int
    """The number of the message that requested the update."""
    result: Any = None
    error: str | None = None
    error_type: str | None = None


class UpdateHandler:
    """Changes the state of a body by a value from outside, and replies."""

    def __init__(
        self, name: str, handle: Callable[..., Any], validate: Callable[..., Any] | None = None
    ) -> None:
        self.name, self._handle, self._validate = name, handle, validate
        self._signature = FunctionSignature(handle, f"update '{name}'")
        if len(self._signature.parameters) > 1:
            raise TypeError(
                f"The handler of update '{name}' has {len(self._signature.parameters)} parameters."
                " It gets one value; use a dataclass for several."
            )

    def encode(self, value: Any) -> Any:
        """Return the value of an update as JSON data; InvalidValue if the handler takes another type."""
        codecs = list(self._signature.codecs.values())
        return codecs[0].normalize(value) if codecs else value

    def validate(self, data: Any) -> None:
        """Raise UpdateRejected with the reason of the validator, if it raises."""
        if self._validate is None:
            return
        try:
            outcome = self._validate(*self._decode(data))
        except Exception as error:
            raise UpdateRejected(self.name, error_text(error)) from error
        if inspect.isawaitable(outcome):
            close_awaitable(outcome)
            raise TypeError(f"The validator of update '{self.name}' is async. Use a plain function.")

    async def run(self, data: Any, message: int) -> UpdateReply:
        """Handle an update and return the reply; an exception of the handler becomes its error."""
        try:
            outcome = self._handle(*self._decode(data))
            value = await outcome if inspect.isawaitable(outcome) else outcome
            result = decode_json(encode_json(self._signature.result.encode(value)))
        except Exception as error:
            return UpdateReply(self.name, message, None, error_text(error), type(error).__name__)
        return UpdateReply(self.name, message, result)

    def _decode(self, data: Any) -> list[Any]:
        return [codec.decode(data) for codec in self._signature.codecs.values()]


class ReplyReceiver(Protocol):
    """What records the replies to updates."""

    def reply_to_update(self, reply: UpdateReply) -> None: ...


class BodyHandlers:
    """The handlers that a body has registered."""

    _tasks: Sequence[asyncio.Task[None]] = ()

    def __init__(self, execution: ExecutionContext, receiver: ReplyReceiver) -> None:
        self._execution, self._receiver = execution, receiver
        self._queries: dict[str, tuple[Callable[[], Any], ValueCodec]] = {}
        self._updates: dict[str, UpdateHandler] = {}

    def add_query(self, name: str, handle: Callable[[], Any]) -> None:
        signature = FunctionSignature(handle, f"query '{name}'")
        if required := [
            each.name
            for each in signature.parameters.values()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        ]:
            raise TypeError(f"The handler of query '{name}' needs '{required[0]}'. A query has no arguments.")
        self._queries[name] = handle, signature.result

    def add_update(self, handler: UpdateHandler) -> None:
        """Handle updates of a name from now on, one after the other."""
        is_new = handler.name not in self._updates
        self._updates[handler.name] = handler
        if is_new:
            self._tasks = [*self._tasks, asyncio.create_task(self._handle_updates(handler.name))]

    async def _handle_updates(self, name: str) -> None:
        channel = update_channel(name)
        while True:
            path = self._execution.next_internal_path(f"update.{name}")
            received = await self._execution.wait(MessageWait(path, channel, background=True))
            self._receiver.reply_to_update(await self._updates[name].run(received.value, received.message))

    def has_query(self, name: str) -> bool:
        return name in self._queries

    def has_update(self, name: str) -> bool:
        return name in self._updates

    def run_query(self, name: str) -> Any:
        """Return the answer to a query as JSON data; ValueError for an unknown name."""
        if name not in self._queries:
            raise unknown_handler_error("query", name, self._queries)
        handle, codec = self._queries[name]
        with self._execution.reject_requests(READ_ONLY_MESSAGE.format(f"query '{name}'")):
            value = handle()
        if inspect.isawaitable(value):
            close_awaitable(value)
            raise TypeError(f"The handler of query '{name}' is async. Use a plain function that only reads.")
        return decode_json(encode_json(codec.encode(value)))

    def encode_update(self, name: str, value: Any) -> Any:
        """Return the value of an update as JSON data; ValueError for an unknown name."""
        if name not in self._updates:
            raise unknown_handler_error("update", name, self._updates)
        return self._updates[name].encode(value)

    def validate_update(self, name: str, data: Any) -> None:
        """Raise UpdateRejected if the validator of an update rejects its data."""
        with self._execution.reject_requests(READ_ONLY_MESSAGE.format(f"validator of update '{name}'")):
            self._updates[name].validate(data)


def update_channel(name: str) -> str:
    """Return the channel that carries the updates of a name."""
    return f"{UPDATE_CHANNEL_PREFIX}{name}"


def close_awaitable(value: Any) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it."""
    if inspect.iscoroutine(value):
        value.close()


def unknown_handler_error(kind: str, name: str, known: Mapping[str, Any]) -> ValueError:
    names = ", ".join(known) or "none"
    hint = did_you_mean_hint(name, known) or "."
    return ValueError(f"Unknown {kind} '{name}' of the run{hint} Known: {names}")
