"""Tags: short names and values of a run, by which lists find it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nerve.core.json_diagnostics import is_valid_unicode
from nerve.core.validation import describe_value, require_mapping

MAX_TAGS = 32
"""Maximum number of tags of a run."""
MAX_TAG_CHARS = 256
"""Maximum characters of a value."""
_TAG_NAME = re.compile(r"[\w.-]{1,64}")


def validate_tags(tags: Any) -> dict[str, str]:
    """Return tags with their values as text; ValueError for a name or a value that a run cannot have."""
    texts = {
        require_tag_name(name): tag_text(name, value) for name, value in require_mapping("tags", tags).items()
    }
    return require_few_tags(texts)


def require_few_tags(tags: dict[str, str]) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        raise ValueError(f"A run has at most {MAX_TAGS} tags, got {len(tags)}")
    return tags


def require_tag_name(name: Any) -> str:
    if not isinstance(name, str) or not _TAG_NAME.fullmatch(name):
        raise ValueError(
            f"The name of a tag must be 1 to 64 letters, digits, '_', '-' or '.', got {describe_value(name)}"
        )
    return name


def tag_text(name: str, value: Any) -> str:
    """Return the text of a value; a boolean becomes "true" or "false"."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"Tag '{name}' must be a string, a number or a boolean, got {describe_value(value)}")
    text = str(value)
    if len(text) > MAX_TAG_CHARS:
        raise ValueError(f"Tag '{name}' has {len(text)} characters. The maximum is {MAX_TAG_CHARS}.")
    if not is_valid_unicode(text):
        raise ValueError(f"Tag '{name}' contains an unpaired surrogate. Use another value.")
    return text


def parse_tag(text: str) -> tuple[str, str]:
    """Return the name and the value in `name=value`."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"A tag must have the form name=value, got '{text}'")
    return require_tag_name(name), tag_text(name, value)


def format_tags(tags: Mapping[str, str]) -> str:
    """Return tags for a line of text: `customer=42 stage=review`."""
    return " ".join(f"{name}={value}" for name, value in tags.items())
