"""Holding Codex to the permissions: a hook of ours before every call of a tool asks us over a socket."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nerve.agents.codex import hook
from nerve.agents.codex.rpc import Message, Peer, Refused
from nerve.agents.patterns import parted, unwrapped
from nerve.agents.permissions import Permissions
from nerve.agents.port import Decision, Options, Permission, Unavailable

NAMES = {"shell": ("Bash",), "apply_patch": ("Edit", "Write")}
"""What Codex calls its tools in hooks, and other agents call theirs."""
YEAR = 31_536_000
"""Seconds that a hook may take: as long as a person needs to answer."""
PATCH = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
ONLY_PATCH = re.compile(r"\s*(?:apply_patch|applypatch) <<\s*(['\"]?)(\w+)\1\n.*\n\2\s*", re.DOTALL)
UNSEEN: Mapping[str, Mapping[str, Any]] = {
    "web_search": {"web_search": "disabled"},
    "image_generation": {"features.image_generation": False},
}
"""Tools that are used by the API itself, unseen by hooks, and the settings that take them away."""
UNKEPT = "codex cannot keep to the permissions ({0}): it does not ask before it uses {1}. Deny all of {1}."
NO_HOOKS = "this Codex cannot keep to the permissions ({}): it has no hooks. Update it."


class Guard:
    """The hook of one turn. Without anything to hold Codex to, there is none."""

    def __init__(self, options: Options) -> None:
        self._options, self._policy = options, options.permissions
        self._socket = ""
        self._asked: dict[str, list[Permission]] = {}
        """Calls that a person has allowed, when the hook asked."""
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Guard]:
        if not self._policy.restricts:
            yield self
            return
        with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
            self._socket = str(Path(folder, "hook"))
            server = await asyncio.start_unix_server(self._heard, self._socket, limit=1 << 26)
            try:
                yield self
            finally:
                server.close()

    def config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Settings for the program, with those that are given."""
        if not self._policy.restricts:
            return dict(given)
        command = shlex.join([sys.executable, "-I", "-S", hook.__file__, self._socket])
        ours = {"hooks": [{"type": "command", "command": command, "timeout": YEAR}]}
        return {
            **given,
            **taken_away(self._policy, self._options.tools or ()),
            "features.hooks": True,
            # A shell that has a terminal could be told more after it was started, unseen by hooks.
            "features.unified_exec_tty": False,
            "hooks.PreToolUse": [*given.get("hooks.PreToolUse", ()), ours],
        }

    async def trusted(self, peer: Peer) -> Message:
        """The settings of a thread in which our hook is trusted, and no other that is not anyway."""
        if not self._policy.restricts:
            return {}
        try:
            told = await peer.request("hooks/list", {})
        except Refused as error:
            raise Unavailable(NO_HOOKS.format(self._policy.restricts[0])) from error
        hooks = [each for place in told.get("data") or () for each in place.get("hooks") or ()]
        ours = {each["key"]: {"trusted_hash": each["currentHash"]} for each in hooks if self._is_ours(each)}
        if not ours:
            raise Unavailable(NO_HOOKS.format(self._policy.restricts[0]))
        return {"config": {"hooks.state": ours}}

    def _is_ours(self, told: Mapping[str, Any]) -> bool:
        return bool(told.get("enabled")) and self._socket in str(told.get("command"))

    async def _heard(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One call; if we fail, there is no answer, and the hook blocks it."""
        try:
            answer = await self._answer(json.loads(await reader.read()))
            writer.write(json.dumps(answer).encode())
            await writer.drain()
        except Exception as error:
            if not self.trouble.done():
                self.trouble.set_exception(error)
        finally:
            writer.close()

    async def _answer(self, call: Mapping[str, Any]) -> dict[str, Any]:
        for wanted in calls(call):
            verdict = self._options.settled(wanted)
            if verdict not in ("ask", "deny"):
                continue
            decision = await self._options.ask(wanted)
            if verdict == "deny" or not decision.allow:
                why = decision.message or "this is not allowed"
                told = {"permissionDecision": "deny", "permissionDecisionReason": why}
                return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **told}}
            self._asked.setdefault(str(call.get("tool_use_id")), []).append(wanted)
        return {}

    async def decide(self, id: str, wanted: Permission) -> Decision:
        """Decide about what Codex asks itself; what a person has just allowed is not asked again."""
        same = any(is_same(wanted, allowed) for allowed in self._asked.get(id, ()))
        return Decision(True) if same else await self._options.decide(wanted)


def taken_away(policy: Permissions, tools: Sequence[str]) -> dict[str, Any]:
    """The settings without the tools that hooks do not see, where the policy has something against them.

    A policy that names such a tool, and would have it asked about or denied in part, is refused.
    """
    settings: dict[str, Any] = {}
    for tool, off in UNSEEN.items():
        said, pattern = policy.said(*Permission(tool, {}).uses())
        by_name, inner = parted(pattern)
        if by_name == tool and (said == "ask" or (said == "deny" and inner is not None)):
            raise ValueError(UNKEPT.format(f"{said}: {pattern}", tool))
        verdict = said or ("allow" if tool in tools else policy.otherwise)
        if verdict in ("ask", "deny"):
            settings.update(off)
    return settings


def calls(call: Mapping[str, Any]) -> list[Permission]:
    """What a call that the hook tells of does: a command, a patch, or both."""
    name, input, cwd = (
        str(call.get("tool_name")),
        dict(call.get("tool_input") or {}),
        str(call.get("cwd") or ""),
    )
    text = str(input.get("command") or input.get("input") or "")
    found = []
    if name in ("Bash", "shell") and not ONLY_PATCH.fullmatch(text):
        found.append(Permission("shell", input, cwd=cwd, names=NAMES["shell"]))
    elif name not in ("Bash", "shell", "apply_patch"):
        found.append(Permission(name, input, cwd=cwd))
    if name == "apply_patch" or "*** Begin Patch" in text:
        changes = [{"path": path.strip()} for path in PATCH.findall(text)]
        given = {"patch": text, "changes": changes}
        found.append(Permission("apply_patch", given, cwd=cwd, names=NAMES["apply_patch"]))
    return found


def is_same(wanted: Permission, allowed: Permission) -> bool:
    """Whether no more is wanted than was allowed: the same command in the same folder, in the sandbox."""
    if wanted.tool != allowed.tool or wanted.reason:
        return False
    if wanted.tool == "apply_patch":
        return "grantRoot" not in wanted.input
    extra = wanted.input.keys() - {"command", "cwd", "kind"}
    return (
        not extra
        and unwrapped(str(wanted.input.get("command"))) == unwrapped(str(allowed.input.get("command")))
        and wanted.input.get("cwd") in (None, allowed.cwd)
    )
