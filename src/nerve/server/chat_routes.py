"""`POST /chat/NAME`: what GitHub, Slack and Telegram deliver, which their signatures authenticate."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nerve.api import Api, ApiError
from nerve.api.callers import Caller
from nerve.server.webhook_routes import WrongSignatureLimit, read_limited_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from nerve.chat.adapter import ChatAdapter

log = logging.getLogger("nerve")

CHAT_PREFIX = "/chat/"
MAX_DELIVERY_BYTES = 4 * 1024 * 1024


def build_chat_routes(api: Api) -> list[Route]:
    """Return the route of chats. It needs no token."""
    return [Route(CHAT_PREFIX + "{name}", ChatEndpoint(api).receive, methods=["POST"])]


class ChatEndpoint:
    """Verifies what services deliver, and stores the messages that get a reply."""

    def __init__(self, api: Api) -> None:
        self._api, self._wrong_signatures = api, WrongSignatureLimit()

    async def receive(self, request: Request) -> Response:
        """Answer 200 when the messages are durable, which may be none: services send more than is needed."""
        from nerve.api.chat_messages import take_message
        from nerve.api.chat_runner import make_request

        name = unquote(request.path_params["name"])
        chat = self._find(name)
        body = await read_limited_body(request, MAX_DELIVERY_BYTES, "Let the service send less.")
        self._verify(name, chat, request, body)
        headers = {key.lower(): value for key, value in request.headers.items()}
        delivery = chat.read_delivery(headers, parse_delivery(headers, body))
        caller, accepted = Caller(f"chat:{name}", chat.signature), 0
        for message in delivery.messages:
            stored = make_request(name, message)
            stored.set_caller(caller)
            accepted += await take_message(self._api, stored)
        return JSONResponse({"accepted": accepted} if delivery.reply is None else dict(delivery.reply))

    def _find(self, name: str) -> ChatAdapter:
        from nerve.chat.adapter_table import make_chats

        session = self._api.session
        config = session.config
        settings = config.chat.get(name)
        if settings is None or (settings.kind == "telegram" and "secret" not in settings.values):
            raise ApiError("not_found", f"Chat '{name[:100]}' not found", "See the list: nerve chat")
        return make_chats({name: settings}, session.project, config.public_url, session.name)[name]

    def _verify(self, name: str, chat: ChatAdapter, request: Request, body: bytes) -> None:
        from nerve.notifications.delivery import DeliveryFailed
        from nerve.triggers.webhook_signatures import SignatureRefused, verify_signature

        now = self._api.session.engine.clock.time()
        try:
            verify_signature(chat.signature, [chat.read_secret()], request.headers, body, now)
        except SignatureRefused as error:
            self._wrong_signatures.count()
            log.warning("chat '%s' has refused a delivery: %s", name, error)
            fix = "Use the secret of the chat on both sides."
            raise ApiError("unauthorized", str(error), fix) from None
        except DeliveryFailed as error:
            # The sender learns nothing of the configuration.
            log.error("chat '%s': %s", name, error)
            raise ApiError("busy", "The chat is not configured", "See the log of the server.") from None


def parse_delivery(headers: dict[str, str], body: bytes) -> Any:
    """Return the value of a JSON body, or the fields of a form."""
    from nerve.triggers.webhooks import UnsupportedBody, parse_body

    try:
        return parse_body(headers, body)
    except UnsupportedBody as error:
        fix = "Send JSON, or a form, with its Content-Type."
        raise ApiError("unsupported", str(error), fix) from None
