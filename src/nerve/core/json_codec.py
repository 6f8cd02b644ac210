"""JSON encoding of journal values. Decoding always restores the same value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from nerve.core.json_diagnostics import (
    CONTAINER_TYPES,
    describe_oversized,
    explain_unserializable,
    has_colliding_keys,
    replace_surrogates,
)
from nerve.core.json_diagnostics import MAX_JSON_DEPTH as MAX_JSON_DEPTH
from nerve.errors import NotJson

MAX_SCANNED_CHARS = 1_000_000
"""Characters of the longest text that is searched for a JSON object."""
FENCE = "```"
"""A text that consists of one fenced block."""


def _make_encoder(sort_keys: bool) -> Callable[[Any, int], Iterable[str]]:
    """Return a cached C encoder. JSONEncoder creates one per value, which costs more than most values."""
    plain = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=sort_keys
    )
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: plain.encode(value)
    chunks: Callable[[Any, int], Iterable[str]] = make(
        None, plain.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, False
    )
    return chunks


_encode_text = json.encoder.encode_basestring
MAX_ESCAPED_CHARS = 6
"""The maximum length of a character that JSON escapes."""
_encode_plain, _encode_sorted = _make_encoder(sort_keys=False), _make_encoder(sort_keys=True)
_raw_decode = json.JSONDecoder().raw_decode
_JSON_WORDS: dict[type, dict[Any, str]] = {bool: {True: "true", False: "false"}, type(None): {None: "null"}}
EXACT_TYPES = frozenset({str, int, bool, type(None)})
"""Types of scalars that JSON restores exactly."""
MAX_EXACT_INT = 2**53
"""The largest integer that every JSON reader represents exactly."""
MAX_EVENT_DEPTH = MAX_JSON_DEPTH + 8
"""The maximum nesting of event data, which contains a value."""
PREVIEW_CHARS = 80
"""Characters of a preview in a list."""
MAX_VALUE_BYTES = 63 * 1024 * 1024
"""The maximum size of a value as JSON. With the event around it, it still fits into every store."""


def preview_value(value: Any) -> str:
    """Return the beginning of a value on one line; "" for None.

    Only as much of a large value is encoded as the preview needs.
    """
    text = value if isinstance(value, str) else ""
    if value is not None and not isinstance(value, str):
        for chunk in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
            text += chunk
            if len(text) > 2 * PREVIEW_CHARS:
                break
    return " ".join(text[: 2 * PREVIEW_CHARS].split())[:PREVIEW_CHARS].rstrip()


def encode_json(
    value: Any,
    canonical: bool = False,
    max_depth: int | None = MAX_JSON_DEPTH,
    max_bytes: int = MAX_VALUE_BYTES,
) -> str:
    """Return a value as JSON; with `canonical`, the keys of objects are sorted.

    NotJson is raised for a value that decoding would not restore, and for one that is nested deeper than
    `max_depth`. With `max_depth=None`, for display only, such values are encoded approximately.
    """
    kind = type(value)
    if kind is int and -MAX_EXACT_INT <= value <= MAX_EXACT_INT:
        return str(value)
    if kind in _JSON_WORDS:
        return _JSON_WORDS[kind][value]
    if kind is str and value.isascii() and MAX_ESCAPED_CHARS * len(value) < max_bytes:
        return _encode_text(value)
    if kind is float and value - value == 0:
        return repr(value)
    try:
        text = "".join((_encode_sorted if canonical else _encode_plain)(value, 0))
    except (TypeError, ValueError, RecursionError):
        text = _encode_with_text_keys(value, max_depth)
    if max_depth is None:
        return replace_surrogates(text)
    # Counting brackets is an upper bound of the depth and much faster than walking the value.
    objects = text.count("{")
    if objects + text.count("[") > max_depth and is_too_deep(value, max_depth):
        raise NotJson(
            f"a value with more than {max_depth} levels of nesting cannot be encoded as JSON; flatten it"
        )
    if objects and not canonical and has_colliding_keys(value, objects):
        raise NotJson(explain_unserializable(value, "two keys of an object become equal"))
    size = len(text) if text.isascii() else _utf8_size(text, value)
    if size > max_bytes:
        raise NotJson(describe_oversized(value, size, max_bytes))
    return text


def replace_invalid_text(value: Any) -> Any:
    """Return a JSON value with replacement characters in place of unpaired surrogates."""
    return decode_json(encode_json(value, max_depth=None))


def is_too_deep(value: Any, max_depth: int = MAX_JSON_DEPTH) -> bool:
    """Return whether a value has more than `max_depth` levels of nesting."""
    level = [value] if isinstance(value, CONTAINER_TYPES) else []
    for _ in range(max_depth):
        if not level:
            return False
        level = [
            part
            for container in level
            for part in (container.values() if isinstance(container, dict) else container)
            if isinstance(part, CONTAINER_TYPES)
        ]
    return bool(level)


def parse_strict_json(text: str | bytes, max_depth: int = MAX_JSON_DEPTH) -> Any:
    """Decode JSON from outside; ValueError says why it is invalid or cannot be stored."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_reject_duplicate_keys,
            parse_constant=_reject_constant,
            parse_float=_parse_finite_float,
            parse_int=_parse_exact_int,
        )
    except RecursionError:
        value = None
    else:
        if not is_too_deep(value, max_depth):
            return value
    raise ValueError(f"it has more than {max_depth} levels of nesting")


