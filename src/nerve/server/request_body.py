"""Request bodies: JSON and forms, with limits on size, depth and time, read after authentication."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from nerve.api.errors import ApiError
from nerve.api.request_parsing import MAX_NESTING_DEPTH
from nerve.core.json_codec import parse_strict_json

MAX_BODY_BYTES = 1024 * 1024
BODY_TIMEOUT_S = 30.0
"""Seconds within which the body must arrive."""
JSON_BODY_FIX = "Send a JSON object, with Content-Type: application/json"


async def read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; an empty body is an empty object."""
    text = await read_body_bytes(request, "application/json", JSON_BODY_FIX)
    return parse_json_object(text) if text else {}


async def read_body_bytes(request: Request, expected_kind: str, fix: str = "") -> bytes:
    """Return a body of a content type; an empty body needs none."""
    kind, _, rest = (part.strip().lower() for part in request.headers.get("content-type", "").partition(";"))
    content_length = request.headers.get("content-length", "0")
    fix = fix or f"Send Content-Type: {expected_kind}"
    if kind not in ("", expected_kind):
        raise ApiError("unsupported", f"Unsupported content type {kind[:100]}", fix)
    if "charset" in rest and rest.partition("=")[2].strip(' "') not in ("utf-8", "utf8", "us-ascii"):
        raise not_utf8_error("unsupported")
    if content_length.isdigit() and int(content_length) > MAX_BODY_BYTES:
        raise body_too_large_error()
    text = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                text += chunk
                if len(text) > MAX_BODY_BYTES:
                    raise body_too_large_error()
    except TimeoutError:
        raise ApiError("timeout", f"The body did not arrive within {BODY_TIMEOUT_S:g} seconds") from None
    except ClientDisconnect:
        raise ApiError("bad_request", "The client disconnected before the end of the body") from None
    if text and not kind:
        raise ApiError("unsupported", "Missing Content-Type of the body", fix)
    return bytes(text)


def body_too_large_error() -> ApiError:
    return ApiError(
        "too_large", f"The body must have at most {MAX_BODY_BYTES} bytes", "Send less, or use a file."
    )


def not_utf8_error(code: str = "bad_request") -> ApiError:
    return ApiError(code, "The text is not UTF-8 without a byte order mark", "Send JSON in UTF-8.")


def parse_json_object(text: bytes | str, fix: str = JSON_BODY_FIX) -> dict[str, Any]:
    """Parse a JSON object in UTF-8. Rejects duplicate keys, NaN, infinity and deep nesting."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise not_utf8_error() from None
    if text.startswith("\ufeff") or "\0" in text[:4]:  # UTF-16 or UTF-32
        raise not_utf8_error()
    try:
        value = parse_strict_json(text, MAX_NESTING_DEPTH)
    except ValueError as error:
        raise ApiError("bad_request", f"Invalid JSON: {error}", fix) from None
    if not isinstance(value, dict):
        raise ApiError("bad_request", "The JSON value must be an object", fix)
    return value
