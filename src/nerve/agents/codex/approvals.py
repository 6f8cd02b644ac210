"""What Codex asks of a person, put to them as permissions, and their decisions in its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nerve.agents.codex.notifications import tool_call_of_item, without_nulls
from nerve.agents.provider import PermissionDecision, PermissionRequest

ApprovalResponder = Callable[[PermissionDecision], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A permission to ask for, and how its decision is said to Codex."""

    permission: PermissionRequest
    respond: ApprovalResponder


def read_approval_request(
    method: str, params: Mapping[str, Any], items: Mapping[str, Mapping[str, Any]]
) -> ApprovalRequest | dict[str, Any] | None:
    """What to ask, or the answer where there is nothing to ask; None for a request that is not known."""
    reason = str(params.get("reason") or "")
    match method:
        case "item/commandExecution/requestApproval":
            names = ("command", "cwd", "kind", "networkApprovalContext")
            tool_input = without_nulls({name: params.get(name) for name in names})
            cwd = str(params.get("cwd") or "")
            return ApprovalRequest(
                PermissionRequest("shell", tool_input, reason, cwd, ("Bash",)), approval_response
            )
        case "item/fileChange/requestApproval":
            tool = tool_call_of_item(items.get(params["itemId"], {"id": ""}))
            tool_input = without_nulls({**(tool.input if tool else {}), "grantRoot": params.get("grantRoot")})
            return ApprovalRequest(
                PermissionRequest("apply_patch", tool_input, reason, names=("Edit", "Write")),
                approval_response,
            )
        case "item/permissions/requestApproval":
            requested = params["permissions"]
            tool_input = {"permissions": requested, "cwd": params.get("cwd")}
            cwd = str(params.get("cwd") or "")
            return ApprovalRequest(
                PermissionRequest("request_permissions", tool_input, reason, cwd), grant_response(requested)
            )
        case "mcpServer/elicitation/request":
            return elicitation_request(params)
        case "item/tool/requestUserInput":
            return {"answers": {}}
    return None


def approval_response(decision: PermissionDecision) -> dict[str, Any]:
    return {"decision": "accept" if decision.allow else "decline"}


def grant_response(requested: Any) -> ApprovalResponder:
    return lambda decision: {"permissions": requested if decision.allow else {}, "scope": "turn"}


def elicitation_request(params: Mapping[str, Any]) -> ApprovalRequest | dict[str, Any]:
    """An MCP server that asks yes or no is asked about; a form or a page needs more than a decision."""
    form = params.get("requestedSchema") or {}
    if params.get("url") or form.get("properties"):
        return {"action": "decline"}
    permission = PermissionRequest(
        f"mcp__{params.get('serverName', '')}", {}, str(params.get("message") or "")
    )
    return ApprovalRequest(
        permission,
        lambda decision: {"action": "accept", "content": {}} if decision.allow else {"action": "decline"},
    )
