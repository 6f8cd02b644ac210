"""Whether an error of an ACP agent is a limit: the protocol has no word for it, so its text is read."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from nerve.agents.port import Done

LIMIT = re.compile(
    r"\b429\b|rate.?limit|usage limit|hit your (\w+ )?limit|too many requests|quota|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
AFTER = re.compile(r"retry[-_ ]?after\W{1,4}(\d+(?:\.\d+)?)\W?(ms|m)?", re.IGNORECASE)
RESETS = re.compile(r"resets?[-_ ]?at\W{1,4}(\d{10})(?!\d)", re.IGNORECASE)
AUTHENTICATE = -32000
ERROR = 4_000


def ended(thread: str, error: Exception, methods: list[str]) -> Done:
    """How a turn ended that the agent refused with an error."""
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    text = words(str(error), data)[:ERROR]
    if code == AUTHENTICATE and methods:
        text += f"; the agent offers to authenticate by: {', '.join(methods)} (the provider's setting 'auth')"
    if LIMIT.search(text):
        return Done(thread, outcome="limited", error=text, resets_at=resets_at(text))
    return Done(thread, outcome="failed", error=text)


def words(message: str, data: Any) -> str:
    if not data:
        return message
    details = data.get("details") if isinstance(data, dict) else data
    return f"{message}: {details if isinstance(details, str) else json.dumps(data, ensure_ascii=False)}"


def resets_at(text: str) -> float | None:
    if found := RESETS.search(text):
        return float(found[1])
    if found := AFTER.search(text):
        return time.time() + float(found[1]) * {"ms": 0.001, "m": 60}.get(found[2], 1)
    return None
