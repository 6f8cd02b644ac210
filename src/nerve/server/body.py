"""The body of a request: JSON, no larger and no deeper than it may be, read only after the token."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from nerve.api.errors import ApiError

LARGEST = 1024 * 1024
DEEPEST = 64
PATIENCE = 30.0
"""Seconds in which a body must have come."""
FIX = "Send a JSON object, with Content-Type: application/json"


async def read_body(request: Request) -> dict[str, Any]:
    """The object in the body; nothing at all is an empty one."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    told = request.headers.get("content-length", "0")
    if kind not in ("", "application/json"):
        raise ApiError("unsupported", f"a body of type {kind[:100]} is not taken", FIX)
    if told.isdigit() and int(told) > LARGEST:
        raise too_large()
    text = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                text += chunk
                if len(text) > LARGEST:
                    raise too_large()
    except TimeoutError:
        raise ApiError("timeout", f"the body did not come within {PATIENCE:g} seconds") from None
    except ClientDisconnect:
        raise ApiError("bad_request", "the body broke off") from None
    if text and not kind:
        raise ApiError("unsupported", "the type of the body is missing", FIX)
    return read_object(bytes(text)) if text.strip() else {}


def too_large() -> ApiError:
    return ApiError("too_large", f"a body may have {LARGEST} bytes", "Send less, or put it into a file.")


def read_object(text: bytes | str) -> dict[str, Any]:
    """A JSON object in which nothing is said twice and nothing is endless."""
    try:
        value = json.loads(text, object_pairs_hook=once, parse_constant=refused_number)
    except (ValueError, RecursionError) as error:
        raise ApiError("bad_request", f"that is no JSON: {error}", FIX) from None
    if not isinstance(value, dict):
        raise ApiError("bad_request", "the body is not an object", FIX)
    check_depth(value)
    return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def refused_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise ApiError("bad_request", f"the body is nested deeper than {DEEPEST}")
