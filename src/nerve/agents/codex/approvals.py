"""What Codex asks of a person, put to them as permissions, and their decisions in its words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nerve.agents.codex.reading import known, tool_of
from nerve.agents.port import Decision, Permission

Answer = Callable[[Decision], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """A permission to ask for, and how its decision is said to Codex."""

    permission: Permission
    answer: Answer


def question(
    method: str, params: Mapping[str, Any], items: Mapping[str, Mapping[str, Any]]
) -> Question | dict[str, Any] | None:
    """What to ask, or the answer where there is nothing to ask; None for a request that is not known."""
    reason = str(params.get("reason") or "")
    match method:
        case "item/commandExecution/requestApproval":
            shown = ("command", "cwd", "kind", "networkApprovalContext")
            given = known({name: params.get(name) for name in shown})
            cwd = str(params.get("cwd") or "")
            return Question(Permission("shell", given, reason, cwd, ("Bash",)), decided)
        case "item/fileChange/requestApproval":
            tool = tool_of(items.get(params["itemId"], {"id": ""}))
            given = known({**(tool.input if tool else {}), "grantRoot": params.get("grantRoot")})
            return Question(Permission("apply_patch", given, reason, names=("Edit", "Write")), decided)
        case "item/permissions/requestApproval":
            wanted = params["permissions"]
            given = {"permissions": wanted, "cwd": params.get("cwd")}
            cwd = str(params.get("cwd") or "")
            return Question(Permission("request_permissions", given, reason, cwd), granted(wanted))
        case "mcpServer/elicitation/request":
            return elicited(params)
        case "item/tool/requestUserInput":
            return {"answers": {}}
    return None


def decided(decision: Decision) -> dict[str, Any]:
    return {"decision": "accept" if decision.allow else "decline"}


def granted(wanted: Any) -> Answer:
    return lambda decision: {"permissions": wanted if decision.allow else {}, "scope": "turn"}


def elicited(params: Mapping[str, Any]) -> Question | dict[str, Any]:
    """An MCP server that asks yes or no is asked about; a form or a page needs more than a decision."""
    form = params.get("requestedSchema") or {}
    if params.get("url") or form.get("properties"):
        return {"action": "decline"}
    permission = Permission(f"mcp__{params.get('serverName', '')}", {}, str(params.get("message") or ""))
    return Question(
        permission,
        lambda decision: {"action": "accept", "content": {}} if decision.allow else {"action": "decline"},
    )
