"""Detect rate limits in the error messages of an ACP agent, because the protocol has no code for them."""

from __future__ import annotations

import json
import re
from typing import Any

from nerve.agents.provider import TurnFinished
from nerve.agents.rate_limit_text import LIMIT_TEXT, parse_reset_time

QUOTA_TEXT = re.compile(r"quota", re.IGNORECASE)
AUTH_REQUIRED_CODE = -32000
MAX_ERROR_CHARS = 4_000


def outcome_of_error(thread: str, error: Exception, methods: list[str]) -> TurnFinished:
    """Return the outcome of a turn that the agent ended with an error."""
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    text = acp_error_text(str(error), data)[:MAX_ERROR_CHARS]
    if code == AUTH_REQUIRED_CODE and methods:
        text += f"; the agent supports authentication by: {', '.join(methods)} (set 'auth' of the provider)"
    if LIMIT_TEXT.search(text) or QUOTA_TEXT.search(text):
        return TurnFinished(thread, outcome="limited", error=text, resets_at=parse_reset_time(text))
    return TurnFinished(thread, outcome="failed", error=text)


def acp_error_text(message: str, data: Any) -> str:
    if not data:
        return message
    details = data.get("details") if isinstance(data, dict) else data
    return f"{message}: {details if isinstance(details, str) else json.dumps(data, ensure_ascii=False)}"
