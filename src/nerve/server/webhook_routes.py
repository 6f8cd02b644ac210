"""`POST /hooks/NAME`: requests of other services, which their signatures authenticate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nerve.api import Api, ApiError
from nerve.api.callers import Caller
from nerve.server.request_body import BODY_TIMEOUT_S

if TYPE_CHECKING:
    from nerve.core.triggers import Trigger
    from nerve.session import Session
    from nerve.triggers.webhooks import WebhookEvent

log = logging.getLogger("nerve")

HOOKS_PREFIX = "/hooks/"
MAX_REFUSED_PER_SECOND = 10
"""Requests with wrong signatures per second that get a normal response."""


def build_webhook_routes(api: Api) -> list[Route]:
    """Return the route of webhooks. It needs no token."""
    return [Route(HOOKS_PREFIX + "{name}", WebhookEndpoint(api).receive, methods=["POST"])]


class WebhookEndpoint:
    """Verifies requests, and starts the runs of their triggers."""

    def __init__(self, api: Api) -> None:
        self._api, self._wrong_signatures = api, WrongSignatureLimit()

    async def receive(self, request: Request) -> Response:
        """Answer 202 when the start is durable, and 200 if the condition of the trigger is false."""
        name = unquote(request.path_params["name"])
        trigger = await self._find(name)
        assert trigger.webhook is not None
        body = await read_limited_body(request, trigger.webhook.max_bytes, "Raise max_bytes of the webhook.")
        event = await self._verify(trigger, request, body)
        if event.challenge is not None and trigger.webhook.signature == "slack":
            return JSONResponse({"challenge": event.challenge})
        caller = Caller(f"trigger:{name}", "webhook")
        fired = await self._api.as_caller(caller).perform(
            "fire_trigger", {"trigger": name, "event": event.event, "delivery": event.delivery}
        )
        run = getattr(fired, "run", None)
        if run is None:
            return JSONResponse({"started": False, "reason": getattr(fired, "reason", "")})
        return JSONResponse({"started": True, "run_id": run.run_id}, 202)

    async def _find(self, name: str) -> Trigger:
        """Return the trigger of a webhook; ApiError if there is none that may start a run."""

        async def find(session: Session) -> tuple[Trigger | None, bool]:
            from nerve.triggers import triggers_of

            service = triggers_of(session)
            service.refresh()
            found = service.all().get(name)
            return found, found is not None and service.is_paused(found)

        trigger, is_paused = await self._api.measure(find)
        if trigger is None or trigger.kind != "webhook":
            raise ApiError("not_found", f"Webhook '{name[:100]}' not found", "See the list: nerve triggers")
        if is_paused:
            raise ApiError(
                "conflict", f"Trigger '{name}' is paused", f"Resume it: nerve triggers resume {name}"
            )
        return trigger

    async def _verify(self, trigger: Trigger, request: Request, body: bytes) -> WebhookEvent:
        from nerve.triggers.webhooks import SecretMissing, SignatureRefused, UnsupportedBody, read_webhook

        session = self._api.session
        try:
            return read_webhook(
                trigger,
                session.project,
                request.headers,
                request.url.query,
                body,
                session.engine.clock.time(),
            )
        except SignatureRefused as error:
            self._wrong_signatures.count()
            await self._note_refusal(trigger.name, str(error))
            raise ApiError("unauthorized", str(error), SIGNATURE_FIX) from None
        except UnsupportedBody as error:
            raise ApiError(
                "unsupported", str(error), "Send JSON, or a form, with its Content-Type."
            ) from None
        except SecretMissing as error:
            # The sender learns nothing of the configuration.
            log.error("trigger '%s': %s", trigger.name, error)
            await self._note_refusal(trigger.name, str(error))
            raise ApiError("busy", "The webhook is not configured", "See the log of the server.") from None

    async def _note_refusal(self, name: str, reason: str) -> None:
        async def note(session: Session) -> None:
            from nerve.triggers import triggers_of

            triggers_of(session).refuse(name, reason)

        await self._api.measure(note)


class WrongSignatureLimit:
    """Limits how many wrong signatures are answered in a second; valid ones are not limited."""

    def __init__(self) -> None:
        self._refused: deque[float] = deque(maxlen=MAX_REFUSED_PER_SECOND)

    def count(self) -> None:
        """Count a wrong signature; ApiError if there were too many."""
        now = time.monotonic()
        if len(self._refused) == MAX_REFUSED_PER_SECOND and now - self._refused[0] < 1:
            raise ApiError("too_many", "Too many wrong signatures", "Try again in a second.")
        self._refused.append(now)


SIGNATURE_FIX = "Use the secret of the webhook on both sides."


async def read_limited_body(request: Request, limit: int, fix: str) -> bytes:
    """Return a body as it was sent, which is what is signed; ApiError for one that is too large or slow."""
    too_large = ApiError("too_large", f"The body must have at most {limit} bytes", fix)
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise ApiError("timeout", f"The body did not arrive within {BODY_TIMEOUT_S:g} seconds") from None
    except ClientDisconnect:
        raise ApiError("bad_request", "The client disconnected before the end of the body") from None
    return bytes(body)
