"""Convert approval requests of Codex to permission requests, and decisions to its responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nerve.agents.codex.notifications import tool_call_of_item, without_nulls
from nerve.agents.provider import PermissionDecision, PermissionRequest

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
    """Return the request of an MCP server for a yes or no; decline forms and pages, which need more."""
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
