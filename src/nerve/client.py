"""The client: every operation of the api, in this process or over HTTP and a Unix socket, by one class."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from nerve.api import models
from nerve.api.callers import person
from nerve.api.errors import STATUS, ApiError, told
from nerve.api.operations import OPERATIONS, Operation
from nerve.api.reading import DEEPEST, read
from nerve.core.event import ENDS
from nerve.core.values import encode, read_json
from nerve.errors import NerveError, NotJson
from nerve.ownership import is_own_server
from nerve.places import Places, secret

if TYPE_CHECKING:
    import httpx2

    from nerve.api import Api

SERVER = Path(".nerve/server.json")
"""Where the server of a project says that it is there, and its address for browsers."""
SILENCE = 60.0
"""Seconds without a heartbeat after which a stream is opened again."""
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between the attempts to reach a server that is gone; the last again and again."""
LARGEST = 64 * 2**20

T = TypeVar("T", bound=models.Told)


@dataclass(frozen=True, slots=True)
class Where:
    """How a server is reached."""

    url: str
    token: str | None = None
    socket: str | None = None


@dataclass(frozen=True, slots=True)
class CommandReply:
    """What came of a command: `data` of one that was done, `error` of one that was not."""

    success: bool
    data: dict[str, Any]
    error: str | None = None


