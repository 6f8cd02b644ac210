"""Routes defined by the seeds: commands, and a test conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nerve.api import Api, ApiError, command_protocol, conversation
from nerve.api.errors import STATUS_BY_CODE
from nerve.api.permissions import require_scope
from nerve.router.run_messages import MessageMode
from nerve.server.request_body import read_body
from nerve.server.request_caller import caller_of_request
from nerve.server.routes import read_body_arguments

if TYPE_CHECKING:
    from starlette.requests import Request


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
        entries = conversation.conversation_messages(api, unquote(request.path_params["id"]), mode)
        return JSONResponse({"messages": [entry.to_dict() for entry in entries]})

    return [
        Route("/api/command", command, methods=["POST"]),
        Route("/test/message", message, methods=["POST"]),
        Route("/test/messages/{id}", messages),
    ]
