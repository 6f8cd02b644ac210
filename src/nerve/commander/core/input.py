"""What a line means: a node, a graph, a workflow with its options, a command, a reference, or plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

FILES = ("./", "../", "/", "~")
"""What makes `@…` the name of a file."""
ESCAPED = "@#%/:\\"
"""What a backslash at the beginning of a line makes plain text."""
REFERENCE = re.compile(r":{2,3}(?P<name>-?\d+|[^\W\d][\w-]*)(?P<fields>(?:\[[^\[\]\s]+\])*)")


class InputType(StrEnum):
    """The kinds of input, by the prefix of the line."""

    NODE = "node"
    GRAPH = "graph"
    WORKFLOW = "workflow"
    COMMAND = "command"
    REFERENCE = "reference"
    DIRECT = "direct"


PREFIXES = {"@": InputType.NODE, "#": InputType.GRAPH, "%": InputType.WORKFLOW, "/": InputType.COMMAND}
BARE = {
    InputType.NODE: "Name a node or a graph: @name text.",
    InputType.GRAPH: "Name a graph: #name text.",
    InputType.WORKFLOW: "Name a workflow: %name text. /workflows lists them.",
    InputType.COMMAND: "Name a command. /help lists them.",
}


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """A line that was understood; `problem` says in a sentence why it cannot be done."""

    type: InputType
    target: str = ""
    text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of a workflow as they were written; a bare one is True."""
    problem: str = ""


def parse_input(text: str) -> ParsedInput:
    """What a line means; it never raises.

    `@node text`, `#graph text`, `%workflow --name=value text`, `/command text` or `:command`, `::reference`;
    anything else is plain text for the current target, and so is what stands behind `//` or a backslash.
    """
    text = text.strip()
    if text.startswith("//"):
        return ParsedInput(InputType.DIRECT, text=text[1:])
    if text[:1] == "\\" and text[1:2] and text[1] in ESCAPED and not text.startswith("\\::"):
        return ParsedInput(InputType.DIRECT, text=text[1:])
    if REFERENCE.fullmatch(text):
        return ParsedInput(InputType.REFERENCE, target=text.lstrip(":"))
    if (type := type_of(text)) is None:
        return ParsedInput(InputType.DIRECT, text=text)
    target, rest = first_word(text[1:])
    if not target:
        return ParsedInput(type, problem=BARE[type])
    if type is not InputType.WORKFLOW:
        return ParsedInput(type, target, rest)
    options, rest, problem = options_of(rest)
    return ParsedInput(type, target, rest, options, problem)


def type_of(text: str) -> InputType | None:
    """The kind that a prefix says; None for plain text."""
    prefix, then = text[:1], text[1:2]
    if prefix == ":":
        return InputType.COMMAND if then.isalpha() else None
    if prefix == "@" and text[1:].startswith(FILES):
        return None
    named = not then or then == "_" or then.isalnum() or (prefix == "/" and then == "?")
    return PREFIXES.get(prefix) if named else None


def first_word(text: str) -> tuple[str, str]:
    """The first word, and what stands behind it."""
    word, *rest = text.split(None, 1) or [""]
    return word, rest[0] if rest else ""


def options_of(text: str) -> tuple[dict[str, Any], str, str]:
    """The options at the beginning of a text, the text behind them, and what is wrong; `--` ends them."""
    options: dict[str, Any] = {}
    while text.startswith("--"):
        word, rest = first_word(text)
        if word == "--":
            return options, rest, ""
        written, equals, _ = word[2:].partition("=")
        name, value = written.replace("-", "_"), True if not equals else ""
        if not name.isidentifier():
            return options, text, f"{word} names no option: write --name=value, or -- before the text."
        if name in options:
            return options, text, f"The option --{written} is given twice."
        if equals:
            read = value_at(text[2 + len(written) + 1 :])
            if read is None:
                return options, text, f'The quote of --{written} is not closed: write --{written}="…".'
            value, rest = read
        options[name], text = value, rest
    return options, text, ""


def value_at(text: str) -> tuple[str, str] | None:
    """The value at the beginning of a text: in quotes, JSON, or a word; None for a quote that is open."""
    if text[:1] in ("'", '"'):
        quoted = re.match(r'"((?:[^"\\]|\\.)*)"(?!\S)|\'([^\']*)\'(?!\S)', text, re.DOTALL)
        if quoted is None:
            return None
        value = quoted[2] if quoted[1] is None else re.sub(r'\\(["\\])', r"\1", quoted[1])
        return value, text[quoted.end() :].lstrip()
    if text[:1] in ("[", "{") and (end := json_end(text)) is not None:
        return text[:end], text[end:].lstrip()
    return first_word(text) if text[:1].strip() else ("", text.lstrip())


def json_end(text: str) -> int | None:
    """Where the JSON value at the beginning of a text ends, if a word ends there."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return end if not text[end : end + 1].strip() else None


def write_input(parsed: ParsedInput) -> str:
    """The line that means this."""
    match parsed.type:
        case InputType.DIRECT:
            return escaped(parsed.text)
        case InputType.REFERENCE:
            return f"::{parsed.target}"
        case InputType.WORKFLOW:
            options = [written(name, value) for name, value in parsed.options.items()]
            stop = ["--"] if parsed.text.startswith("--") else []
            return " ".join(["%" + parsed.target, *options, *stop, parsed.text]).rstrip()
        case type:
            prefix = next(prefix for prefix, each in PREFIXES.items() if each is type)
            return f"{prefix}{parsed.target} {parsed.text}".rstrip()


def escaped(text: str) -> str:
    """A text as it is written at the beginning of a line."""
    return text if parse_input(text) == ParsedInput(InputType.DIRECT, text=text) else f"\\{text}"


def written(name: str, value: Any) -> str:
    if value is True:
        return f"--{name}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text and value_at(text) == (text, ""):
        return f"--{name}={text}"
    quoted = re.sub(r'(["\\])', r"\\\1", text)
    return f'--{name}="{quoted}"'
