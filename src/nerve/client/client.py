"""The client: every operation of the API, in this process or over HTTP on TCP or a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from nerve.api import models
from nerve.api.callers import person_caller
from nerve.api.errors import STATUS_BY_CODE, ApiError, to_api_error
from nerve.api.operations import OPERATIONS, Operation
from nerve.api.request_parsing import MAX_NESTING_DEPTH, parse_request
from nerve.client.server_address import ServerAddress, find_server
from nerve.core.events import RUN_END_EVENTS, continued_as
from nerve.core.json_codec import encode_json, parse_strict_json
from nerve.errors import NerveError, NotJson
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import httpx2

    from nerve.api import Api

STREAM_SILENCE_S = 60.0
"""Seconds without a heartbeat after which a stream reconnects."""
RECONNECT_DELAYS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Backoff in seconds between attempts to reconnect; the last one repeats."""
MAX_EVENT_BYTES = 64 * 2**20

T = TypeVar("T", bound=models.ApiResponse)


@dataclass(frozen=True, slots=True)
class CommandReply:
    """The reply to a command: `data` if it succeeded, `error` if it did not."""

    success: bool
    data: dict[str, Any]
    error: str | None = None


class Transport(Protocol):
    """The connection between a client and its API."""

    async def perform(self, operation: Operation, arguments: dict[str, Any]) -> models.ApiResponse:
        """Execute one operation and return its reply; raise ApiError if it fails."""

    def watch(self, run: str | None, after: int) -> AsyncGenerator[models.EventResponse]:
        """Yield the events of a run, or of all runs, after the one numbered `after`."""

    def all_events(self, after: str) -> AsyncGenerator[tuple[str, models.EventResponse | None]]:
        """Yield the events of all runs after a cursor, each with its cursor; None if some may be missing."""

    def read_artifact(self, run: str, name: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of an artifact."""

    async def send_command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute `{"type": …, "params": {…}}` and return the reply."""

    async def close(self) -> None:
        """Release the connection."""


class OperationMethod(Generic[T]):
    """A method of the client: the operation with its name."""

    def __init__(self, response_model: type[T]) -> None:
        self.response_model = response_model

    def __set_name__(self, owner: type[Client], name: str) -> None:
        self.name = name
        self.__doc__ = OPERATIONS[name].summary

    def __get__(self, client: Client, owner: type[Client]) -> Callable[..., Awaitable[T]]:
        async def call(**arguments: Any) -> T:
            reply: Any = await client.perform(self.name, arguments)
            return reply  # type: ignore[no-any-return]

        call.__name__, call.__doc__ = self.name, self.__doc__
        return call


class Client:
    """`Client(api)`, `Client("http://127.0.0.1:1234", token=…)` or `Client.of_project(".")`.

    Each operation is a method that takes the fields of its request model and returns its response model:
    `await client.start(workflow="hello", input="you")`. A failed operation raises ApiError.

    Over HTTP every command has an idempotency key, generated if none is given: if a connection breaks before
    the reply, the client repeats the request once over a new one, and the server executes it once.
    """

    define = OperationMethod(models.WorkflowResponse)
    start = OperationMethod(models.RunResponse)
    answer = OperationMethod(models.AnswerResponse)
    signal = OperationMethod(models.DoneResponse)
    send = OperationMethod(models.MessageResponse)
    update = OperationMethod(models.UpdateResponse)
    assert_fact = OperationMethod(models.FactResponse)
    retract = OperationMethod(models.FactPage)
    pause = OperationMethod(models.RunResponse)
    resume = OperationMethod(models.RunResponse)
    steer = OperationMethod(models.SteerResponse)
    stop = OperationMethod(models.RunResponse)
    fork = OperationMethod(models.RunResponse)
    retry = OperationMethod(models.RunResponse)
    skip = OperationMethod(models.RunResponse)
    pause_queue = OperationMethod(models.QueueResponse)
    resume_queue = OperationMethod(models.QueueResponse)
    add_person = OperationMethod(models.PersonResponse)
    change_person = OperationMethod(models.PersonResponse)
    remove_person = OperationMethod(models.PersonResponse)
    test_channel = OperationMethod(models.ChannelTestResponse)
    define_trigger = OperationMethod(models.TriggerResponse)
    remove_trigger = OperationMethod(models.DoneResponse)
    pause_trigger = OperationMethod(models.TriggerResponse)
    resume_trigger = OperationMethod(models.TriggerResponse)
    fire_trigger = OperationMethod(models.FiredResponse)
    backfill_trigger = OperationMethod(models.BackfillResponse)
    route = OperationMethod(models.RouteResponse)
    reload = OperationMethod(models.ReloadResponse)
    collect = OperationMethod(models.DeleteRunsResponse)
    delete = OperationMethod(models.DeleteRunsResponse)
    workflows = OperationMethod(models.WorkflowPage)
    workflow = OperationMethod(models.WorkflowResponse)
    definitions = OperationMethod(models.DefinitionPage)
    definition = OperationMethod(models.DefinitionResponse)
    runs = OperationMethod(models.RunPage)
    run = OperationMethod(models.RunDetailResponse)
    query = OperationMethod(models.QueryResponse)
    events = OperationMethod(models.EventPage)
    artifacts = OperationMethod(models.ArtifactPage)
    changes = OperationMethod(models.ChangePage)
    preview_fork = OperationMethod(models.ForkPreviewResponse)
    gates = OperationMethod(models.GatePage)
    facts = OperationMethod(models.FactPage)
    queues = OperationMethod(models.QueuePage)
    people = OperationMethod(models.PeoplePage)
    audit = OperationMethod(models.AuditPage)
    notifications = OperationMethod(models.NotificationsResponse)
    chats = OperationMethod(models.ChatPage)
    triggers = OperationMethod(models.TriggerPage)
    trigger = OperationMethod(models.TriggerResponse)
    usage = OperationMethod(models.UsageResponse)
    usage_history = OperationMethod(models.UsageHistoryResponse)
    sessions = OperationMethod(models.SessionPage)
    agents = OperationMethod(models.AgentOverviewResponse)
    threads = OperationMethod(models.ThreadPage)
    health = OperationMethod(models.HealthResponse)

    def __init__(
        self,
        to: Api | str | Callable[[], ServerAddress | None],
        *,
        token: str | None = None,
        socket: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        via: str | None = None,
    ) -> None:
        """Set `timeout` for one request, and `patience` for how long a stream tries to reconnect.

        `via` is the user interface, `cli` or `commander`; answers are recorded with it.
        """
        self._transport: Transport
        if isinstance(to, str):
            address = ServerAddress(to, token, socket)
            self._transport = HttpTransport(lambda: address, timeout, patience, via)
        elif callable(to):
            self._transport = HttpTransport(to, timeout, patience, via)
        else:
            self._transport = InProcessTransport(to if via is None else to.as_caller(person_caller(via)))

    @classmethod
    def of_project(cls, folder: str | os.PathLike[str] = ".", **options: Any) -> Client | None:
        """Return a client of the project's running server; None if there is none.

        The client finds a server again that restarts at another address.
        """
        root = Path(folder)
        return cls(lambda: find_server(root), **options) if find_server(root) is not None else None

    async def all_gates(self, **filters: Any) -> list[models.GateResponse]:
        """Return all open gates that match, oldest first, which `gates` returns in pages."""
        page = await self.gates(limit=1000, **filters)
        found = page.gates
        while page.next is not None:
            page = await self.gates(limit=1000, after=page.next, **filters)
            found += page.gates
        return found

    async def all_audit_entries(self, **filters: Any) -> models.AuditPage:
        """Return everything that was decided, oldest first, which `audit` returns in pages."""
        page = whole = await self.audit(**filters)
        while page.next is not None:
            page = await self.audit(**filters, after=page.next)
            whole.entries += page.entries
            whole.runs, whole.events = whole.runs + page.runs, whole.events + page.events
        whole.entries.sort(key=lambda entry: entry.at)
        whole.next = None
        return whole

    async def history(self, run: str, after: int = 0, **options: Any) -> AsyncGenerator[models.EventResponse]:
        """Yield the recorded events of a run after a number, which `events` returns in pages."""
        more = True
        while more:
            page = await self.events(run=run, after=after, **options)
            for event in page.events:
                after = event.seq
                yield event
            more, after = page.more, page.next or after

    def read_artifact(self, run: str, name: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file that a step of a run has made, in parts; `artifacts` lists the names."""
        return self._transport.read_artifact(run, name)

    async def perform(self, name: str, arguments: dict[str, Any]) -> models.ApiResponse:
        """Execute one operation by name."""
        operation = OPERATIONS.get(name)
        if operation is None:
            raise ApiError("not_found", f"Unknown operation '{name}'")
        check_sendable(arguments)
        return await self._transport.perform(operation, arguments)

    async def send_command(self, command: Any) -> CommandReply:
        """Send a command by name: a `nerve.server.protocol.Command`, or a dict with `type` and `params`.

        The names are those of `CommandType`. A refused command returns a reply without `success`.
        """
        fields = command if isinstance(command, Mapping) else {"type": command.type, "params": command.params}
        payload = {"type": str(fields.get("type")), "params": dict(fields.get("params") or {})}
        check_sendable(payload)
        reply = await self._transport.send_command(payload)
        return CommandReply(bool(reply.get("success")), reply.get("data") or {}, reply.get("error"))

    def watch(self, run: str | None = None, after: int = 0) -> AsyncGenerator[models.EventResponse]:
        """Yield the events of a run after a number, then new ones until it ends; without a run, of all runs.

        After a run that continued as new follow the events of the next run of its chain, by its own numbers.
        A broken stream reconnects where it was. For one run, no event is missed. For all runs, an event `gap`
        reports that events may have been missed while the server restarted; its data are the snapshot to
        continue from, and `events(run=…, after=seq)` returns the missed events of a run.
        """
        return self._transport.watch(run, after)

    async def all_events(self) -> AsyncGenerator[models.EventResponse | None]:
        """Yield None, and then the events of all runs from now on; query the earlier state after the None.

        The stream ends with an ApiError when the connection breaks, and does not reconnect.
        """
        async with contextlib.aclosing(self._transport.all_events("")) as events:
            async for _, event in events:
                yield event

    def resumable_events(self, after: str = "") -> AsyncGenerator[tuple[str, models.EventResponse | None]]:
        """Yield the events of all runs after a cursor, each with the cursor from which a caller resumes.

        Without a cursor, or if events after it are not known any more, the first item has None instead of an
        event: query the current state then. The stream ends as that of `all_events` does.
        """
        return self._transport.all_events(after)

    async def close(self) -> None:
        """Release the connection; a session of the caller stays open."""
        await self._transport.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class InProcessTransport:
    """An API in this process."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def perform(self, operation: Operation, arguments: dict[str, Any]) -> models.ApiResponse:
        """Execute one operation in this process."""
        return await self._api.perform(operation.name, arguments)

    async def read_artifact(self, run: str, name: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of an artifact."""
        artifact = await self._api.open_artifact(run, name)
        async with contextlib.aclosing(artifact.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def send_command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute a command in this process."""
        from nerve.api.command_protocol import handle_command

        return await handle_command(self._api, command)

    async def watch(self, run: str | None, after: int) -> AsyncGenerator[models.EventResponse]:
        """Yield the events of a run, or of all runs, after the one numbered `after`."""
        lagged = True
        while lagged:
            lagged = False
            try:
                async for event in self._api.hub.watch(run, after):
                    if not event.is_of_child:
                        run, after = (event.run_id if run is not None else None), event.seq
                    yield event
            except ApiError as error:
                if error.code != "conflict" or run is None:
                    raise
                lagged = True

    def all_events(self, after: str) -> AsyncGenerator[tuple[str, models.EventResponse | None]]:
        """Yield the events of all runs after a cursor."""
        return self._api.hub.watch_all(after)

    async def close(self) -> None:
        """Do nothing: the session belongs to the caller."""


class StreamFinished(Exception):
    """A stream has ended for good."""


class HttpTransport:
    """An API over HTTP, on TCP or on a Unix socket."""

    def __init__(
        self,
        find: Callable[[], ServerAddress | None],
        timeout: float,
        patience: float,
        via: str | None = None,
    ) -> None:
        self._find_address, self._timeout, self._reconnect_timeout_s, self._via = find, timeout, patience, via
        self._address: ServerAddress | None = None
        self._http: httpx2.AsyncClient | None = None

    async def _connect(self) -> httpx2.AsyncClient:
        """Return the connections to the server's current address."""
        address = self._find_address() or self._address
        if address is None:
            raise ServerNotRunning
        if self._http is None or address != self._address:
            await self.close()
            self._address, self._http = address, make_http_client(address, self._timeout, self._via)
        return self._http

    async def perform(self, operation: Operation, arguments: dict[str, Any]) -> models.ApiResponse:
        """Execute one operation on the server."""
        import httpx2

        fields = parse_request(operation, arguments).model_dump(exclude_unset=True)
        if (key := operation.request_model.key_field) and fields.get(key) is None:
            fields[key] = secrets.token_hex(16)
        path = operation.path.format(
            **{name: quote_path_segment(str(value)) for name, value in fields.items()}
        )
        rest = {name: value for name, value in fields.items() if f"{{{name}}}" not in operation.path}
        options: dict[str, Any] = (
            {"json": rest} if operation.is_command else {"params": query_parameters(rest)}
        )
        if fields.get("wait") or operation.name == "route":  # an agent may decide the route
            options["timeout"] = httpx2.Timeout(self._timeout, read=None)
        response = await self._request(operation.method, path, options)
        if response.status_code >= 400:
            raise parse_error_response(response)
        try:
            return operation.response_model.model_validate_json(response.content)
        except ValueError:
            raise ApiError("internal", f"{operation.name}: unexpected response from the server") from None

    async def read_artifact(self, run: str, name: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of an artifact; raise ApiError if the connection breaks before its end."""
        import httpx2

        path = f"/api/runs/{quote_path_segment(run)}/artifacts/{quote_path_segment(name)}"
        http = await self._connect()
        try:
            async with http.stream("GET", path) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise parse_error_response(response)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx2.TransportError as error:
            raise unreachable_error(str(error) or type(error).__name__) from error

    async def send_command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Execute a command on the server."""
        import httpx2

        timeout = httpx2.Timeout(self._timeout, read=None if command["params"].get("wait") else self._timeout)
        key_header = {"Idempotency-Key": secrets.token_hex(16)}  # a broken connection is retried
        body = {"json": command, "timeout": timeout, "headers": key_header}
        response = await self._request("POST", "/api/command", body)
        try:
            reply = response.json()
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or "success" not in reply:
            raise parse_error_response(response)
        return reply

    async def _request(self, method: str, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Send a request; raise ApiError if no response arrives."""
        import httpx2

        try:
            return await self._send_with_retry(method, path, body)
        except httpx2.TimeoutException:
            raise unreachable_error(f"no answer within {self._timeout:g} seconds") from None
        except httpx2.TransportError as error:
            raise unreachable_error(str(error) or type(error).__name__) from error

    async def _send_with_retry(self, method: str, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Send a request, and once more over a new connection if the old one breaks.

        A server closes idle connections, possibly at the moment one is used again.
        """
        import httpx2

        http = await self._connect()
        try:
            return await http.request(method, path, **body)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            address = self._find_address() or self._address
            if address is None:
                raise
        async with make_http_client(address, self._timeout, self._via) as fresh:
            return await fresh.request(method, path, **body)

    async def watch(self, run: str | None, after: int) -> AsyncGenerator[models.EventResponse]:
        """Yield the events of a run, or of all runs, after the one numbered `after`; reconnects."""
        import httpx2

        path = "/events" if run is None else f"/events/workflow/{quote_path_segment(run)}"
        last, failures, since = str(after) if after else "", 0, loop_time()
        after_gap = False
        while True:
            why = "the stream ended"
            try:
                async for message in self._stream(path, last):
                    failures, since, last = 0, loop_time(), message.id or last
                    event = parse_event(message)
                    if event is None and message.event in ("gap", "snapshot"):
                        if after_gap and message.event == "snapshot":
                            yield gap_event(message)
                        after_gap = message.event == "gap"
                    elif event is not None:
                        yield event
                        is_end = event.event_type in RUN_END_EVENTS and continued_as(event) is None
                        if run is not None and is_end:
                            return
            except StreamFinished:
                return
            except httpx2.TransportError as error:
                why = str(error) or type(error).__name__
            except ApiError as error:
                if error.status < 500 and error.code != "too_many":
                    raise
                why = error.message
            if loop_time() - since > self._reconnect_timeout_s:
                raise unreachable_error(why)
            await asyncio.sleep(RECONNECT_DELAYS_S[min(failures, len(RECONNECT_DELAYS_S) - 1)])
            failures += 1

    async def all_events(self, after: str) -> AsyncGenerator[tuple[str, models.EventResponse | None]]:
        """Yield the events of all runs after a cursor; None for the snapshot of a new connection."""
        import httpx2

        try:
            async with contextlib.aclosing(self._stream("/events", after)) as messages:
                async for message in messages:
                    if (event := parse_event(message)) is not None:
                        yield message.id, event
                    elif message.event == "snapshot":
                        yield message.id, None
                    elif message.event == "lagged":
                        raise ApiError("conflict", "lagged: too many events at once", "Watch again.")
        except httpx2.TransportError as error:
            raise unreachable_error(str(error) or type(error).__name__) from error
        raise unreachable_error("the stream ended")

    async def _stream(self, path: str, last: str) -> AsyncGenerator[httpx2.ServerSentEvent]:
        import httpx2

        http = await self._connect()
        quiet = httpx2.Timeout(self._timeout, read=STREAM_SILENCE_S)
        headers = {"Last-Event-ID": last} if last else {}
        async with http.sse(path, headers=headers, timeout=quiet, max_event_size=MAX_EVENT_BYTES) as source:
            if source.response.status_code == 204:
                raise StreamFinished
            if source.response.status_code != 200:
                await source.response.aread()
                raise parse_error_response(source.response)
            async for message in source:
                yield message

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._http is not None:
            http, self._http = self._http, None
            await http.aclose()


def make_http_client(address: ServerAddress, timeout: float, via: str | None = None) -> httpx2.AsyncClient:
    import httpx2

    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    headers |= {"X-Nerve-Client": via} if via else {}
    transport = httpx2.AsyncHTTPTransport(uds=address.socket) if address.socket else None
    return httpx2.AsyncClient(
        base_url=address.url, headers=headers, timeout=timeout, transport=transport, trust_env=False
    )


def check_sendable(value: dict[str, Any]) -> None:
    """Reject values that cannot be sent as JSON, so that every transport accepts the same."""
    try:
        parse_strict_json(encode_json(value, max_depth=None), MAX_NESTING_DEPTH)
    except (NotJson, ValueError) as error:
        raise ApiError("bad_request", f"Arguments are not valid JSON: {error}", "Pass plain data.") from None


def quote_path_segment(name: str) -> str:
    """Quote a name as one path segment; clients and servers would resolve dots as another path."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def query_parameters(fields: dict[str, Any]) -> dict[str, str | list[str]]:
    """Return the fields as query parameters, which are strings; those of a list are repeated."""
    return {name: query_parameter(name, value) for name, value in fields.items() if value is not None}


def query_parameter(name: str, value: Any) -> str | list[str]:
    if name == "pattern":
        return fact_pattern_text(value)
    return list(map(str, value)) if isinstance(value, list) else str(value)


def fact_pattern_text(value: Any) -> str:
    """Return a pattern as text; raise ApiError if it is invalid."""
    from nerve.dataspace import Pattern

    try:
        return value if isinstance(value, str) else str(Pattern.of(value))
    except (NerveError, ValueError, TypeError) as error:
        raise to_api_error(error) from None


def parse_event(message: httpx2.ServerSentEvent) -> models.EventResponse | None:
    """Return the event in a message of a stream; None for other messages."""
    try:
        return models.EventResponse.model_validate_json(message.data)
    except ValueError:
        return None


def gap_event(snapshot: httpx2.ServerSentEvent) -> models.EventResponse:
    """Return an event that reports missed events, with the current snapshot."""
    data = json.loads(snapshot.data)
    return models.EventResponse(
        seq=data.get("last_seq", 0),
        run_id=data.get("run_id", ""),
        workflow_id=data.get("workflow", ""),
        event_type="gap",
        path="",
        timestamp=datetime.now(UTC),
        data=data,
    )


def parse_error_response(response: httpx2.Response) -> ApiError:
    """Return the error in a server's response."""
    try:
        payload = response.json()
        return ApiError.from_dict(payload.get("error", payload))
    except (ValueError, AttributeError):
        code = next(
            (code for code, status in STATUS_BY_CODE.items() if status == response.status_code), "internal"
        )
        return ApiError(code, f"Server responded with {response.status_code}: {response.text[:200]}")


UNREACHABLE_FIX = "Start it: nerve serve"


def unreachable_error(reason: str) -> ApiError:
    return ApiError("busy", f"Cannot reach the server: {reason}", UNREACHABLE_FIX)


class ServerNotRunning(ApiError):
    """No server was found, so nothing was sent."""

    def __init__(self) -> None:
        super().__init__("busy", "Cannot reach the server: it is not running", UNREACHABLE_FIX)


def loop_time() -> float:
    return asyncio.get_running_loop().time()