def find_json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text consists of, plain or in one fenced block; {} for any other text."""
    if len(text) > MAX_SCANNED_CHARS:
        return {}
    text = text.strip()
    if text.startswith(FENCE) and text.endswith(FENCE) and text.count(FENCE) == 2:
        text = "".join(find_fenced_blocks(text)).strip()
    if not text.startswith("{"):
        return {}
    try:
        value = parse_strict_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def find_fenced_blocks(text: str) -> list[str]:
    """Return the fenced blocks of a text that are tagged as JSON or untagged, in linear time."""
    blocks, lines, first = [], text.split("\n"), 0
    for number, line in enumerate(lines, 1):
        if not first:
            first = number if line.rstrip().endswith((FENCE, f"{FENCE}json")) else 0
        elif line.startswith(FENCE) or line.rstrip().endswith(FENCE):
            blocks.append("\n".join([*lines[first : number - 1], line[: line.index(FENCE)]]))
            first = 0
    return blocks


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("duplicate key")
    return mapping


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _parse_finite_float(text: str) -> float:
    if (value := float(text)) - value != 0:
        raise ValueError(f"{text if len(text) <= 20 else text[:20] + '…'} is too large for a number")
    return value


def _parse_exact_int(text: str) -> int:
    _parse_finite_float(text)
    if find_unsafe_integer(value := int(text)) is not None:
        raise ValueError(unsafe_integer_message(value))
    return value


def find_unsafe_integer(value: Any) -> int | None:
    """Return an integer in a value that is beyond ±2^53, where not every JSON reader is exact; or None."""
    parts, visited = [value], set[int]()
    while parts:
        part = parts.pop()
        if isinstance(part, int) and abs(part) > MAX_EXACT_INT:
            return part
        if isinstance(part, CONTAINER_TYPES) and id(part) not in visited:
            visited.add(id(part))
            parts += part.values() if isinstance(part, dict) else part
    return None


def unsafe_integer_message(value: int) -> str:
    """Return the message for an integer beyond ±2^53."""
    number = str(value) if abs(value) < 10**40 else "of more than 40 digits"
    return f"the integer {number} is beyond ±2^53, where JSON readers are not exact; pass it as a string"


def check_safe_integers(value: Any) -> None:
    """Raise NotJson for a value that contains an integer beyond ±2^53."""
    if (number := find_unsafe_integer(value)) is not None:
        raise NotJson(unsafe_integer_message(number))


def is_scalar_json(value: Any) -> bool:
    """Return whether a value is a scalar that JSON restores exactly, so that it needs no copy."""
    return type(value) in EXACT_TYPES


def decode_json(text: str) -> Any:
    """Decode JSON that `encode_json` produced; ValueError if it is not valid JSON."""
    value, end = _raw_decode(text)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


def short_sha256(text: str) -> str:
    """Return a short hash of canonical JSON, for comparing inputs."""
    return sha256(text.encode()).hexdigest()[:32]


def _encode_with_text_keys(value: Any, max_depth: int | None) -> str:
    """Encode a value with keys of several types, which can be sorted only as strings."""
    try:
        text = "".join(_encode_sorted(json.loads("".join(_encode_plain(value, 0))), 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(explain_unserializable(value, error)) from None
    if max_depth is not None and has_colliding_keys(value, text.count("{")):
        raise NotJson(explain_unserializable(value, "two keys of an object become equal"))
    return text


def _utf8_size(text: str, value: Any) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise NotJson(explain_unserializable(value, error)) from None
