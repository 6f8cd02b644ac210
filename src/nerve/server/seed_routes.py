"""The routes that the seeds name: their commands, and a conversation to test with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response

from nerve.api import OPERATIONS, Api, ApiError
from nerve.api.errors import STATUS
from nerve.router.messages import Mode
from nerve.server import commands, conversation
from nerve.server.auth import need
from nerve.server.body import read_body
from nerve.server.callers import asking
from nerve.server.routes import asked_in_body
from nerve.server.way import Way

if TYPE_CHECKING:
    from starlette.requests import Request


def seed_ways(api: Api) -> list[Way]:
    async def command(request: Request) -> Response:
        given = commands.keyed(await read_body(request), request.headers.get("idempotency-key"))
        need(request.scope["nerve.caller"], commands.scope_of(given))
        reply = await commands.handle(api.asked_by(asking(request.scope)), given)
        return JSONResponse(reply, STATUS[reply["code"]] if "code" in reply else 200)

    async def message(request: Request) -> Response:
        given = await asked_in_body(request, conversation.MESSAGE)
        key = given.pop("key", None)
        asked = [given.pop(name, None) for name in ("conversationId", "message")]
        if given or not all(isinstance(each, str) for each in asked):
            fix = 'Send {"conversationId": "…", "message": "…"}'
            raise ApiError("bad_request", "a message has a conversation and a text", fix)
        if asked[1].split()[:2] == ["/workflow", "reload"]:
            need(request.scope["nerve.caller"], OPERATIONS["reload"].scope)
        if asked[1].split()[:1] == ["/answer"]:
            need(request.scope["nerve.caller"], OPERATIONS["answer"].scope)
        said = await conversation.heard(api.asked_by(asking(request.scope)), asked[0], asked[1], key)
        return JSONResponse(said.model_dump(mode="json"))

    async def messages(request: Request) -> Response:
        mode: Any = request.query_params.get("mode", "batch")
        if mode not in get_args(Mode):
            raise ApiError(
                "bad_request", f"there is no mode '{mode}'", f"There are: {', '.join(get_args(Mode))}."
            )
        said = conversation.messages(api, unquote(request.path_params["id"]), mode)
        return JSONResponse({"messages": [each.to_dict() for each in said]})

    return [
        Way("POST", "/api/command", "read", command),
        Way("POST", "/test/message", "run", message),
        Way("GET", "/test/messages/{id}", "read", messages),
    ]
