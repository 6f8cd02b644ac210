"""HTTP routes: one per API operation, plus sign-in, static files and event streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response

from nerve.api import OPERATIONS, Api, ApiError, Operation
from nerve.api.request_parsing import add_idempotency_key
from nerve.api.scopes import required_scope
from nerve.server.auth import Auth, require_scope
from nerve.server.guarded_route import Endpoint, GuardedRoute
from nerve.server.openapi import openapi_document
from nerve.server.request_body import read_body
from nerve.server.request_caller import caller_of_request
from nerve.server.sse import SseEndpoints

if TYPE_CHECKING:
    from starlette.requests import Request


def build_routes(api: Api, auth: Auth, streams: SseEndpoints) -> list[GuardedRoute]:
    """Return all HTTP routes except the legacy ones."""
    schema = openapi_document()

    async def openapi(request: Request) -> Response:
        return JSONResponse(schema)

    async def alive(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def launch_code(request: Request) -> Response:
        await read_body(request)
        return JSONResponse({"code": auth.create_launch_code()})

    async def sign_in(request: Request) -> Response:
        if request.headers.get("x-nerve") != "1":
            raise ApiError("forbidden", "Missing header X-Nerve", "Send: X-Nerve: 1")
        code = (await read_body(request)).get("code")
        cookie = auth.sign_in(request.scope, code if isinstance(code, str) else "")
        return JSONResponse({"done": True}, headers={"set-cookie": cookie})

    return [
        GuardedRoute("GET", "/", "open", static_file_endpoint("index.html", "text/html")),
        GuardedRoute("GET", "/nerve.js", "open", static_file_endpoint("nerve.js", "text/javascript")),
        GuardedRoute("GET", "/healthz", "open", alive),
        GuardedRoute("POST", "/api/sign-in", "open", sign_in),
        GuardedRoute("POST", "/api/launch-codes", "admin", launch_code),
        GuardedRoute("GET", "/api/openapi.json", "read", openapi),
        GuardedRoute("GET", "/events", "read", streams.all_events),
        GuardedRoute("GET", "/events/workflow/{run_id}", "read", streams.run_events),
        *(
            GuardedRoute(
                operation.method, operation.path, operation.scope, operation_endpoint(api, operation)
            )
            for operation in OPERATIONS.values()
        ),
    ]


def static_file_endpoint(name: str, kind: str) -> Endpoint:
    """Return an endpoint for a static file, which is public because it contains no project data."""
    text = (Path(__file__).parent / "static" / name).read_bytes()

    async def serve_file(request: Request) -> Response:
        return Response(text, media_type=kind)

    return serve_file


def operation_endpoint(api: Api, operation: Operation) -> Endpoint:
    async def perform(request: Request) -> Response:
        arguments = await (
            read_body_arguments(request, operation) if operation.is_command else read_query_arguments(request)
        )
        require_scope(request.scope["nerve.caller"], required_scope(operation, arguments))
        response = await api.as_caller(caller_of_request(request.scope)).perform(operation.name, arguments)
        return Response(response.model_dump_json(), media_type="application/json")

    return perform


async def read_query_arguments(request: Request) -> dict[str, Any]:
    pairs = request.query_params.multi_items()
    arguments = dict(pairs)
    if len(arguments) < len(pairs):
        raise ApiError("bad_request", "A query parameter is given twice")
    return with_path_arguments(request, arguments)


async def read_body_arguments(request: Request, operation: Operation) -> dict[str, Any]:
    if request.query_params:
        raise ApiError("bad_request", "A command does not accept query parameters", "Send them in the body.")
    arguments = with_path_arguments(request, await read_body(request))
    if operation.request_model.key_field:
        add_idempotency_key(
            arguments, operation.request_model.key_field, request.headers.get("idempotency-key")
        )
    return arguments


def with_path_arguments(request: Request, arguments: dict[str, Any]) -> dict[str, Any]:
    """Add the path parameters; raise ApiError if the query or body has another value."""
    for name, quoted in request.path_params.items():
        value = unquote(quoted)
        if arguments.setdefault(name, value) != value:
            raise ApiError(
                "bad_request", f"'{name}' differs between path and parameters", "Send it only in the path."
            )
    return arguments
