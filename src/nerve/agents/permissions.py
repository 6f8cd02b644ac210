"""Permissions: what an agent may do by itself, what never, and what a person must allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from nerve.agents.patterns import Use, allows, encode, forbids

Verdict = Literal["allow", "ask", "deny"]
LISTS = ("allow", "ask", "deny")
GIST = 60
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
        for name in LISTS:
            object.__setattr__(self, name, patterns(name, getattr(self, name)))
        if self.otherwise is not None and self.otherwise not in LISTS:
            raise ValueError(f"permissions: otherwise is allow, ask or deny, not {self.otherwise!r}")

    @classmethod
    def of(cls, given: Permissions | Mapping[str, Any] | None) -> Permissions:
        if given is None or isinstance(given, Permissions):
            return given or cls()
        if not isinstance(given, Mapping):
            raise ValueError(f"permissions are a mapping with {', '.join(cls.__slots__)}, not {given!r}")
        unknown = [name for name in given if name not in cls.__slots__]
        if unknown:
            raise ValueError(f"permissions have no '{unknown[0]}'; they have {', '.join(cls.__slots__)}")
        return cls(**given)

    def verdict(self, tool: str, input: Mapping[str, Any], cwd: str = "") -> Verdict:
        return self.said(Use(tool, input, cwd))[0] or self.otherwise or "ask"

    def said(self, *uses: Use) -> tuple[Verdict | None, str]:
        """What the patterns say of a call, and which of them; the call may go by several names."""
        for name in ("deny", "ask", "allow"):
            fits = allows if name == "allow" else forbids
            for pattern in getattr(self, name):
                if any(fits(pattern, use) for use in uses):
                    return name, pattern
        return None, ""

    @property
    def restricts(self) -> tuple[str, ...]:
        """What is to hold although the agent's program would not ask, in words of the policy."""
        words = [f"{name}: {pattern}" for name in ("deny", "ask") for pattern in getattr(self, name)]
        return (*words, f"otherwise: {self.otherwise}") if self.otherwise in ("ask", "deny") else tuple(words)


def patterns(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, str) and each.strip() for each in given
    ):
        raise ValueError(
            f"permissions: {name} is a list of patterns, as [Read, 'Bash(git *)'], not {given!r}"
        )
    return tuple(given)


@dataclass(frozen=True, slots=True)
class Action:
    """Exactly what a person is asked to allow; the answer counts for this and nothing else."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    cwd: str = ""

    def to_dict(self) -> dict[str, Any]:
        told = {"tool": self.tool, "input": dict(self.input), "cwd": self.cwd}
        return {**told, "hash": sha256(encode(told, canonical=True).encode()).hexdigest()}


def question(agent: str, action: Action, reason: str = "") -> str:
    """What is asked, with everything that would be run."""
    lines = [f"{agent} wants to use {gist(action)}:", "", *shown(action.input)]
    if action.cwd and action.input.get("cwd") != action.cwd:
        lines += ["", f"In the folder {visible(action.cwd)}".replace("\n", "\n        ")]
    if reason and reason not in action.input.values():
        lines += ["", f"The agent says: {visible(reason)}".replace("\n", "\n        ")]
    return "\n".join(lines)


def gist(action: Action) -> str:
    """The use of a tool in one line, as a pattern would name it; the whole of it follows."""
    subjects = Use(action.tool, action.input).subjects
    used_on = subjects[0][1] if subjects else encode(dict(action.input)) if action.input else ""
    used_on = visible(used_on.replace("\n", " "))
    return f"{action.tool}({used_on[:GIST] + '…' * (len(used_on) > GIST)})" if used_on else action.tool


def shown(input: Mapping[str, Any]) -> Iterable[str]:
    """Every field in full, characters that a screen would hide or obey written out.

    The further lines of a text stand further in, so that none of them can pass for a field.
    """
    for key, value in input.items():
        text = value if isinstance(value, str) else encode(value)
        yield f"    {visible(key)}: {visible(text)}".replace("\n", "\n        ")


def visible(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
