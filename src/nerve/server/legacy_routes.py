"""Routes defined by the seeds: commands, and a test conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response

from nerve.api import OPERATIONS, Api, ApiError, command_protocol, conversation
from nerve.api.errors import STATUS_BY_CODE
from nerve.router.run_messages import MessageMode
from nerve.server.auth import require_scope
from nerve.server.guarded_route import GuardedRoute
from nerve.server.request_body import read_body
from nerve.server.request_caller import caller_of_request
from nerve.server.routes import read_body_arguments

if TYPE_CHECKING:
    from starlette.requests import Request


def build_legacy_routes(api: Api) -> list[GuardedRoute]:
    async def command(request: Request) -> Response:
        fields = command_protocol.with_idempotency_key(
            await read_body(request), request.headers.get("idempotency-key")
        )
        require_scope(request.scope["nerve.caller"], command_protocol.required_command_scope(fields))
        reply = await command_protocol.handle_command(api.as_caller(caller_of_request(request.scope)), fields)
        return JSONResponse(reply, STATUS_BY_CODE[reply["code"]] if "code" in reply else 200)

    async def message(request: Request) -> Response:
        fields = await read_body_arguments(request, conversation.MESSAGE_OPERATION)
        key = fields.pop("key", None)
        values = [fields.pop(name, None) for name in ("conversationId", "message")]
        if fields or not all(isinstance(value, str) for value in values):
            fix = 'Send {"conversationId": "…", "message": "…"}'
            raise ApiError("bad_request", "A message requires conversationId and message", fix)
        if values[1].split()[:2] == ["/workflow", "reload"]:
            require_scope(request.scope["nerve.caller"], OPERATIONS["reload"].scope)
        if values[1].split()[:1] == ["/answer"]:
            require_scope(request.scope["nerve.caller"], OPERATIONS["answer"].scope)
        response = await conversation.handle_message(
            api.as_caller(caller_of_request(request.scope)), values[0], values[1], key
        )
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
        GuardedRoute("POST", "/api/command", "read", command),
        GuardedRoute("POST", "/test/message", "run", message),
        GuardedRoute("GET", "/test/messages/{id}", "read", messages),
    ]
