"""Whether an error of an ACP agent is a limit: the protocol has no word for it, so its text is read."""

from __future__ import annotations

import json
import re
from typing import Any

from nerve.agents.limits import LIMIT, resets_at
from nerve.agents.port import Done

QUOTA = re.compile(r"quota", re.IGNORECASE)
AUTHENTICATE = -32000
ERROR = 4_000


def ended(thread: str, error: Exception, methods: list[str]) -> Done:
    """How a turn ended that the agent refused with an error."""
    code, data = getattr(error, "code", None), getattr(error, "data", None)
    text = words(str(error), data)[:ERROR]
    if code == AUTHENTICATE and methods:
        text += f"; the agent offers to authenticate by: {', '.join(methods)} (the provider's setting 'auth')"
    if LIMIT.search(text) or QUOTA.search(text):
        return Done(thread, outcome="limited", error=text, resets_at=resets_at(text))
    return Done(thread, outcome="failed", error=text)


def words(message: str, data: Any) -> str:
    if not data:
        return message
    details = data.get("details") if isinstance(data, dict) else data
    return f"{message}: {details if isinstance(details, str) else json.dumps(data, ensure_ascii=False)}"
