"""Results of tools, limited in size: what is left out is counted, and a later call can read it."""

from __future__ import annotations

import json
from typing import Any

from nerve.core.json_codec import encode_json

MAX_TEXT_CHARS = 20_000
"""Characters of a text, such as a diff or a result, in one reply: about 5,000 tokens of a model."""
MAX_FIELD_CHARS = 2000
"""Characters of a field of an entry, such as the prompt of a gate."""
MAX_LINE_CHARS = 1000
MAX_REPLY_CHARS = 60_000
"""Characters of a list in one reply."""


def shorten_text(text: str, limit: int = MAX_FIELD_CHARS) -> str:
    """Return the beginning of a text, and how many characters follow."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def shorten_value(value: Any) -> Any:
    """Return a value, or the beginning of its text if it is long."""
    text = to_text(value)
    return value if len(text) <= MAX_FIELD_CHARS else shorten_text(text)


def to_text(value: Any) -> str:
    """Return a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def page_of_text(text: str, offset: int) -> dict[str, Any]:
    """Return a part of a text, the number of all characters, and the offset of the next part, if any."""
    end = min(offset + MAX_TEXT_CHARS, len(text))
    page: dict[str, Any] = {"text": text[offset:end], "total_chars": len(text)}
    return page | ({"next_offset": end} if end < len(text) else {})


def limit_list(name: str, entries: list[dict[str, Any]], next_call: str) -> dict[str, Any]:
    """Return a list as the field `name` of a reply; `next_call` says how to get what does not fit."""
    kept, size = list[dict[str, Any]](), 0
    for entry in entries:
        size += len(encode_json(entry, max_depth=None))
        if kept and size > MAX_REPLY_CHARS:
            return {name: kept, "left_out": len(entries) - len(kept), "to_see_more": next_call}
        kept.append(entry)
    return {name: kept}


def without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that say something: without None, empty texts, lists and objects."""
    return {name: value for name, value in fields.items() if value is not None and value not in ("", [], {})}
