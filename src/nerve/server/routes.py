"""HTTP routes: one per API operation, plus sign-in and event streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nerve.api import OPERATIONS, Api, ApiError, Operation, command_protocol, conversation
from nerve.api.errors import STATUS_BY_CODE
from nerve.api.permissions import require_scope
from nerve.api.request_parsing import add_idempotency_key
from nerve.core.trace_context import TraceParent
from nerve.router.run_messages import MessageMode
from nerve.server.artifact_response import ARTIFACT_PATH, respond_with_artifact
from nerve.server.auth import CROSS_SITE_PATHS, Auth, caller_of_request
from nerve.server.openapi import openapi_document
from nerve.server.request_body import read_body
from nerve.server.sse import SseEndpoints

if TYPE_CHECKING:
    from nerve.session import Session

Endpoint = Callable[[Request], Awaitable[Response]]
OPEN_PATHS = frozenset({"/", "/healthz", "/api/sign-in", "/sign-in", "/sign-in/oidc"} | CROSS_SITE_PATHS)
"""Paths that need no token; static files need none either."""


def build_routes(api: Api, auth: Auth, streams: SseEndpoints) -> list[Route]:
    """Return all HTTP routes except the legacy ones. Every token may read; `Api` checks the operations."""
    schema = openapi_document()

    async def openapi(request: Request) -> Response:
        return JSONResponse(schema)

    async def alive(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        require_scope(caller_of_request(request.scope), "read")
        # Imported here: few servers are asked for metrics.
        from nerve.telemetry.prometheus_text import CONTENT_TYPE, format_metrics

        async def measure(session: Session) -> str:
            measured = session.metrics
            if api.hub.collect not in measured.sources:
                measured.sources.append(api.hub.collect)
            return format_metrics(measured.collect())

        text = await api.measure(measure)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def launch_code(request: Request) -> Response:
        require_scope(caller_of_request(request.scope), "admin")
        await read_body(request)
        return JSONResponse({"code": auth.create_launch_code()})

    async def sign_in(request: Request) -> Response:
        if request.headers.get("x-nerve") != "1":
            raise ApiError("forbidden", "Missing header X-Nerve", "Send: X-Nerve: 1")
        body = await read_body(request)
        code, token = body.get("code"), body.get("token")
        if isinstance(token, str):
            cookie = auth.make_cookie(request.scope, await auth.authenticate_token(token))
        else:
            cookie = auth.sign_in(request.scope, code if isinstance(code, str) else "")
        return JSONResponse({"done": True}, headers={"set-cookie": cookie})

    async def artifact(request: Request) -> Response:
        run, name = (unquote(request.path_params[field]) for field in ("run", "name"))
        opened = await api.as_caller(caller_of_request(request.scope)).open_artifact(run, name)
        return respond_with_artifact(opened, request.method)

    return [
        Route("/healthz", alive),
        Route("/metrics", metrics),
        Route("/api/sign-in", sign_in, methods=["POST"]),
        Route("/api/launch-codes", launch_code, methods=["POST"]),
        Route("/api/openapi.json", openapi),
        Route("/events", streams.all_events),
        Route("/events/workflow/{run_id}", streams.run_events),
        Route(ARTIFACT_PATH.replace("{name}", "{name:path}"), artifact),
        *(
            Route(operation.path, operation_endpoint(api, operation), methods=[operation.method])
            for operation in OPERATIONS.values()
        ),
    ]


def operation_endpoint(api: Api, operation: Operation) -> Endpoint:
    async def perform(request: Request) -> Response:
        arguments = await (
            read_body_arguments(request, operation)
            if operation.is_command
            else read_query_arguments(request, operation)
        )
        response = await api.as_caller(caller_of_request(request.scope)).perform(operation.name, arguments)
        return Response(response.model_dump_json(), media_type="application/json")

    return perform


async def read_query_arguments(request: Request, operation: Operation) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in arguments:
            arguments[name] = value
        elif name in operation.list_fields:
            arguments[name] = [*as_list(arguments[name]), value]
        else:
            raise ApiError("bad_request", f"The query parameter '{name}' is given twice")
    return with_path_arguments(request, arguments)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


async def read_body_arguments(request: Request, operation: Operation) -> dict[str, Any]:
    if request.query_params:
        raise ApiError("bad_request", "A command does not accept query parameters", "Send them in the body.")
    arguments = with_path_arguments(request, await read_body(request))
    if operation.request_model.key_field:
        add_idempotency_key(
            arguments, operation.request_model.key_field, request.headers.get("idempotency-key")
        )
    # A body is explicit; of a header that is not valid, the standard says that it is ignored.
    if "traceparent" in operation.request_model.model_fields and (
        parent := TraceParent.parse(request.headers.get("traceparent"))
    ):
        arguments.setdefault("traceparent", str(parent))
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


# -- routes of the seeds -------------------------------------------------------------------------------


def build_legacy_routes(api: Api) -> list[Route]:
    async def command(request: Request) -> Response:
        fields = command_protocol.with_idempotency_key(
            await read_body(request), request.headers.get("idempotency-key")
        )
        reply = await command_protocol.handle_command(api.as_caller(caller_of_request(request.scope)), fields)
        return JSONResponse(reply, STATUS_BY_CODE[reply["code"]] if "code" in reply else 200)

    async def message(request: Request) -> Response:
        caller = caller_of_request(request.scope)
        require_scope(caller, conversation.MESSAGE_OPERATION.scope)
        fields = await read_body_arguments(request, conversation.MESSAGE_OPERATION)
        key = fields.pop("key", None)
        values = [fields.pop(name, None) for name in ("conversationId", "message")]
        if fields or not all(isinstance(value, str) for value in values):
            fix = 'Send {"conversationId": "…", "message": "…"}'
            raise ApiError("bad_request", "A message requires conversationId and message", fix)
        response = await conversation.handle_message(api.as_caller(caller), values[0], values[1], key)
        return JSONResponse(response.model_dump(mode="json"))

    async def messages(request: Request) -> Response:
        mode: Any = request.query_params.get("mode", "batch")
        if mode not in get_args(MessageMode):
            raise ApiError(
                "bad_request", f"Unknown mode '{mode}'", f"Modes: {', '.join(get_args(MessageMode))}."
            )
        id = unquote(request.path_params["id"])

        async def read(session: Session) -> list[conversation.ConversationMessage]:
            return conversation.conversation_messages(Api(session), id, mode)

        entries = await api.read(read)
        return JSONResponse({"messages": [entry.to_dict() for entry in entries]})

    return [
        Route("/api/command", command, methods=["POST"]),
        Route("/test/message", message, methods=["POST"]),
        Route("/test/messages/{id}", messages),
    ]
