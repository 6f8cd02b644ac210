"""Tool patterns: how `Bash(git *)` or `Edit(secrets/*)` matches a tool call, to allow or to forbid it.

Allowing is strict: a pattern must match one plain command and every file that the call touches. Forbidding
is conservative: a pattern matches if any part of the call matches, and unknown parts count as matching.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from hashlib import sha256
from posixpath import basename, isabs, join, normpath
from typing import Any, Literal
from urllib.parse import urlsplit

from nerve.lazy_dataclass import dataclass

SubjectKind = Literal["command", "file", "url", "text"]
SUBJECT_KEYS: Mapping[str, SubjectKind] = {
    "command": "command",
    "cmd": "command",
    **dict.fromkeys(("file_path", "path", "notebook_path", "filePath", "absolute_path", "abs_path"), "file"),
    **dict.fromkeys(("move_path", "grantRoot"), "file"),
    "url": "url",
    "pattern": "text",
    "query": "text",
}
"""Input keys under which tools receive what they are used on."""
NESTED_KEYS = ("changes", "content", "locations", "edits", "kind")
"""Input keys that contain file paths: a patch, a diff, the locations of a call."""
SHELL_NAMES = ("bash", "sh", "zsh", "dash")
COMMAND_CHAIN = re.compile(r"[;&|`\n<>]|\$\(")
COMMAND_SEPARATOR = re.compile(r"[;&|\n<>(){}!]")
COMMAND_SUBSTITUTION = re.compile(r"\$\(|`")
QUOTE_CHARACTERS = re.compile(r"\\\n|['\"\\]")
SHELL_EXPANSION = re.compile(r"[$*?\[~]")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
TEST_COMMANDS = ("[", "[[")
COMMAND_RUNNERS = (
    "command",
    "doas",
    "env",
    "eval",
    "exec",
    "nice",
    "nohup",
    "sudo",
    "time",
    "timeout",
    "xargs",
)
"""Programs that run the commands in their arguments."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool and what it is used on, with its working directory."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)
    cwd: str = ""

    @property
    def subjects(self) -> list[tuple[SubjectKind, str]]:
        return list(find_subjects(self.input))

    def to_dict(self) -> dict[str, Any]:
        """Return the use with its hash, which binds the answer of a person to exactly this use."""
        fields = {"tool": self.tool, "input": dict(self.input), "cwd": self.cwd}
        return {**fields, "hash": sha256(encode_tool_input(fields, canonical=True).encode()).hexdigest()}


def pattern_allows(pattern: str, use: ToolUse) -> bool:
    """Return whether a pattern certainly matches the complete call."""
    name, inner = split_pattern(pattern)
    if not fnmatchcase(use.tool, name):
        return False
    if inner is None:
        return True
    subjects = [subject for subject in use.subjects if subject[0] != "text"] or use.subjects
    if not subjects:
        return fnmatchcase(encode_tool_input(dict(use.input)), inner)
    return all(ALLOWS_BY_KIND[kind](inner, text, use.cwd) for kind, text in subjects)


def pattern_forbids(pattern: str, use: ToolUse) -> bool:
    """Return whether a pattern matches the call or any part of it, or could match."""
    name, inner = split_pattern(pattern)
    if not fnmatchcase(use.tool.lower(), name.lower()):
        return False
    if inner is None:
        return True
    subjects = use.subjects
    if not subjects:
        return use.input.keys() <= {"title"} or fnmatchcase(encode_tool_input(dict(use.input)), inner)
    return any(FORBIDS_BY_KIND[kind](inner, text, use.cwd) for kind, text in subjects)


def split_pattern(pattern: str) -> tuple[str, str | None]:
    """Split into the tool name and the text in parentheses after it."""
    name, bracket, inner = pattern.strip().partition("(")
    if not bracket or inner in (")", "*)"):
        return name.strip(), None
    return name.strip(), inner.removesuffix(")")


def find_subjects(input: Any, is_nested: bool = False) -> Iterator[tuple[SubjectKind, str]]:
    """Yield what a tool is used on; in lists, only files."""
    if isinstance(input, list | tuple):
        for item in input:
            yield from find_subjects(item, is_nested)
    if not isinstance(input, Mapping):
        return
    for key, value in input.items():
        kind = SUBJECT_KEYS.get(key)
        if kind and isinstance(value, list) and not is_nested and kind == "command":
            yield kind, unwrap_shell_command(shlex.join(map(str, value)))
        elif kind and isinstance(value, str) and (kind == "file" or not is_nested):
            yield kind, unwrap_shell_command(value) if kind == "command" else value
        elif key in NESTED_KEYS:
            yield from find_subjects(value, is_nested=True)


def unwrap_shell_command(command: str) -> str:
    """Return the command inside `bash -lc '…'`, as some agents report it; other commands unchanged."""
    try:
        program, option, script = shlex.split(command)
    except ValueError:
        return command
    return script if basename(program) in SHELL_NAMES and option in ("-c", "-lc") else command


def encode_tool_input(value: Any, canonical: bool = False) -> str:
    """Encode a value as JSON; imports the core on use, so that the provider port stays light."""
    from nerve.core.json_codec import encode_json

    return encode_json(value, canonical=canonical)


# -- commands ------------------------------------------------------------------------------------------


