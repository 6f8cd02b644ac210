"""Honour the front matter and the commands of prompt files as Claude Code does."""

from __future__ import annotations

import re
from typing import Any

from nerve.project.claude_keys import (
    ineffective_key_problems,
    read_permissions,
    split_tools,
    tool_pattern,
)
from nerve.project.discovery import PromptFile
from nerve.project.front_matter import read_fields
from nerve.text.source import InvalidDefinition, LocatedList, LocatedMap, Position, Problem

SOURCE_PATTERN = re.compile(
    r"(?<![\w`])!`(?P<command>[^`\n]+)`"
    r"""|(?<![^\s(\[])@(?:"(?P<quoted>[^"\n{}]+)"|(?P<file>[\w$./~][^\s"'`#(){}\[\]<>,;|*]*))"""
)
"""A shell command, or the name of a file, in a prompt; `#L5` after a name is text."""
OUTER_KEYS = ("id", "description", "depends_on", "trigger_rule", "when", "on_error", "workspace")
"""The keys of a prompt that belong to the sequence around it."""
ARGUMENTS_PATTERN = re.compile(r"\$ARGUMENTS\b")
USED_KEYS = frozenset(
    {"model", "allowed-tools", "disallowedTools", "disallowed-tools", "permissionMode", "maxTurns", "effort"}
)
"""The keys of front matter that are settings of the step."""


def apply_front_matter(node: LocatedMap, prompt: PromptFile, position: Position) -> list[Problem]:
    """Set the settings that the front matter of a prompt file names, unless the step sets them."""
    if not prompt.front_matter.strip():
        return []
    try:
        fields = read_fields("\n" + prompt.front_matter, str(prompt.path))
    except InvalidDefinition as error:
        return error.problems
    if not isinstance(fields, LocatedMap):
        return []
    model = fields.get("model")
    if isinstance(model, str) and model != "inherit" and "model" not in node:
        node.set_at("model", model, position)
    file = str(prompt.path)
    rules, problems = read_permissions(fields, file)
    permissions = LocatedMap((), position)
    for rule in rules.values():
        permissions.update(rule)
    tools = fields.get("allowed-tools")
    names = split_tools(tools) if isinstance(tools, str) else tools
    if isinstance(names, list):
        allowed = [tool_pattern(name) for name in names if isinstance(name, str) and name.strip()]
        if allowed:
            permissions["allow"] = LocatedList(allowed)
    if permissions and "permissions" not in node and "tools" not in node:
        node.set_at("permissions", permissions, position)
    for key, name in (("maxTurns", "max_turns"), ("effort", "effort")):
        if fields.get(key) is not None and name not in node:
            node.set_at(name, fields[key], position)
    return problems + list(ineffective_key_problems(fields, file, USED_KEYS))


def escape_braces(text: str) -> str:
    """Return the text of a file of Claude Code as a template: `{{ … }}` is text there."""

    def escape(match: re.Match[str]) -> str:
        if not match[1]:
            return "\\{{"
        literal = match[0].replace("\\", "\\\\")
        return f"{{{{ '{literal}' }}}}"

    return re.sub(r"(\\*)\{\{", escape, text)


def is_claude_file(prompt: PromptFile) -> bool:
    return ".claude" in prompt.path.parts


def read_sources_of_prompt(node: LocatedMap, prompt: PromptFile, position: Position) -> None:
    """Turn a prompt with `` !`command` `` or `@file` into a sequence that inserts the outputs and files.

    The name of a file stays in the text without its `@`, so that no program reads the file again, and
    the text of the file follows the prompt. Without such a file, `@name` stays as it is.
    """
    text = node.get("text")
    if not is_claude_file(prompt) or not isinstance(text, str) or not SOURCE_PATTERN.search(text):
        return
    steps = LocatedList((), position)
    files: dict[str, str] = {}
    prefix = f"_{node.get('id') or 'prompt'}"

    def add_step(step: dict[str, Any]) -> str:
        steps.append_at(LocatedMap(step, position), position)
        return str(step["id"])

    def insert_source(match: re.Match[str]) -> str:
        if match["command"] is not None:
            command = ARGUMENTS_PATTERN.sub("{{ input ?? '' }}", match["command"])
            id = f"{prefix}_command_{len(steps) + 1}"
            add_step({"kind": "bash", "id": id, "command": command, "input": ""})
            return f"{{{{ outputs[{id!r}] }}}}"
        quoted, name = match["quoted"] is not None, match["quoted"] or match["file"]
        path = name if quoted else name.rstrip(".:!?")
        if path not in files:
            id = f"{prefix}_file_{len(steps) + 1}"
            files[path] = add_step({"kind": "file", "id": id, "path": path, "optional": True})
        mark = f"{{{{ steps[{files[path]!r}].output == null ? '@' : '' }}}}"
        return mark + (f'"{path}"' if quoted else name)

    filled = SOURCE_PATTERN.sub(insert_source, text)
    filled += "".join(map(file_template, files.values()))
    inner = LocatedMap({key: value for key, value in node.items() if key not in OUTER_KEYS}, node.position)
    inner.key_positions, inner.value_positions = dict(node.key_positions), dict(node.value_positions)
    inner.set_at("text", filled, position)
    steps.append_at(inner, position)
    for key in [key for key in node if key not in OUTER_KEYS]:
        del node[key]
    node.update({"kind": "sequence", "steps": steps})


def file_template(id: str) -> str:
    """Return the part of a prompt with the file that a step has read; empty if there was none."""
    path, output = f"steps[{id!r}].attributes.path", f"steps[{id!r}].output"
    block = f"""'\\n\\n<file path="' + {path} + '">\\n' + {output} + '\\n</file>'"""
    return f"{{{{ {output} == null ? '' : {block} }}}}"
