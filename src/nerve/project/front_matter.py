"""Front matter of Markdown files, read as leniently as Claude Code reads it."""

from __future__ import annotations

import re
from typing import Any

from nerve.text.source import InvalidDefinition, LocatedMap, Position
from nerve.text.yaml_reader import load_yaml

FRONT_MATTER_PATTERN = re.compile(r"\A---[ \t]*\r?\n((?:.*\r?\n)*?)---[ \t]*(?:\r?\n|\Z)")
HINT_LINE = re.compile(r"^argument-hint:[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)
"""A line that is read as text: `[message]` would be a list in YAML."""
KNOWN_KEYS = frozenset(
    {"name", "description", "model", "color", "tools", "allowed-tools", "disallowedTools", "argument-hint"}
    | {"permissionMode", "permissions", "maxTurns", "effort", "skills", "hooks", "mcpServers", "memory"}
    | {"license", "version", "metadata", "isolation", "background", "context", "agent", "provider"}
)
"""The keys that end a description: its examples have lines such as `user: "…"`."""
KEY_LINE = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:[ \t]*(.*)")


def split_front_matter(text: str) -> tuple[str, str]:
    """Return the front matter of a text, without its fences, and the text after it."""
    match = FRONT_MATTER_PATTERN.match(text)
    return (match[1], text[match.end() :].lstrip("\n")) if match else ("", text)


def read_argument_hint(text: str) -> str:
    """Return the `argument-hint` of a prompt file: the arguments that it expects; an empty text without."""
    match = HINT_LINE.search(split_front_matter(text)[0])
    return match[1].strip("\"'") if match else ""


def read_fields(text: str, file: str) -> Any:
    """Return the value of front matter, normally a mapping; raises `InvalidDefinition`.

    A value that YAML rejects, such as `Use it for: reviews` or `*.py`, is the text of its line.
    """
    try:
        return load_yaml(text, file)
    except InvalidDefinition:
        lenient = read_lines(text, file)
        if lenient is None:
            raise
        return lenient


def read_lines(text: str, file: str) -> LocatedMap | None:
    """Return the fields of lines `key: value`, or None if one of them cannot be read alone."""
    fields = LocatedMap((), Position(1))
    key, block, start = "", "", 1
    for number, line in enumerate([*text.split("\n"), "end:"], start=1):
        match = KEY_LINE.fullmatch(line.rstrip())
        if match is None or (key == "description" and match[1] not in KNOWN_KEYS and line != "end:"):
            if line.strip() and not key:
                return None
            block += f"\n{line}"
            continue
        if key:
            value = read_value(key, block, file)
            if value is None:
                return None
            fields.set_at(key, *value, Position(start))
        key, block, start = match[1], match[2], number
    return fields


def read_value(key: str, block: str, file: str) -> tuple[object] | None:
    """Return a value in a tuple; a plain text that is not YAML is itself."""
    try:
        return (load_yaml(f"{key}: {block}", file)[key],)
    except InvalidDefinition:
        text = block.strip()
        if key == "argument-hint":  # `[a] [b]` is not a list
            return (text,)
        is_text = key == "description" or text[:1] not in ("[", "{", "|", ">", '"', "'")
        return (" ".join(text.split()),) if is_text else None