class Line(Protocol):
    """What is between a client and its api."""

    async def perform(self, operation: Operation, given: dict[str, Any]) -> models.Told:
        """Do one operation and return its reply; ApiError says why not."""

    def watch(self, run: str | None, after: int) -> AsyncGenerator[models.EventTold]:
        """Yield the events of a run, or of all runs, after the one numbered `after`."""

    def news(self) -> AsyncGenerator[models.EventTold | None]:
        """Yield the events of all runs as they happen; None when some may have been missed."""

    async def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do `{"type": …, "params": {…}}` and return the reply."""

    async def close(self) -> None:
        """Release the connection."""


class Call(Generic[T]):
    """A method of the client: the operation of its name."""

    def __init__(self, tells: type[T]) -> None:
        self.tells = tells

    def __set_name__(self, owner: type[Client], name: str) -> None:
        self.name = name
        self.__doc__ = OPERATIONS[name].summary

    def __get__(self, client: Client, owner: type[Client]) -> Callable[..., Awaitable[T]]:
        async def call(**given: Any) -> T:
            reply: Any = await client.perform(self.name, given)
            return reply  # type: ignore[no-any-return]

        call.__name__, call.__doc__ = self.name, self.__doc__
        return call


class Client:
    """`Client(api)`, `Client("http://127.0.0.1:1234", token=…)` or `Client.of_project(".")`.

    Each operation is a method that takes what its request model has and gives its reply model:
    `await client.start(workflow="hello", input="you")`. What is not done raises ApiError.

    Over a wire every command has a key, if need be one of its own: where a connection breaks before the
    answer has come, the same is asked once more over a new one, and done once.
    """

    define = Call(models.WorkflowTold)
    start = Call(models.RunTold)
    answer = Call(models.Answered)
    signal = Call(models.Done)
    assert_fact = Call(models.FactTold)
    retract = Call(models.FactsTold)
    pause = Call(models.RunTold)
    resume = Call(models.RunTold)
    steer = Call(models.Steered)
    stop = Call(models.RunTold)
    fork = Call(models.RunTold)
    retry = Call(models.RunTold)
    skip = Call(models.RunTold)
    route = Call(models.RouteTold)
    reload = Call(models.Reloaded)
    collect = Call(models.Collected)
    workflows = Call(models.Workflows)
    workflow = Call(models.WorkflowTold)
    definitions = Call(models.Definitions)
    runs = Call(models.Runs)
    run = Call(models.RunDetail)
    events = Call(models.Events)
    gates = Call(models.Gates)
    facts = Call(models.FactsTold)
    usage = Call(models.UsageTold)
    sessions = Call(models.Sessions)
    threads = Call(models.Threads)
    health = Call(models.Health)

    def __init__(
        self,
        to: Api | str | Callable[[], Where | None],
        *,
        token: str | None = None,
        socket: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        via: str | None = None,
    ) -> None:
        """`timeout` is for one request; `patience` for how long a stream looks for a server that is gone.

        `via` is the screen that a person sits before, `cli` or `commander`; answers are recorded with it.
        """
        self._line: Line
        if isinstance(to, str):
            where = Where(to, token, socket)
            self._line = Wire(lambda: where, timeout, patience, via)
        elif callable(to):
            self._line = Wire(to, timeout, patience, via)
        else:
            self._line = Direct(to if via is None else to.asked_by(person(via)))

    @classmethod
    def of_project(cls, folder: str | os.PathLike[str] = ".", **options: Any) -> Client | None:
        """A client of the server that runs for a project; None if there is none.

        A server that is started again elsewhere is found again.
        """
        root = Path(folder)
        return cls(lambda: server_of(root), **options) if server_of(root) is not None else None

    async def perform(self, name: str, given: dict[str, Any]) -> models.Told:
        """Do one operation by its name."""
        operation = OPERATIONS.get(name)
        if operation is None:
            raise ApiError("not_found", f"there is no operation '{name}'")
        check_sendable(given)
        return await self._line.perform(operation, given)

    async def send_command(self, command: Any) -> CommandReply:
        """Send a command by its name: a `nerve.server.commands.Command`, or a dict with `type` and `params`.

        The names are those of `CommandType`. A command that is refused is a reply without `success`.
        """
        told = command if isinstance(command, Mapping) else {"type": command.type, "params": command.params}
        given = {"type": str(told.get("type")), "params": dict(told.get("params") or {})}
        check_sendable(given)
        reply = await self._line.command(given)
        return CommandReply(bool(reply.get("success")), reply.get("data") or {}, reply.get("error"))

    def watch(self, run: str | None = None, after: int = 0) -> AsyncGenerator[models.EventTold]:
        """The events of a run behind a number and as they come, until it ends; without a run, of all.

        A stream that breaks is opened again where it was. Of one run nothing is left out. What came of all
        while a server was started again is told of by an event `gap`, whose data are the snapshot from which
        it goes on; it is not filled: what a run did meanwhile is in `events(run=…, after=seq)`.
        """
        return self._line.watch(run, after)

    def news(self) -> AsyncGenerator[models.EventTold | None]:
        """The events of all runs from now on, behind a None: what was before is to be asked for after it.

        It ends when the stream breaks, by an ApiError, and is not opened again by itself.
        """
        return self._line.news()

    async def close(self) -> None:
        """Release the connection; a session that was given stays open."""
        await self._line.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def server_of(folder: Path) -> Where | None:
    """How the server of a project is reached, if its process is there.

    A project may come from anywhere: what is believed is where a server of ours puts its socket and token.
    """
    places = Places.of(folder)
    try:
        if about_server(places) is None:
            return None
        token = secret(places.token).strip()
    except (OSError, ValueError):
        return None
    if server_process(folder) is None:  # another process may have its number by now
        return None
    return Where("http://localhost", token, str(places.socket))


def server_process(folder: Path) -> int | None:
    """The process that listens on the socket of a project, if it is one of this user; the kernel says so."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(os.fspath(Places.of(folder).socket))
            pid, user, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return None
    return pid if user == os.getuid() else None


def about_server(places: Places) -> dict[str, Any] | None:
    """What the server of a project says of itself, if it is ours and its process is there."""
    try:
        about = json.loads(secret(places.server))
        if places.links or about["pid"] <= 0 or not is_own_server(places.server, about):
            return None
        os.kill(about["pid"], 0)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return dict(about)


class Direct:
    """An api in this process."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def perform(self, operation: Operation, given: dict[str, Any]) -> models.Told:
        """Do one operation in this process."""
        return await self._api.perform(operation.name, given)

    async def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do a command in this process."""
        from nerve.server.commands import handle

        return await handle(self._api, command)

    async def watch(self, run: str | None, after: int) -> AsyncGenerator[models.EventTold]:
        """Yield the events of a run, or of all runs, after the one numbered `after`."""
        lagged = True
        while lagged:
            lagged = False
            try:
                async for event in self._api.hub.watch(run, after):
                    after = after if event.is_of_child else event.seq
                    yield event
            except ApiError as error:
                if error.code != "conflict" or run is None:
                    raise
                lagged = True

    async def news(self) -> AsyncGenerator[models.EventTold | None]:
        """Yield the events of all runs as they happen."""
        async with contextlib.aclosing(self._api.hub.watch_all()) as everything:
            async for _, event in everything:
                yield event

    async def close(self) -> None:
        """Do nothing: the session belongs to the caller."""


