"""The command protocol of the seeds as JSON lines over the Unix socket."""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nerve.api import Api, ApiError, command_protocol
from nerve.api.operations import Scope
from nerve.server.auth import Auth, require_scope
from nerve.server.http_connection import STOPPING_ERROR, peer_pid
from nerve.server.request_body import MAX_BODY_BYTES, parse_json_object
from nerve.server.request_caller import unix_socket_caller

TOKEN_TIMEOUT_S = 5.0
"""Seconds within which the token must arrive."""
MAX_CONCURRENT_COMMANDS = 64
"""Maximum concurrent commands of one client. Reading pauses while the limit is reached."""
STOP_GRACE_S = 2.0
"""Seconds that commands may take to finish when the server stops."""

TOKEN_FIX = 'First send {"token": "TOKEN"}'
COMMAND_FIX = 'Send {"type": "LIST_WORKFLOWS", "params": {}}, one command per line.'

RawCommand = Mapping[str, Any]


class JsonlSocket:
    """Serves JSON lines on the Unix socket."""

    def __init__(self, api: Api, auth: Auth) -> None:
        self._api, self._auth = api, auth
        self._tasks: set[asyncio.Task[None]] = set()
        """Running commands. A reference keeps them alive until they finish, even after a disconnect."""

    def protocol(self, lost: Callable[[Exception | None], None]) -> JsonlProtocol:
        """Return a protocol for a connection whose first byte is "{"."""
        return JsonlProtocol(self._serve_connection, lost)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, disconnected: asyncio.Future[None]
    ) -> None:
        in_progress: dict[asyncio.Task[None], RawCommand] = {}
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                caller = self._authenticate(parse_json_object(await read_socket_line(reader), TOKEN_FIX))
            api = self._api.as_caller(unix_socket_caller(caller, peer_pid(writer.transport)))
            await send_line(writer, {"success": True})
            while await wait_for_slot(in_progress, disconnected) and (
                line := await read_next_socket_line(reader, writer)
            ):
                if (command := await parse_json_line(line, writer)) is not None:
                    task = asyncio.create_task(self._execute(api, caller, command, writer))
                    in_progress[task] = command
                    self._tasks.add(task)
                    task.add_done_callback(in_progress.pop)
                    task.add_done_callback(self._tasks.discard)
            await wait_for_replies(in_progress, disconnected)
        except ApiError as error:
            await send_line(writer, command_protocol.error_reply(error))
        except TimeoutError:
            await send_line(
                writer,
                command_protocol.error_reply(
                    ApiError("bad_request", f"No token within {TOKEN_TIMEOUT_S:g} seconds")
                ),
            )
        except ConnectionError:
            pass  # the client has disconnected
        finally:
            abandon_commands(in_progress, writer)

    def _authenticate(self, first: dict[str, Any]) -> Scope:
        token = first.get("token")
        return self._auth.scope_for_token(token if isinstance(token, str) else "")

    async def _execute(
        self, api: Api, caller: Scope, command: RawCommand, writer: asyncio.StreamWriter
    ) -> None:
        try:
            require_scope(caller, command_protocol.required_command_scope(command))
            async for reply in command_protocol.stream_replies(api, command):
                await send_line(writer, reply)
        except Exception as error:
            await send_line(
                writer,
                command_protocol.with_request_id(
                    command, command_protocol.error_reply(command_protocol.convert_and_log_error(error))
                ),
            )


class JsonlProtocol(asyncio.StreamReaderProtocol):
    """Detects a full disconnect. A client that only closed its sending side still gets its replies."""

    def __init__(
        self, serve_connection: Callable[..., Awaitable[None]], lost: Callable[[Exception | None], None]
    ) -> None:
        self._reader = asyncio.StreamReader(limit=MAX_BODY_BYTES)
        self._disconnected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        super().__init__(
            self._reader, lambda reader, writer: serve_connection(reader, writer, self._disconnected)
        )
        self._on_lost = lost
        self._hangup_poll = select.epoll()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer_transport: Any = transport
        # With an empty event mask, epoll reports only hang-up and errors, not readable data.
        self._hangup_poll.register(transport.get_extra_info("socket").fileno(), 0)
        asyncio.get_running_loop().add_reader(self._hangup_poll.fileno(), self._mark_disconnected)

    def connection_lost(self, exc: Exception | None) -> None:
        self._mark_disconnected()
        self._hangup_poll.close()
        super().connection_lost(exc)
        self._on_lost(exc)

    def stop(self) -> None:
        """Stop reading commands, and give running ones a grace period."""
        self._peer_transport.pause_reading()
        self._reader.feed_eof()
        asyncio.get_running_loop().call_later(STOP_GRACE_S, self._mark_disconnected)

    def _mark_disconnected(self) -> None:
        if not self._hangup_poll.closed:
            asyncio.get_running_loop().remove_reader(self._hangup_poll.fileno())
        if not self._disconnected.done():
            self._disconnected.set_result(None)


async def read_socket_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line. A line that is too long is consumed and raises ApiError."""
    is_too_long = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
            break
        except asyncio.LimitOverrunError as error:
            is_too_long = True
            await reader.readexactly(error.consumed)
        except asyncio.IncompleteReadError as error:
            line = error.partial
            break
    if is_too_long:
        raise ApiError("too_large", f"A line must have at most {MAX_BODY_BYTES} bytes")
    return line


async def read_next_socket_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the next line of valid length, or b"" at the end. Sends an error for lines that are too long."""
    while True:
        try:
            return await read_socket_line(reader)
        except ApiError as error:
            await send_line(writer, command_protocol.error_reply(error))


async def parse_json_line(line: bytes, writer: asyncio.StreamWriter) -> dict[str, Any] | None:
    try:
        return parse_json_object(line, COMMAND_FIX)
    except ApiError as error:
        await send_line(writer, command_protocol.error_reply(error))
        return None


async def wait_for_slot(
    in_progress: Mapping[asyncio.Task[None], RawCommand], disconnected: asyncio.Future[None]
) -> bool:
    """Wait for a free command slot; return False if the client disconnects first."""
    while len(in_progress) >= MAX_CONCURRENT_COMMANDS and not disconnected.done():
        await asyncio.wait([*in_progress, disconnected], return_when=asyncio.FIRST_COMPLETED)
    return len(in_progress) < MAX_CONCURRENT_COMMANDS


async def wait_for_replies(
    in_progress: Mapping[asyncio.Task[None], RawCommand], disconnected: asyncio.Future[None]
) -> None:
    """Wait until all commands have their replies, or the client disconnects."""
    while in_progress and not disconnected.done():
        await asyncio.wait([*in_progress, disconnected], return_when=asyncio.FIRST_COMPLETED)


def abandon_commands(
    in_progress: Mapping[asyncio.Task[None], RawCommand], writer: asyncio.StreamWriter
) -> None:
    """Reply to unfinished commands that the server stops. Subscriptions are cancelled; commands finish."""
    for task, command in in_progress.items():
        if not task.done():
            write_line(
                writer,
                command_protocol.with_request_id(command, command_protocol.error_reply(STOPPING_ERROR)),
            )
        if command_protocol.is_subscription_command(command):
            task.cancel()
    writer.close()


def write_line(writer: asyncio.StreamWriter, reply: dict[str, Any]) -> None:
    writer.write(json.dumps(reply).encode() + b"\n")


async def send_line(writer: asyncio.StreamWriter, reply: dict[str, Any]) -> None:
    if not writer.is_closing():
        write_line(writer, reply)
        try:
            await writer.drain()
        except ConnectionError:
            pass  # the client has disconnected
