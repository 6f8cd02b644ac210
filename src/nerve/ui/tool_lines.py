"""A tool call of an agent on one line: the tool, and the part of its input that tells most."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from nerve.core.json_codec import encode_json
from nerve.text import clip_text

MAX_TOOL_INPUT_CHARS = 160
MAIN_INPUTS = (
    "command",
    "cmd",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "url",
    "question",
    "prompt",
    "title",
)
"""Names of the input that tells what a tool does, the most telling first."""


def format_tool_call(data: Mapping[str, Any]) -> str:
    """Format the name and the input of a tool call on one line, without its symbol."""
    return f"{data.get('name')} {format_tool_input(data.get('input'))}".rstrip()


def format_tool_input(tool_input: Any) -> str:
    """Return the beginning of the main part of an input on one line; of another input, all of it as JSON."""
    return clip_text(" ".join(find_main_input(tool_input).split()), MAX_TOOL_INPUT_CHARS)


def find_main_input(tool_input: Any) -> str:
    if not tool_input:
        return ""
    match tool_input:
        case {"changes": [*changes]} if all(isinstance(each, Mapping) for each in changes):
            return ", ".join(str(each.get("path", "")) for each in changes)
        case {**fields}:
            for name in MAIN_INPUTS:
                match fields.get(name):
                    case str() as text if text.strip():
                        return text
                    case [*words] if words and all(isinstance(word, str) for word in words):
                        return shlex.join(map(str, words))
    return tool_input if isinstance(tool_input, str) else encode_json(tool_input, max_depth=None)
