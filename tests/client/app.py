"""The real server on a free loopback port or a Unix socket, with streams that can be cut."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nerve.api import Api, ApiError
from nerve.project.ownership import sign_server
from nerve.project.paths import ProjectPaths
from nerve.server.app import ServerApp, error_response
from nerve.server.auth import Auth
from nerve.server.bind import bind_tcp, bind_unix
from nerve.server.uvicorn_server import run_server

TOKEN = "secret-" * 6 + "1"


class Served(ServerApp):
    """`cuts` sets after how many events each stream breaks, `refusing` how many streams are refused.

    `drops` sets for each request whether its connection is cut `before` it is read or `after` it is executed.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api, Auth({"admin": TOKEN}), heartbeat=15)
        self.cuts, self.asked, self.refusing = list[int](), list[str | None](), 0
        self.drops, self.peers = list[str](), list[Any]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/events"):
            await self.dropped(scope, receive, send)
        elif self.refusing:
            self.refusing -= 1
            await error_response(ApiError("busy", "not now"))(scope, receive, send)
        else:
            self.asked.append(dict(scope["headers"]).get(b"last-event-id", b"").decode())
            await super().__call__(scope, receive, self.cut(scope, send) if self.cuts else send)

    async def dropped(self, scope: Any, receive: Any, send: Any) -> None:
        self.peers.append(scope["client"])
        when = self.drops.pop(0) if self.drops else ""
        if when == "before":
            scope["state"]["abort"]()
            return

        async def sent(message: Any) -> None:
            if when == "after":
                scope["state"]["abort"]()
            await send(message)

        await super().__call__(scope, receive, sent)

    def cut(self, scope: Any, send: Any) -> Any:
        left = self.cuts.pop(0)

        async def sent(message: Any) -> None:
            nonlocal left
            # One message may have several events.
            *events, rest = re.split(rb"(?<=\n\n)(?=id:)", message.get("body", b""))
            events = [*events, rest] if rest.startswith(b"id:") else []
            if len(events) > left:
                await send({**message, "body": b"".join(events[:left]), "more_body": True})
                scope["state"]["abort"]()
            left -= len(events)
            await send(message)

        return sent


@asynccontextmanager
async def serving(app: ServerApp, at: Path | None = None) -> AsyncIterator[str]:
    """Serve the app and yield its address."""
    bound = bind_unix(at) if at else bind_tcp("127.0.0.1", 0)
    async with run_server(app, [bound]):
        yield "http://localhost" if at else f"http://127.0.0.1:{bound.getsockname()[1]}"


def told(path: Path, pid: int) -> None:
    """Write the files that a project's server writes."""
    places = ProjectPaths.of(path)
    places.private.mkdir(exist_ok=True, parents=True, mode=0o700)
    about = {"url": "http://127.0.0.1:1", "socket": str(places.socket), "pid": pid}
    signed = json.dumps(sign_server(places.server, about))
    for file, text in (places.token, TOKEN + "\n"), (places.server, signed):
        file.touch(0o600)
        file.write_text(text)
