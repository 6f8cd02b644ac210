"""Keys of Claude Code and OpenCode in front matter, as settings of Nerve."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nerve.text.source import LocatedMap, Position, Problem

MODES = {"default": "ask", "acceptEdits": "edits", "plan": "read"}
"""The modes of permissions of Claude Code that are modes of Nerve; `dontAsk` denies what is not allowed."""
SILENT_KEYS = frozenset(
    {"name", "description", "color", "argument-hint", "disable-model-invocation", "user-invocable"}
    | {"license", "metadata", "version"}
)
"""The keys that change nothing in what an agent does."""
NAMES_BY_KEY = {"maxTurns": "max_turns", "mcpServers": "mcp"}


OPENCODE_TOOLS = {
    "bash": ("Bash", "execute"),
    "edit": ("Edit", "MultiEdit", "apply_patch"),
    "write": ("Write", "edit"),
}
"""The names that other providers have for the tools of OpenCode."""


def translate_agent_keys(fields: LocatedMap, file: str, known: Collection[str]) -> list[Problem]:
    """Set the settings that the keys of Claude Code in an agent file name; return those without effect.

    A setting under its own name takes precedence. Other keys of files outside of `.claude` belong to other
    programs.
    """
    for key, name in NAMES_BY_KEY.items():
        if key in fields and name not in fields:
            fields.set_from(name, join_servers(fields[key]), fields, key)
    translate_opencode_keys(fields)
    rules, problems = read_permissions(fields, file)
    for key, rule in rules.items():
        if "permissions" not in fields:
            fields.set_from("permissions", LocatedMap((), fields.position), fields, key)
        fields["permissions"].update(rule)
    used = {*known, *NAMES_BY_KEY, "disallowedTools", "permissionMode"}
    return problems + list(ineffective_key_problems(fields, file, used))


def translate_opencode_keys(fields: LocatedMap) -> None:
    """Turn `tools: {bash: false}` and `permission: {edit: ask}` of OpenCode into permissions."""
    tools, verdicts = fields.get("tools"), fields.get("permission")
    rules: dict[str, list[str]] = {}
    if isinstance(tools, Mapping):
        for name, is_allowed in tools.items():
            if is_allowed is False:
                rules.setdefault("deny", []).extend(opencode_patterns(str(name)))
        del fields["tools"]
    for name, verdict in verdicts.items() if isinstance(verdicts, Mapping) else ():
        by_subject = verdict if isinstance(verdict, Mapping) else {"*": verdict}
        for subject, word in by_subject.items():
            if word in ("allow", "ask", "deny"):
                rules.setdefault(word, []).extend(opencode_patterns(str(name), str(subject)))
    if rules and "permissions" not in fields:
        permissions = LocatedMap(rules, fields.position)
        fields.set_from("permissions", permissions, fields, "tools" if verdicts is None else "permission")


def opencode_patterns(tool: str, subject: str = "*") -> list[str]:
    """Return the patterns of a tool of OpenCode under the names that providers give it."""
    names = dict.fromkeys((tool, *OPENCODE_TOOLS.get(tool, (tool.capitalize(),))))
    return [name if subject == "*" else f"{name}({subject})" for name in names]


def join_servers(value: Any) -> Any:
    """Return MCP servers as one mapping, if they are a list of mappings; other values as they are."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return {name: server for item in value for name, server in item.items()}
    return value


def read_permissions(fields: LocatedMap, file: str) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """Return the rules of permissions by the key that they come from, and the problems."""
    if "permissions" in fields:
        return {}, []
    rules: dict[str, dict[str, Any]] = {}
    for key in ("disallowedTools", "disallowed-tools"):
        names = fields.get(key)
        names = split_tools(names) if isinstance(names, str) else names
        if names:
            patterns = names if not isinstance(names, list) else [tool_pattern(str(name)) for name in names]
            rules[key] = {"deny": patterns}
    mode = fields.get("permissionMode")
    if mode == "dontAsk":
        rules["permissionMode"] = {"otherwise": "deny"}
    elif isinstance(mode, str) and mode in MODES:
        rules["permissionMode"] = {"mode": MODES[mode]}
    elif mode is not None:
        message = f"'permissionMode: {mode}' has no effect"
        fix = "Write permissions: {mode: all}, if the agent may do everything without approval."
        position = fields.position_of_value("permissionMode") or Position()
        return rules, [Problem(file, position, message, fix, "warning")]
    return rules, []


def ineffective_key_problems(fields: LocatedMap, file: str, used: Collection[str]) -> Iterator[Problem]:
    """Yield a warning for each key of a file of Claude Code that Nerve does not use."""
    if ".claude" not in file.split("/"):
        return
    for key in fields:
        if key not in used and key not in SILENT_KEYS:
            position = fields.key_positions.get(key) or Position()
            fix = "Remove it, or set what it means in the step of the workflow."
            yield Problem(file, position, f"'{key}' has no effect in Nerve", fix, "warning")


def split_tools(text: str) -> list[str]:
    """Return the names of a list with commas; a comma in parentheses belongs to a name."""
    return [name for part in re.findall(r"(?:[^,(]|\([^)]*\))+", text) if (name := part.strip())]


def tool_pattern(name: str) -> str:
    """Return a tool of Claude Code as a pattern: `Bash(git add:*)` is `Bash(git add *)`."""
    return re.sub(r":\*\)$", " *)", name.strip())
