"""The routes: one for each operation, and the few that belong to HTTP itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response

from nerve.api import OPERATIONS, Api, ApiError, Operation
from nerve.api.scopes import scope_of
from nerve.server.auth import Auth, need
from nerve.server.body import add_key, read_body
from nerve.server.callers import asking
from nerve.server.openapi import document
from nerve.server.stream import Streams
from nerve.server.way import Endpoint, Way

if TYPE_CHECKING:
    from starlette.requests import Request


def ways(api: Api, auth: Auth, streams: Streams) -> list[Way]:
    """Every route of HTTP."""
    described = document()

    async def openapi(request: Request) -> Response:
        return JSONResponse(described)

    async def alive(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def launch_code(request: Request) -> Response:
        await read_body(request)
        return JSONResponse({"code": auth.launch_code()})

    async def sign_in(request: Request) -> Response:
        if request.headers.get("x-nerve") != "1":
            raise ApiError("forbidden", "the header X-Nerve is missing", "Send: X-Nerve: 1")
        code = (await read_body(request)).get("code")
        cookie = auth.sign_in(request.scope, code if isinstance(code, str) else "")
        return JSONResponse({"done": True}, headers={"set-cookie": cookie})

    return [
        Way("GET", "/", "open", static("index.html", "text/html")),
        Way("GET", "/nerve.js", "open", static("nerve.js", "text/javascript")),
        Way("GET", "/healthz", "open", alive),
        Way("POST", "/api/sign-in", "open", sign_in),
        Way("POST", "/api/launch-codes", "admin", launch_code),
        Way("GET", "/api/openapi.json", "read", openapi),
        Way("GET", "/events", "read", streams.all),
        Way("GET", "/events/workflow/{run_id}", "read", streams.run),
        *(Way(each.method, each.path, each.scope, endpoint(api, each)) for each in OPERATIONS.values()),
    ]


def static(name: str, kind: str) -> Endpoint:
    """A file that says nothing about the project, so that anybody may have it."""
    text = (Path(__file__).parent / "static" / name).read_bytes()

    async def told(request: Request) -> Response:
        return Response(text, media_type=kind)

    return told


def endpoint(api: Api, operation: Operation) -> Endpoint:
    async def perform(request: Request) -> Response:
        given = await (asked_in_body(request, operation) if operation.changes else asked_in_query(request))
        need(request.scope["nerve.caller"], scope_of(operation, given))
        told = await api.asked_by(asking(request.scope)).perform(operation.name, given)
        return Response(told.model_dump_json(), media_type="application/json")

    return perform


async def asked_in_query(request: Request) -> dict[str, Any]:
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) < len(pairs):
        raise ApiError("bad_request", "a parameter is given twice")
    return with_path(request, given)


async def asked_in_body(request: Request, operation: Operation) -> dict[str, Any]:
    if request.query_params:
        raise ApiError("bad_request", "a command takes no parameters in the address", "Put them in the body.")
    given = with_path(request, await read_body(request))
    if operation.asks.keyed_by:
        add_key(given, operation.asks.keyed_by, request.headers.get("idempotency-key"))
    return given


def with_path(request: Request, given: dict[str, Any]) -> dict[str, Any]:
    """What the path names is given, and nothing else may say otherwise."""
    for name, quoted in request.path_params.items():
        value = unquote(quoted)
        if given.setdefault(name, value) != value:
            raise ApiError(
                "bad_request", f"'{name}' is given twice, and not the same", "Give it in the path."
            )
    return given
