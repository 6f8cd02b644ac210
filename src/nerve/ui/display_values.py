"""How a value is displayed: as text, Markdown, a table, a JSON tree, an image, a file or a diff."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from nerve.lazy_dataclass import dataclass
from nerve.ui.formatting import format_value

DisplayKind = Literal["empty", "text", "markdown", "table", "json", "image", "file", "diff"]

MAX_TEXT_CHARS = 200_000
"""Longer texts are truncated for display."""
MAX_TREE_NODES = 2000
"""Values of a JSON tree that are displayed."""
MAX_TABLE_ROWS, MAX_TABLE_COLUMNS = 500, 40
MAX_PARSED_CHARS = 100_000
"""Longer texts are not checked for being JSON."""

_IMAGE_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+\Z")
_IMAGE_SUFFIX = re.compile(r"\.(?:png|jpe?g|gif|webp)\Z", re.IGNORECASE)
_DIFF = re.compile(r"^(?:diff --git .+|--- .+\n\+\+\+ .+\n@@ )", re.MULTILINE)
_MARKDOWN = re.compile(
    r"^#{1,6} \S|^```|^[-*] \S.*\n[-*] \S|^\d+\. \S.*\n\d+\. \S|^> \S|^\|.+\|\n\|[ :|-]+\||\*\*\S[^*]*\*\*|"
    r"\[[^\]\n]+\]\([^)\s]+\)|(?<!`)`[^`\n]+`(?!`)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value of a JSON tree; the texts are not escaped."""

    key: str
    """Its name in an object, its index in an array, or empty for the root."""
    kind: Literal["object", "array", "string", "number", "boolean", "null"]
    text: str = ""
    """A scalar as JSON; of an object or an array, the number of its values."""
    children: list[JsonNode] = field(default_factory=list)
    left_out: int = 0
    """The number of values that are not displayed."""


@dataclass(frozen=True, slots=True)
class DisplayValue:
    """A value, and how it is best displayed."""

    kind: DisplayKind
    text: str = ""
    """The text to display or copy: a text, a diff, JSON, a data URL of an image, or a path."""
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    tree: JsonNode | None = None
    left_out: int = 0
    """The number of characters, or of rows of a table, that are not displayed."""
    is_path: bool = False
    """Whether the text of an image or file is its path, and not its data."""


def display_value(value: Any) -> DisplayValue:
    """Return how a value is displayed; the cost is bounded for large values."""
    if value is None or value in ("", [], {}):
        return DisplayValue("empty")
    if isinstance(value, str):
        return display_text(value)
    if isinstance(value, Mapping) and (shown := display_file(value)) is not None:
        return shown
    if isinstance(value, list) and (columns := table_columns(value)):
        cells = [[format_cell(row.get(name)) for name in columns] for row in value[:MAX_TABLE_ROWS]]
        return DisplayValue("table", "", columns, cells, None, max(0, len(value) - MAX_TABLE_ROWS))
    text = pretty_json(value)
    if not isinstance(value, Mapping | list):
        return DisplayValue("text", text)
    return DisplayValue("json", text[:MAX_TEXT_CHARS], tree=json_tree(value), left_out=left_out_of(text))


def display_text(text: str) -> DisplayValue:
    shown, left_out = text[:MAX_TEXT_CHARS], left_out_of(text)
    if _IMAGE_DATA.match(text):
        return DisplayValue("image", text)
    if _DIFF.search(shown):
        return DisplayValue("diff", shown, left_out=left_out)
    stripped = text.strip()
    if stripped[:1] in ("{", "[") and len(text) <= MAX_PARSED_CHARS:
        try:
            value = json.loads(stripped)
        except (ValueError, RecursionError):
            pass
        else:
            if value:
                return display_value(value)
    kind: DisplayKind = "markdown" if _MARKDOWN.search(shown) else "text"
    return DisplayValue(kind, shown, left_out=left_out)


def display_file(value: Mapping[str, Any]) -> DisplayValue | None:
    """Return an image or a file for an object that names one: `path`, or `data` with `media_type`."""
    data, media_type, path = value.get("data"), value.get("media_type"), value.get("path")
    if isinstance(data, str) and isinstance(media_type, str):
        url = f"data:{media_type};base64,{data}"
        if _IMAGE_DATA.match(url):
            return DisplayValue("image", url)
    names = {"path", "name", "size", "media_type", "kind", "sha256"}
    if isinstance(path, str) and path and value.keys() <= names:
        return DisplayValue("image" if _IMAGE_SUFFIX.search(path) else "file", path, is_path=True)
    return None


def left_out_of(text: str) -> int:
    return max(0, len(text) - MAX_TEXT_CHARS)


def table_columns(rows: list[Any]) -> list[str]:
    """Return the columns of a list of flat objects; none for any other list."""
    columns: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, Mapping) or any(isinstance(cell, Mapping | list) for cell in row.values()):
            return []
        columns |= dict.fromkeys(map(str, row))
        if len(columns) > MAX_TABLE_COLUMNS:
            return []
    return list(columns)


def format_cell(value: Any) -> str:
    return "" if value is None else format_value(value)


def pretty_json(value: Any) -> str:
    """Format a value over several lines, in the same way for equal values."""
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=str)


def json_tree(value: Any, max_nodes: int = MAX_TREE_NODES) -> JsonNode:
    """Return the tree of a value with at most about `max_nodes` nodes."""
    remaining = max_nodes

    def add(key: str, value: Any) -> JsonNode:
        nonlocal remaining
        remaining -= 1
        match value:
            case Mapping() | list():
                is_object = isinstance(value, Mapping)
                items = value.items() if isinstance(value, Mapping) else enumerate(value)
                children: list[JsonNode] = []
                for name, item in items:
                    if remaining <= 0:
                        break
                    children.append(add(str(name), item))
                left_out = len(value) - len(children)
                kind: Literal["object", "array"] = "object" if is_object else "array"
                return JsonNode(key, kind, str(len(value)), children, left_out)
            case str():
                return JsonNode(key, "string", json.dumps(value[:MAX_TEXT_CHARS], ensure_ascii=False))
            case bool():
                return JsonNode(key, "boolean", "true" if value else "false")
            case None:
                return JsonNode(key, "null", "null")
        return JsonNode(key, "number", json.dumps(value, default=str))

    return add("", value)