def allows_command(inner: str, command: str, cwd: str) -> bool:
    """Return whether the pattern matches and the input is a single command."""
    return not COMMAND_CHAIN.search(command) and any(
        fnmatchcase(command, alternative) for alternative in expand_colon_star(inner)
    )


def forbids_command(inner: str, command: str, cwd: str) -> bool:
    if fnmatchcase(command, inner):
        return True
    return any(could_match_words(inner, words) for words in split_commands(command))


def split_commands(command: str) -> Iterator[list[str]]:
    """Yield all commands in a command line as unquoted words; too many rather than too few.

    Quoted text is split as well, because another shell may run it.
    """
    for part in COMMAND_SEPARATOR.split(QUOTE_CHARACTERS.sub("", COMMAND_SUBSTITUTION.sub("$ ;", command))):
        words = part.split()
        while words and ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words:
            yield words


def could_match_words(inner: str, words: list[str]) -> bool:
    """Return whether the pattern could match the words or a command that they run: any word may start one."""
    if SHELL_EXPANSION.search(words[0].removeprefix("~/")) and words[0] not in TEST_COMMANDS:
        return True
    if basename(words[0]) in COMMAND_RUNNERS and any("$" in word for word in words):
        return True
    starts = (words[start:] for start in range(len(words)))
    return any(
        could_match_command(inner, spelling) for rest in starts for spelling in command_spellings(rest)
    )


def command_spellings(words: list[str]) -> Iterator[str]:
    """Yield the command as written, and with the program's base name and normalized paths."""
    yield " ".join(words)
    yield " ".join([basename(words[0]), *(normpath(word) if "/" in word else word for word in words[1:])])


def could_match_command(inner: str, text: str) -> bool:
    """Return whether the pattern matches, or would match for some value of a shell expansion."""
    if any(fnmatchcase(text, alternative) for alternative in expand_colon_star(inner)):
        return True
    if not (unknown := SHELL_EXPANSION.search(text)) or not unknown.start():
        return False
    known, fixed = text[: unknown.start()], re.split(r"[*?\[]", inner)[0]
    return known.startswith(fixed) or fixed.startswith(known)


def expand_colon_star(inner: str) -> list[str]:
    """Expand `git:*`, an alternative spelling, to `git` and `git *`."""
    return [inner[:-2], f"{inner[:-2]} *"] if inner.endswith(":*") else [inner]


# -- files ---------------------------------------------------------------------------------------------


def allows_file(inner: str, path: str, cwd: str) -> bool:
    """Return whether the pattern matches the path with all symbolic links resolved."""
    pattern, plain = resolve_tool_path(inner, cwd), resolve_tool_path(path, cwd)
    real = os.path.realpath(plain) if isabs(plain) else plain
    return fnmatchcase(plain, pattern) and (
        fnmatchcase(real, pattern) or fnmatchcase(real, resolve_pattern_root(pattern))
    )


def forbids_file(inner: str, path: str, cwd: str) -> bool:
    plain = resolve_tool_path(path, cwd)
    paths = {plain, os.path.realpath(plain) if isabs(plain) else plain}
    patterns = {resolve_tool_path(inner, cwd), resolve_pattern_root(resolve_tool_path(inner, cwd)), inner}
    if not isabs(resolve_tool_path(inner, cwd)):
        patterns.add(f"*/{inner}")
    patterns |= {pattern.replace("**/", "") for pattern in patterns}
    return any(
        fnmatchcase(candidate, p) or fnmatchcase(f"{candidate}/", p) for candidate in paths for p in patterns
    )


def resolve_tool_path(path: str, cwd: str) -> str:
    """Return an absolute path without `..`, if the working directory is known."""
    path = path.removeprefix("file://")
    return normpath(join(cwd, os.path.expanduser(path)))


def resolve_pattern_root(pattern: str) -> str:
    """Resolve symbolic links in the pattern's folder before its first `*`."""
    folder, slash, _ = re.split(r"[*?\[]", pattern)[0].rpartition("/")
    return os.path.realpath(folder or "/").rstrip("/") + pattern[len(folder) :] if slash else pattern


# -- URLs and other inputs -----------------------------------------------------------------------------


def allows_url(inner: str, url: str, cwd: str) -> bool:
    """Reject URLs with user info: a user name before the host could look like the host."""
    return "@" not in urlsplit(url).netloc and matches_url(inner, url, cwd)


def matches_url(inner: str, url: str, cwd: str) -> bool:
    """Match the URL against a pattern, or its host against `domain:example.com` including subdomains."""
    if inner.startswith("domain:"):
        host, domain = (urlsplit(url).hostname or "").lower(), inner[7:].lower()
        return fnmatchcase(host, domain) or host.endswith(f".{domain}")
    return fnmatchcase(url, inner)


def matches_text(inner: str, text: str, cwd: str) -> bool:
    return fnmatchcase(text, inner)


def forbids_url(inner: str, url: str, cwd: str) -> bool:
    """Match regardless of case, user info and port."""
    parts = urlsplit(url)
    plain = f"{parts.scheme.lower()}://{parts.hostname or ''}{parts.path}" + f"?{parts.query}" * bool(
        parts.query
    )
    return any(matches_url(inner, candidate, cwd) for candidate in (url, plain, plain + "/"))


ALLOWS_BY_KIND = {"command": allows_command, "file": allows_file, "url": allows_url, "text": matches_text}
FORBIDS_BY_KIND = {"command": forbids_command, "file": forbids_file, "url": forbids_url, "text": matches_text}
