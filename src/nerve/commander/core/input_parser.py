"""Input parser: node, graph, workflow with options, command, reference, or plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.ui.formatting import format_value

FILE_PREFIXES = ("./", "../", "/", "~")
"""Prefixes that make `@…` a file name."""
ESCAPABLE_CHARS = "@#%/:\\"
"""Characters that a leading backslash turns into plain text."""
REFERENCE_PATTERN = re.compile(r":{2,3}(?P<name>-?\d+|[^\W\d][\w-]*)(?P<fields>(?:\[[^\[\]\s]+\])*)")


class InputType(StrEnum):
    """The kinds of input, determined by the prefix of the line."""

    NODE = "node"
    GRAPH = "graph"
    WORKFLOW = "workflow"
    COMMAND = "command"
    REFERENCE = "reference"
    DIRECT = "direct"


INPUT_PREFIXES = {"@": InputType.NODE, "#": InputType.GRAPH, "%": InputType.WORKFLOW, "/": InputType.COMMAND}
MISSING_NAME_MESSAGES = {
    InputType.NODE: "Node or graph name is missing: @name text.",
    InputType.GRAPH: "Graph name is missing: #name text.",
    InputType.WORKFLOW: "Workflow name is missing: %name text. /workflows lists them.",
    InputType.COMMAND: "Command name is missing. /help lists the commands.",
}


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """A parsed line; `problem` is the error message of an invalid one."""

    type: InputType
    target: str = ""
    text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of a workflow as strings; an option without a value is True."""
    problem: str = ""


def parse_input(text: str) -> ParsedInput:
    """Parse a line; never raises.

    `@node text`, `#graph text`, `%workflow --name=value text`, `/command text` or `:command`, `::reference`;
    anything else is plain text for the current target, and so is the text after `//` or a backslash.
    """
    text = text.strip()
    if text.startswith("//"):
        return ParsedInput(InputType.DIRECT, text=text[1:])
    if text[:1] == "\\" and text[1:2] and text[1] in ESCAPABLE_CHARS and not text.startswith("\\::"):
        return ParsedInput(InputType.DIRECT, text=text[1:])
    if REFERENCE_PATTERN.fullmatch(text):
        return ParsedInput(InputType.REFERENCE, target=text.lstrip(":"))
    if (type := detect_input_type(text)) is None:
        return ParsedInput(InputType.DIRECT, text=text)
    target, rest = split_first_word(text[1:])
    if not target:
        return ParsedInput(type, problem=MISSING_NAME_MESSAGES[type])
    if type is not InputType.WORKFLOW:
        return ParsedInput(type, target, rest)
    options, rest, problem = split_options(rest)
    return ParsedInput(type, target, rest, options, problem)


def detect_input_type(text: str) -> InputType | None:
    """Return the kind of input that the prefix selects; None for plain text."""
    prefix, next_char = text[:1], text[1:2]
    if prefix == ":":
        return InputType.COMMAND if next_char.isalpha() else None
    if prefix == "@" and text[1:].startswith(FILE_PREFIXES):
        return None
    has_name = (
        not next_char or next_char == "_" or next_char.isalnum() or (prefix == "/" and next_char == "?")
    )
    return INPUT_PREFIXES.get(prefix) if has_name else None


def split_first_word(text: str) -> tuple[str, str]:
    """Split a text into its first word and the rest."""
    word, *rest = text.split(None, 1) or [""]
    return word, rest[0] if rest else ""


def split_options(text: str) -> tuple[dict[str, Any], str, str]:
    """Return the leading options of a text, the text after them, and any error; `--` ends the options."""
    options: dict[str, Any] = {}
    while text.startswith("--"):
        word, rest = split_first_word(text)
        if word == "--":
            return options, rest, ""
        option_name, equals, _ = word[2:].partition("=")
        name, value = option_name.replace("-", "_"), True if not equals else ""
        if not name.isidentifier():
            return options, text, f"{word} is not a valid option: write --name=value, or -- before the text."
        if name in options:
            return options, text, f"Option --{option_name} is given twice."
        if equals:
            value_and_rest = split_option_value(text[2 + len(option_name) + 1 :])
            if value_and_rest is None:
                return (
                    options,
                    text,
                    f'Missing closing quote for --{option_name}: write --{option_name}="…".',
                )
            value, rest = value_and_rest
        options[name], text = value, rest
    return options, text, ""


def split_option_value(text: str) -> tuple[str, str] | None:
    """Split off the leading value: quoted, JSON, or a word; None if a quote is not closed."""
    if text[:1] in ("'", '"'):
        quoted = re.match(r'"((?:[^"\\]|\\.)*)"(?!\S)|\'([^\']*)\'(?!\S)', text, re.DOTALL)
        if quoted is None:
            return None
        value = quoted[2] if quoted[1] is None else re.sub(r'\\(["\\])', r"\1", quoted[1])
        return value, text[quoted.end() :].lstrip()
    if text[:1] in ("[", "{") and (end := find_json_end(text)) is not None:
        return text[:end], text[end:].lstrip()
    return split_first_word(text) if text[:1].strip() else ("", text.lstrip())


def find_json_end(text: str) -> int | None:
    """Return the end of the leading JSON value; None if whitespace does not follow it."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return end if not text[end : end + 1].strip() else None


def format_input(parsed: ParsedInput) -> str:
    """Return the line that parses to this input."""
    match parsed.type:
        case InputType.DIRECT:
            is_plain = parse_input(parsed.text) == ParsedInput(InputType.DIRECT, text=parsed.text)
            return parsed.text if is_plain else f"\\{parsed.text}"
        case InputType.REFERENCE:
            return f"::{parsed.target}"
        case InputType.WORKFLOW:
            options = [format_option(name, value) for name, value in parsed.options.items()]
            options_end = ["--"] if parsed.text.startswith("--") else []
            return " ".join(["%" + parsed.target, *options, *options_end, parsed.text]).rstrip()
        case type:
            prefix = next(prefix for prefix, input_type in INPUT_PREFIXES.items() if input_type is type)
            return f"{prefix}{parsed.target} {parsed.text}".rstrip()


def format_option(name: str, value: Any) -> str:
    if value is True:
        return f"--{name}"
    text = format_value(value)
    if text and split_option_value(text) == (text, ""):
        return f"--{name}={text}"
    quoted = re.sub(r'(["\\])', r"\\\1", text)
    return f'--{name}="{quoted}"'
