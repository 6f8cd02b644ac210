"""Permissions: which tools an agent may use, which it may not, and which a person must allow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from nerve.agents.tool_patterns import ToolUse, encode_tool_input, pattern_allows, pattern_forbids
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_settings import PERMISSION_MODES

Verdict = Literal["allow", "ask", "deny"]
PATTERN_LISTS = ("allow", "ask", "deny")
MAX_SUMMARY_CHARS = 60
"""Characters of the tool input that the first line of a question shows."""


class PermissionRule(NamedTuple):
    """The rule that applies to a tool call; without a verdict, the agent's program decides."""

    verdict: Verdict | None
    pattern: str = ""
    """The pattern of the permissions that matches; empty if none does."""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.pattern}" if self.pattern else f"otherwise: {self.verdict}"


@dataclass(frozen=True, slots=True)
class Permissions:
    """Tool patterns: `Read`, `mcp__*`, or with what the tool is used on, `Bash(git *)`.

    `deny` takes precedence over the other lists. `otherwise` applies to tools that no pattern matches;
    without it, the agent's program uses tools it considers harmless, and a person is asked about the rest.
    `mode` is a rule for these tools by what they do: `ask` leaves them to the program and a person, `edits`
    also allows edits in the folder of the agent, `all` allows everything, `read` allows only reading.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    otherwise: Verdict | None = None
    mode: str | None = None

    def __post_init__(self) -> None:
        for name in PATTERN_LISTS:
            value: Any = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(
                isinstance(item, str) and item.strip() for item in value
            ):
                expected = "a list of patterns, like [Read, 'Bash(git *)']"
                raise ValueError(f"permissions.{name} must be {expected}, got {value!r}")
            object.__setattr__(self, name, tuple(value))
        if self.otherwise is not None and self.otherwise not in PATTERN_LISTS:
            raise ValueError(f"permissions.otherwise must be allow, ask or deny, got {self.otherwise!r}")
        if self.mode is not None and self.mode not in PERMISSION_MODES:
            raise ValueError(f"permissions.mode must be ask, edits, all or read, got {self.mode!r}")

    @classmethod
    def of(cls, value: Permissions | Mapping[str, Any] | None) -> Permissions:
        if value is None or isinstance(value, Permissions):
            return value or cls()
        if not isinstance(value, Mapping):
            raise ValueError(f"permissions must be a mapping with {', '.join(cls.__slots__)}, got {value!r}")
        unknown = [name for name in value if name not in cls.__slots__]
        if unknown:
            raise ValueError(f"Unknown permissions key '{unknown[0]}'. Available: {', '.join(cls.__slots__)}")
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules that are set."""
        lists = {name: list(patterns) for name in PATTERN_LISTS if (patterns := getattr(self, name))}
        rules = {"otherwise": self.otherwise, "mode": self.mode}
        return lists | {name: rule for name, rule in rules.items() if rule is not None}

    def with_mode_rules(
        self, edit_tools: Sequence[str], read_tools: Sequence[str], folder: str
    ) -> Permissions:
        """Return the permissions with the rules of their mode, for a provider with these tools."""
        match self.mode:
            case "all":
                return replace(self, otherwise="allow")
            case "edits":
                edits = (f"{tool}({os.path.realpath(folder)}/*)" for tool in edit_tools)
                return replace(self, allow=(*self.allow, *edits))
            case "read" if read_tools:
                return replace(self, allow=(*self.allow, *read_tools), otherwise="deny")
        return self

    def verdict(self, tool: str, input: Mapping[str, Any], cwd: str = "") -> Verdict:
        return self.find_rule(ToolUse(tool, input, cwd)).verdict or "ask"

    def find_rule(self, *uses: ToolUse, tools: Sequence[str] = ()) -> PermissionRule:
        """Return the rule on a call.

        `uses` are its alternative names; `tools` are patterns of tools that need no permission otherwise.
        """
        for name in ("deny", "ask", "allow"):
            matches = pattern_allows if name == "allow" else pattern_forbids
            for pattern in getattr(self, name):
                if any(matches(pattern, use) for use in uses):
                    return PermissionRule(name, pattern)
        if any(pattern_allows(tool, use) for tool in tools for use in uses):
            return PermissionRule("allow")
        return PermissionRule(self.otherwise)

    @property
    def restrictions(self) -> tuple[str, ...]:
        """The rules that the provider must enforce even if the agent's program does not ask."""
        rules = [
            *(PermissionRule("deny", pattern) for pattern in self.deny),
            *(PermissionRule("ask", pattern) for pattern in self.ask),
            *([PermissionRule(self.otherwise)] if self.otherwise in ("ask", "deny") else []),
        ]
        return tuple(map(str, rules))


def format_permission_question(agent: str, use: ToolUse, reason: str = "") -> str:
    """Format the question with every field of the input in full."""

    def field_line(label: str, text: str) -> str:
        # Continuation lines are indented, so that none of them looks like a field.
        return f"{label}{escape_control_characters(text)}".replace("\n", "\n        ")

    lines = [f"{agent} wants to use {summarize_use(use)}:", ""]
    for key, value in use.input.items():
        text = value if isinstance(value, str) else encode_tool_input(value)
        lines.append(field_line(f"    {escape_control_characters(key)}: ", text))
    if use.cwd and use.input.get("cwd") != use.cwd:
        lines += ["", field_line("In the folder ", use.cwd)]
    if reason and reason not in use.input.values():
        lines += ["", field_line("The agent says: ", reason)]
    return "\n".join(lines)


def summarize_use(use: ToolUse) -> str:
    """Return the tool call in one line, in the form of a pattern."""
    subjects = use.subjects
    subject = subjects[0][1] if subjects else encode_tool_input(dict(use.input)) if use.input else ""
    subject = escape_control_characters(subject.replace("\n", " "))
    return (
        f"{use.tool}({subject[:MAX_SUMMARY_CHARS] + '…' * (len(subject) > MAX_SUMMARY_CHARS)})"
        if subject
        else use.tool
    )


def escape_control_characters(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