class Over(Exception):
    """A stream has nothing more to come back for."""


class Wire:
    """An api behind HTTP, on TCP or on a Unix socket."""

    def __init__(
        self, find: Callable[[], Where | None], timeout: float, patience: float, via: str | None = None
    ) -> None:
        self._find, self._timeout, self._patience, self._via = find, timeout, patience, via
        self._where: Where | None = None
        self._http: httpx2.AsyncClient | None = None

    async def _connected(self) -> httpx2.AsyncClient:
        """The connections to where the server is now."""
        where = self._find() or self._where
        if where is None:
            raise unreachable("it is not running")
        if self._http is None or where != self._where:
            await self.close()
            self._where, self._http = where, connections(where, self._timeout, self._via)
        return self._http

    async def perform(self, operation: Operation, given: dict[str, Any]) -> models.Told:
        """Do one operation at the server."""
        import httpx2

        asked = read(operation, given).model_dump(exclude_unset=True)
        if (key := operation.asks.keyed_by) and asked.get(key) is None:
            asked[key] = secrets.token_hex(16)
        path = operation.path.format(**{name: in_path(str(value)) for name, value in asked.items()})
        rest = {name: value for name, value in asked.items() if f"{{{name}}}" not in operation.path}
        body: dict[str, Any] = {"json": rest} if operation.changes else {"params": in_query(rest)}
        if asked.get("wait") or operation.name == "route":  # which may be an agent's to decide
            body["timeout"] = httpx2.Timeout(self._timeout, read=None)
        response = await self._reached(operation.method, path, body)
        if response.status_code >= 400:
            raise error_in(response)
        try:
            return operation.tells.model_validate_json(response.content)
        except ValueError:
            raise ApiError(
                "internal", f"{operation.name}: what the server said is no reply to that"
            ) from None

    async def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do a command at the server."""
        import httpx2

        timeout = httpx2.Timeout(self._timeout, read=None if command["params"].get("wait") else self._timeout)
        once = {"Idempotency-Key": secrets.token_hex(16)}  # a connection that breaks is asked again
        body = {"json": command, "timeout": timeout, "headers": once}
        response = await self._reached("POST", "/api/command", body)
        try:
            reply = response.json()
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or "success" not in reply:
            raise error_in(response)
        return reply

    async def _reached(self, method: str, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Ask; ApiError where no answer comes."""
        import httpx2

        try:
            return await self._asked(method, path, body)
        except httpx2.TimeoutException:
            raise unreachable(f"no answer within {self._timeout:g} seconds") from None
        except httpx2.TransportError as error:
            raise unreachable(str(error) or type(error).__name__) from error

    async def _asked(self, method: str, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Ask, and once more over a new connection if the old one breaks.

        A server closes connections that nobody uses, and may do so just as one is used again.
        """
        import httpx2

        http = await self._connected()
        try:
            return await http.request(method, path, **body)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            where = self._find() or self._where
            if where is None:
                raise
        async with connections(where, self._timeout, self._via) as fresh:
            return await fresh.request(method, path, **body)

    async def watch(self, run: str | None, after: int) -> AsyncGenerator[models.EventTold]:
        """Yield the events of a run, or of all runs, after the one numbered `after`; reconnects."""
        import httpx2

        path = "/events" if run is None else f"/events/workflow/{in_path(run)}"
        last, failures, since = str(after) if after else "", 0, now()
        behind_gap = False
        while True:
            why = "the stream ended"
            try:
                async for sent in self._stream(path, last):
                    failures, since, last = 0, now(), sent.id or last
                    event = event_in(sent)
                    if event is None and sent.event in ("gap", "snapshot"):
                        if behind_gap and sent.event == "snapshot":
                            yield gap_told(sent)
                        behind_gap = sent.event == "gap"
                    elif event is not None:
                        yield event
                        if run is not None and event.event_type in ENDS:
                            return
            except Over:
                return
            except httpx2.TransportError as error:
                why = str(error) or type(error).__name__
            except ApiError as error:
                if error.status < 500 and error.code != "too_many":
                    raise
                why = error.message
            if now() - since > self._patience:
                raise unreachable(why)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def news(self) -> AsyncGenerator[models.EventTold | None]:
        """Yield the events of all runs as they happen; None after a new connection."""
        import httpx2

        try:
            async with contextlib.aclosing(self._stream("/events", "")) as messages:
                async for sent in messages:
                    if (event := event_in(sent)) is not None:
                        yield event
                    elif sent.event == "snapshot":
                        yield None
                    elif sent.event == "lagged":
                        raise ApiError("conflict", "lagged: too many events at once", "Watch again.")
        except httpx2.TransportError as error:
            raise unreachable(str(error) or type(error).__name__) from error
        raise unreachable("the stream ended")

    async def _stream(self, path: str, last: str) -> AsyncGenerator[httpx2.ServerSentEvent]:
        import httpx2

        http = await self._connected()
        quiet = httpx2.Timeout(self._timeout, read=SILENCE)
        headers = {"Last-Event-ID": last} if last else {}
        async with http.sse(path, headers=headers, timeout=quiet, max_event_size=LARGEST) as source:
            if source.response.status_code == 204:
                raise Over
            if source.response.status_code != 200:
                await source.response.aread()
                raise error_in(source.response)
            async for sent in source:
                yield sent

    async def close(self) -> None:
        """Close the connections to the server."""
        if self._http is not None:
            http, self._http = self._http, None
            await http.aclose()


def connections(where: Where, timeout: float, via: str | None = None) -> httpx2.AsyncClient:
    import httpx2

    headers = {"Authorization": f"Bearer {where.token}"} if where.token else {}
    headers |= {"X-Nerve-Client": via} if via else {}
    transport = httpx2.AsyncHTTPTransport(uds=where.socket) if where.socket else None
    return httpx2.AsyncClient(
        base_url=where.url, headers=headers, timeout=timeout, transport=transport, trust_env=False
    )


def check_sendable(given: dict[str, Any]) -> None:
    """Refuse what no server would take, so that the same is taken whatever is between."""
    try:
        read_json(encode(given, deep=None), DEEPEST)
    except (NotJson, ValueError) as error:
        raise ApiError("bad_request", f"that is no JSON: {error}", "Give plain data.") from None


def in_path(name: str) -> str:
    """A name as one part of a path; clients and servers take dots alone for another path."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def in_query(asked: dict[str, Any]) -> dict[str, str]:
    """What is asked for as the parameters of a query, which are texts."""
    return {
        name: pattern_text(value) if name == "pattern" else str(value)
        for name, value in asked.items()
        if value is not None
    }


def pattern_text(value: Any) -> str:
    """A pattern as text; ApiError if it is none."""
    from nerve.dataspace import Pattern

    try:
        return value if isinstance(value, str) else str(Pattern.of(value))
    except (NerveError, ValueError, TypeError) as error:
        raise told(error) from None


def event_in(sent: httpx2.ServerSentEvent) -> models.EventTold | None:
    """The event of a run in what a stream sent; None for anything else."""
    try:
        return models.EventTold.model_validate_json(sent.data)
    except ValueError:
        return None


def gap_told(snapshot: httpx2.ServerSentEvent) -> models.EventTold:
    """That events were missed, and how it stands now, in their place."""
    data = json.loads(snapshot.data)
    return models.EventTold(
        seq=data.get("last_seq", 0),
        run_id=data.get("run_id", ""),
        workflow_id=data.get("workflow", ""),
        event_type="gap",
        path="",
        timestamp=datetime.now(UTC),
        data=data,
    )


def error_in(response: httpx2.Response) -> ApiError:
    """Why a server did not do something."""
    try:
        said = response.json()
        return ApiError.read(said.get("error", said))
    except (ValueError, AttributeError):
        code = next((code for code, status in STATUS.items() if status == response.status_code), "internal")
        return ApiError(code, f"the server said {response.status_code}: {response.text[:200]}")


def unreachable(why: str) -> ApiError:
    return ApiError("busy", f"the server cannot be reached: {why}", "Start it: nerve serve")


def now() -> float:
    return asyncio.get_running_loop().time()
