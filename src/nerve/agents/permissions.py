"""Permissions: what an agent may do by itself, what never, and what a person must allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from nerve.agents.tool_patterns import ToolUse, encode_tool_input, pattern_allows, pattern_forbids

Verdict = Literal["allow", "ask", "deny"]
PATTERN_LISTS = ("allow", "ask", "deny")
MAX_SUMMARY_CHARS = 60
"""Characters that the first line of a question shows of what would be run."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Patterns of tools: `Read`, `mcp__*`, or with what they are used on, `Bash(git *)`.

    What is denied is denied, whatever else says. What nothing mentions is `otherwise`; if that is not said,
    the agent's program does by itself what it takes for harmless, and a person is asked about the rest.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    otherwise: Verdict | None = None

    def __post_init__(self) -> None:
        for name in PATTERN_LISTS:
            object.__setattr__(self, name, validate_patterns(name, getattr(self, name)))
        if self.otherwise is not None and self.otherwise not in PATTERN_LISTS:
            raise ValueError(f"permissions: otherwise is allow, ask or deny, not {self.otherwise!r}")

    @classmethod
    def of(cls, value: Permissions | Mapping[str, Any] | None) -> Permissions:
        if value is None or isinstance(value, Permissions):
            return value or cls()
        if not isinstance(value, Mapping):
            raise ValueError(f"permissions are a mapping with {', '.join(cls.__slots__)}, not {value!r}")
        unknown = [name for name in value if name not in cls.__slots__]
        if unknown:
            raise ValueError(f"permissions have no '{unknown[0]}'; they have {', '.join(cls.__slots__)}")
        return cls(**value)

    def verdict(self, tool: str, input: Mapping[str, Any], cwd: str = "") -> Verdict:
        return self.matching_rule(ToolUse(tool, input, cwd))[0] or self.otherwise or "ask"

    def matching_rule(self, *uses: ToolUse) -> tuple[Verdict | None, str]:
        """What the patterns say of a call, and which of them; the call may go by several names."""
        for name in ("deny", "ask", "allow"):
            matches = pattern_allows if name == "allow" else pattern_forbids
            for pattern in getattr(self, name):
                if any(matches(pattern, use) for use in uses):
                    return name, pattern
        return None, ""

    @property
    def restrictions(self) -> tuple[str, ...]:
        """What is to hold although the agent's program would not ask, in words of the policy."""
        words = [f"{name}: {pattern}" for name in ("deny", "ask") for pattern in getattr(self, name)]
        return (*words, f"otherwise: {self.otherwise}") if self.otherwise in ("ask", "deny") else tuple(words)


def validate_patterns(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and item.strip() for item in value
    ):
        raise ValueError(
            f"permissions: {name} is a list of patterns, as [Read, 'Bash(git *)'], not {value!r}"
        )
    return tuple(value)


@dataclass(frozen=True, slots=True)
class ToolAction:
    """Exactly what a person is asked to allow; the answer counts for this and nothing else."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    cwd: str = ""

    def to_dict(self) -> dict[str, Any]:
        fields = {"tool": self.tool, "input": dict(self.input), "cwd": self.cwd}
        return {**fields, "hash": sha256(encode_tool_input(fields, canonical=True).encode()).hexdigest()}


def format_permission_question(agent: str, action: ToolAction, reason: str = "") -> str:
    """What is asked, with everything that would be run."""
    lines = [f"{agent} wants to use {summarize_action(action)}:", "", *format_input_fields(action.input)]
    if action.cwd and action.input.get("cwd") != action.cwd:
        lines += ["", f"In the folder {escape_control_characters(action.cwd)}".replace("\n", "\n        ")]
    if reason and reason not in action.input.values():
        lines += ["", f"The agent says: {escape_control_characters(reason)}".replace("\n", "\n        ")]
    return "\n".join(lines)


def summarize_action(action: ToolAction) -> str:
    """The use of a tool in one line, as a pattern would name it; the whole of it follows."""
    subjects = ToolUse(action.tool, action.input).subjects
    subject = subjects[0][1] if subjects else encode_tool_input(dict(action.input)) if action.input else ""
    subject = escape_control_characters(subject.replace("\n", " "))
    return (
        f"{action.tool}({subject[:MAX_SUMMARY_CHARS] + '…' * (len(subject) > MAX_SUMMARY_CHARS)})"
        if subject
        else action.tool
    )


def format_input_fields(input: Mapping[str, Any]) -> Iterable[str]:
    """Every field in full, characters that a screen would hide or obey written out.

    The further lines of a text stand further in, so that none of them can pass for a field.
    """
    for key, value in input.items():
        text = value if isinstance(value, str) else encode_tool_input(value)
        yield f"    {escape_control_characters(key)}: {escape_control_characters(text)}".replace(
            "\n", "\n        "
        )


def escape_control_characters(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
