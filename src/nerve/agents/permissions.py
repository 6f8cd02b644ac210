"""Permissions: what an agent may do by itself, what never, and what a person must allow."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from posixpath import basename, normpath
from typing import Any, Literal

from nerve.core.values import encode

Verdict = Literal["allow", "ask", "deny"]
GIST = 60
"""Characters that the first line of a question shows of what would be run."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Patterns of tools: `Read`, `mcp__*`, or with what they are used on, `Bash(git *)`.

    What is denied is denied, whatever else says; what nothing mentions is `otherwise`.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    otherwise: Verdict = "ask"

    @classmethod
    def of(cls, given: Permissions | Mapping[str, Any] | None) -> Permissions:
        if given is None or isinstance(given, Permissions):
            return given or cls()
        unknown = [name for name in given if name not in cls.__slots__]
        if unknown:
            raise ValueError(f"permissions have no '{unknown[0]}'; they have {', '.join(cls.__slots__)}")
        lists = {name: tuple(given.get(name, ())) for name in ("allow", "ask", "deny")}
        return cls(**lists, otherwise=given.get("otherwise", "ask"))

    def verdict(self, tool: str, input: Mapping[str, Any]) -> Verdict:
        for name in ("deny", "ask", "allow"):
            if any(fits(pattern, tool, input) for pattern in getattr(self, name)):
                return name
        return self.otherwise


def fits(pattern: str, tool: str, input: Mapping[str, Any]) -> bool:
    """Whether a pattern means this use of a tool; `Bash(git *)` means one command, not several."""
    name, _, inner = pattern.partition("(")
    if not fnmatchcase(tool, name.strip()):
        return False
    if not inner:
        return True
    used_on = subject(input)
    chained = any(sign in used_on for sign in (";", "&", "|", "`", "$(", "\n", ">", "<"))
    return fnmatchcase(used_on, inner.removesuffix(")")) and not chained


FILES = ("file_path", "path")
SHELLS = ("bash", "sh", "zsh")


def subject(input: Mapping[str, Any]) -> str:
    """What a tool is used on: a command, a file, an address. A file goes by its plain path, without `..`."""
    for key in ("command", "file_path", "path", "url", "pattern"):
        if isinstance(value := input.get(key), str):
            return normpath(value) if key in FILES else unwrapped(value) if key == "command" else value
        if isinstance(value, list):
            return unwrapped(shlex.join(map(str, value)))
    return encode(dict(input))


def unwrapped(command: str) -> str:
    """What `bash -lc '…'` runs, which is how some agents tell of a command; any other as it is."""
    try:
        program, option, script = shlex.split(command)
    except ValueError:
        return command
    return script if basename(program) in SHELLS and option in ("-c", "-lc") else command


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
    if reason and reason not in action.input.values():
        lines += ["", f"The agent says: {reason}"]
    return "\n".join(lines)


def gist(action: Action) -> str:
    """The use of a tool in one line, as a pattern would name it; the whole of it follows."""
    used_on = visible(subject(action.input).replace("\n", " ")) if action.input else ""
    return (
        f"{action.tool}({used_on if len(used_on) <= GIST else used_on[:GIST] + '…'})"
        if used_on
        else action.tool
    )


def shown(input: Mapping[str, Any]) -> Iterable[str]:
    """Every field in full, characters that a screen would hide or obey written out.

    The further lines of a text stand further in, so that none of them can pass for a field.
    """
    for key, value in input.items():
        text = value if isinstance(value, str) else encode(value)
        yield f"    {visible(key)}: {visible(text)}".replace("\n", "\n        ")


def visible(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
