"""Enforce the permissions on Codex: a hook before every tool call asks the engine over a socket."""

from __future__ import annotations

import asyncio
import json
import math
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nerve.agents.chunk_stream import AnswerTasks
from nerve.agents.codex import hook_script
from nerve.agents.codex.approvals import is_same_call, parse_hook_call
from nerve.agents.codex.json_rpc import JsonRpcPeer, RpcError, RpcMessage
from nerve.agents.mcp_tools import MCP_TOOL_PREFIX
from nerve.agents.permissions import Permissions
from nerve.agents.provider import PermissionDecision, PermissionRequest, QueryOptions, Unavailable
from nerve.agents.tool_patterns import ToolUse, split_pattern

HOOK_TIMEOUT_S = 31_536_000
"""Seconds that a hook may take: as long as a person needs to answer."""
UNHOOKED_TOOLS: Mapping[str, Mapping[str, Any]] = {
    "web_search": {"web_search": "disabled"},
    "image_generation": {"features.image_generation": False},
}
"""Tools that the API itself runs, invisible to hooks, and the settings that disable them."""
UNENFORCEABLE = (
    "Provider 'codex' cannot enforce the permissions ({0}): it does not ask before it uses {1}."
    " Deny all of {1}."
)
HOOKS_UNSUPPORTED = "This version of Codex cannot enforce the permissions ({}): it has no hooks. Update it."


class PermissionHook:
    """The hook of one turn; it is installed only if there are rules to enforce."""

    def __init__(self, options: QueryOptions, answers: AnswerTasks) -> None:
        self._options, self._policy, self._answers = options, options.permissions, answers
        self._socket_path = ""
        self._allowed_by_call: dict[str, list[PermissionRequest]] = {}
        """Calls that a person has allowed through the hook."""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[PermissionHook]:
        if not self._policy.restrictions:
            yield self
            return
        with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
            self._socket_path = str(Path(folder, "hook"))
            server = await asyncio.start_unix_server(
                self._handle_connection, self._socket_path, limit=1 << 26
            )
            try:
                yield self
            finally:
                server.close()

    def add_hook_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with the hooks of the step, and with the one that enforces its permissions."""
        settings = add_hooks(settings, self._options.hooks)
        if not self._policy.restrictions:
            return settings
        command = shlex.join([sys.executable, "-I", "-S", hook_script.__file__, self._socket_path])
        return {
            **add_hooks(settings, {"PreToolUse": [{"command": command, "timeout": HOOK_TIMEOUT_S}]}),
            **disabled_tool_settings(self._policy, self._options.tools or ()),
            # A shell with a terminal could receive more input after its start, invisible to hooks.
            "features.unified_exec_tty": False,
        }

    async def trust_settings(self, peer: JsonRpcPeer) -> RpcMessage:
        """Return the thread settings that trust these hooks, and no other that is not trusted already."""
        own = {hook["command"] for hooks in self._options.hooks.values() for hook in hooks}
        if not self._policy.restrictions and not own:
            return {}
        reason = self._policy.restrictions[0] if self._policy.restrictions else "hooks"
        try:
            response = await peer.request("hooks/list", {})
        except RpcError as error:
            raise Unavailable(HOOKS_UNSUPPORTED.format(reason)) from error
        hooks = [entry for source in response.get("data") or () for entry in source.get("hooks") or ()]
        trusted_hooks = {
            entry["key"]: {"trusted_hash": entry["currentHash"]}
            for entry in hooks
            if entry.get("enabled")
            and (entry.get("command") in own or self._is_own_hook(str(entry.get("command"))))
        }
        found = {entry.get("command") for entry in hooks if entry["key"] in trusted_hooks}
        if not own <= found or (self._policy.restrictions and not any(map(self._is_own_hook, found))):
            raise Unavailable(HOOKS_UNSUPPORTED.format(reason))
        return {"hooks.state": trusted_hooks}

    def _is_own_hook(self, command: Any) -> bool:
        return bool(self._socket_path) and self._socket_path in str(command)

    async def _handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call; without an answer the hook blocks it."""
        try:
            answer = await self._answer_call(json.loads(await reader.read()))
            writer.write(json.dumps(answer).encode())
            await writer.drain()
        except Exception as error:
            self._answers.fail(error)
        finally:
            writer.close()

    async def _answer_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        for permission in parse_hook_call(call):
            if permission.tool.startswith(MCP_TOOL_PREFIX):
                continue  # decided where it is executed
            verdict = self._options.find_rule(permission).verdict
            if verdict not in ("ask", "deny"):
                continue
            decision = await self._options.ask(permission)
            if verdict == "deny" or not decision.allow:
                reason = decision.message or "the permissions do not allow this call"
                decision_fields = {"permissionDecision": "deny", "permissionDecisionReason": reason}
                return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision_fields}}
            self._allowed_by_call.setdefault(str(call.get("tool_use_id")), []).append(permission)
        return {}

    async def decide(self, id: str, permission: PermissionRequest) -> PermissionDecision:
        """Decide an approval request of Codex; a call that a person has just allowed is not asked again."""
        is_allowed = any(is_same_call(permission, allowed) for allowed in self._allowed_by_call.get(id, ()))
        return PermissionDecision(True) if is_allowed else await self._options.decide(permission)


def add_hooks(
    settings: Mapping[str, Any], hooks: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return settings with more hooks, after those that they have."""
    added = {
        f"hooks.{event}": [*settings.get(f"hooks.{event}", ()), *map(hook_entry, event_hooks)]
        for event, event_hooks in hooks.items()
    }
    return {**settings, **added, **({"features.hooks": True} if added else {})}


def hook_entry(hook: Mapping[str, Any]) -> dict[str, Any]:
    command = {"type": "command", "command": hook["command"]}
    command |= {"timeout": math.ceil(hook["timeout"])} if "timeout" in hook else {}
    return ({"matcher": hook["matcher"]} if "matcher" in hook else {}) | {"hooks": [command]}


def disabled_tool_settings(policy: Permissions, tools: Sequence[str]) -> dict[str, Any]:
    """Return the settings that disable tools invisible to hooks, where the policy restricts them.

    Reject a policy that asks about such a tool, or denies a part of it.
    """
    settings: dict[str, Any] = {}
    for tool, disabling_settings in UNHOOKED_TOOLS.items():
        rule = policy.find_rule(ToolUse(tool), tools=[name for name in tools if name == tool])
        by_name, inner = split_pattern(rule.pattern)
        if by_name == tool and (rule.verdict == "ask" or (rule.verdict == "deny" and inner is not None)):
            raise ValueError(UNENFORCEABLE.format(rule, tool))
        if rule.verdict in ("ask", "deny"):
            settings.update(disabling_settings)
    return settings
