"""Whether an error of an ACP agent is a limit: the protocol has no word for it, so its text is read."""

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
    """How a turn ended that the agent refused with an error."""
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    text = acp_error_text(str(error), data)[:MAX_ERROR_CHARS]
    if code == AUTH_REQUIRED_CODE and methods:
        text += f"; the agent offers to authenticate by: {', '.join(methods)} (the provider's setting 'auth')"
    if LIMIT_TEXT.search(text) or QUOTA_TEXT.search(text):
        return TurnFinished(thread, outcome="limited", error=text, resets_at=parse_reset_time(text))
    return TurnFinished(thread, outcome="failed", error=text)


def acp_error_text(message: str, data: Any) -> str:
    if not data:
        return message
    details = data.get("details") if isinstance(data, dict) else data
    return f"{message}: {details if isinstance(details, str) else json.dumps(data, ensure_ascii=False)}"
