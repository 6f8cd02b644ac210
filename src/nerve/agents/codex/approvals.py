"""Convert approval requests and hook calls of Codex to permission requests, and decisions to responses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from nerve.agents.codex.notifications import tool_call_of_item, without_nulls
from nerve.agents.provider import PermissionDecision, PermissionRequest
from nerve.agents.tool_patterns import unwrap_shell_command
from nerve.lazy_dataclass import dataclass

TOOL_ALIASES = {"shell": ("Bash",), "apply_patch": ("Edit", "Write")}
"""Tool names of Codex, and the names that other agents use."""
PATCH_FILE_LINE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
PATCH_COMMAND = re.compile(r"\s*(?:apply_patch|applypatch) <<\s*(['\"]?)(\w+)\1\n.*\n\2\s*", re.DOTALL)

ApprovalResponder = Callable[[PermissionDecision], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A permission request, and how to send its decision to Codex."""

    permission: PermissionRequest
    respond: ApprovalResponder


def read_approval_request(
    method: str, params: Mapping[str, Any], items: Mapping[str, Mapping[str, Any]]
) -> ApprovalRequest | dict[str, Any] | None:
    """Return the request to decide, or the response if no decision is needed; None if it is unknown."""
    reason, cwd = str(params.get("reason") or ""), str(params.get("cwd") or "")
    match method:
        case "item/commandExecution/requestApproval":
            names = ("command", "cwd", "kind", "networkApprovalContext")
            tool_input = without_nulls({name: params.get(name) for name in names})
            return ApprovalRequest(codex_permission("shell", tool_input, reason, cwd), approval_response)
        case "item/fileChange/requestApproval":
            tool = tool_call_of_item(items.get(params["itemId"], {"id": ""}))
            tool_input = without_nulls({**(tool.input if tool else {}), "grantRoot": params.get("grantRoot")})
            return ApprovalRequest(codex_permission("apply_patch", tool_input, reason), approval_response)
        case "item/permissions/requestApproval":
            requested = params["permissions"]
            tool_input = {"permissions": requested, "cwd": params.get("cwd")}
            return ApprovalRequest(
                codex_permission("request_permissions", tool_input, reason, cwd),
                lambda decision: {"permissions": requested if decision.allow else {}, "scope": "turn"},
            )
        case "mcpServer/elicitation/request":
            form = params.get("requestedSchema") or {}
            if params.get("url") or form.get("properties"):
                return {"action": "decline"}
            permission = codex_permission(
                f"mcp__{params.get('serverName', '')}", {}, str(params.get("message") or "")
            )
            return ApprovalRequest(
                permission,
                lambda decision: (
                    {"action": "accept", "content": {}} if decision.allow else {"action": "decline"}
                ),
            )
        case "item/tool/requestUserInput":
            return {"answers": {}}
    return None


def codex_permission(
    tool: str, tool_input: Mapping[str, Any], reason: str = "", cwd: str = ""
) -> PermissionRequest:
    return PermissionRequest(tool, tool_input, reason, cwd, TOOL_ALIASES.get(tool, ()))


def approval_response(decision: PermissionDecision) -> dict[str, Any]:
    return {"decision": "accept" if decision.allow else "decline"}


def parse_hook_call(call: Mapping[str, Any]) -> list[PermissionRequest]:
    """Return the permission requests for a call: a command, a patch, or both."""
    name, input, cwd = (
        str(call.get("tool_name")),
        dict(call.get("tool_input") or {}),
        str(call.get("cwd") or ""),
    )
    text = str(input.get("command") or input.get("input") or "")
    permissions = []
    if name in ("Bash", "shell") and not PATCH_COMMAND.fullmatch(text):
        permissions.append(codex_permission("shell", input, cwd=cwd))
    elif name not in ("Bash", "shell", "apply_patch"):
        permissions.append(codex_permission(name, input, cwd=cwd))
    if name == "apply_patch" or "*** Begin Patch" in text:
        changes = [{"path": path.strip()} for path in PATCH_FILE_LINE.findall(text)]
        permissions.append(codex_permission("apply_patch", {"patch": text, "changes": changes}, cwd=cwd))
    return permissions


def is_same_call(request: PermissionRequest, allowed: PermissionRequest) -> bool:
    """Return whether the request does not exceed the allowed one: same command and folder, in the sandbox."""
    if request.tool != allowed.tool or request.reason:
        return False
    if request.tool == "apply_patch":
        return "grantRoot" not in request.input
    extra = request.input.keys() - {"command", "cwd", "kind"}
    return (
        not extra
        and unwrap_shell_command(str(request.input.get("command")))
        == unwrap_shell_command(str(allowed.input.get("command")))
        and request.input.get("cwd") in (None, allowed.cwd)
    )
