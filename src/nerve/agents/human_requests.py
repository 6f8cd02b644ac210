"""Requests of an agent during a turn: permission to use a tool, and questions to a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from nerve.agents.permissions import Permissions, escape_control_characters, format_permission_question
from nerve.agents.provider import HostTool, PermissionDecision, PermissionRequest
from nerve.agents.redaction import Redactor
from nerve.core.events import WorkflowEventType
from nerve.core.gates import ALLOW, DENY, EDITABLE
from nerve.core.json_codec import replace_invalid_text
from nerve.core.json_diagnostics import replace_surrogates
from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import GateWait
from nerve.lazy_dataclass import dataclass

ASK_HUMAN_DESCRIPTION = "Ask the person you work for when only they can decide. Waits until they answer."
ASK_HUMAN_SCHEMA = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["question"],
}


@dataclass(frozen=True, slots=True)
class HumanRequests:
    """The requests of one step; `release_slot` releases the agent's slot while a person is asked."""

    context: ExecutionContext
    name: str
    permissions: Permissions
    cwd: str
    redactor: Redactor
    release_slot: Callable[[], AbstractAsyncContextManager[None]]

    @property
    def question_tool(self) -> HostTool:
        return HostTool(ASK_HUMAN_DESCRIPTION, ASK_HUMAN_SCHEMA, self.ask_human)

    async def decide_permission(self, request: PermissionRequest) -> PermissionDecision:
        """Decide by the permissions, or open a gate."""
        request = replace(request.with_cwd_in(self.cwd), input=replace_invalid_text(dict(request.input)))
        rule = self.permissions.find_rule(*request.tool_uses())
        if rule.verdict in ("allow", "deny"):
            self.context.emit(WorkflowEventType.PERMISSION, {"tool": request.tool, "verdict": rule.verdict})
            refusal = "the workflow does not allow it" + f": it denies {rule.pattern}" * bool(rule.pattern)
            return PermissionDecision(rule.verdict == "allow", "" if rule.verdict == "allow" else refusal)
        if self.permissions.mode == "read" and rule.verdict is None:
            return PermissionDecision(False, "the permission mode 'read' allows only reading")
        use = request.tool_uses()[0]
        action = self.redactor.redact_value(use.to_dict())
        if request.is_editable and action == use.to_dict():
            action[EDITABLE] = True  # not if a secret was replaced: the replacement would run
        gate = GateWait(
            f"{self.context.path}/permission",
            self.redactor.redact_text(format_permission_question(self._asker, use, request.reason)),
            [ALLOW, DENY],
            node_id=self._step_name,
            action=action,
        )
        answer = await self._wait_at_gate(gate)
        if isinstance(answer, dict):
            return self._decide_edited(replace(request, input=answer[ALLOW]))
        return PermissionDecision(answer == ALLOW, "" if answer == ALLOW else "a person denied permission")

    def _decide_edited(self, request: PermissionRequest) -> PermissionDecision:
        """Decide a call that a person has edited and allowed: what is denied stays denied."""
        rule = self.permissions.find_rule(*request.tool_uses())
        if rule.verdict == "deny" and rule.pattern:
            message = f"a person edited the call, and the workflow denies {rule.pattern}"
            return PermissionDecision(False, message)
        return PermissionDecision(True, edited_input=request.input)

    async def ask_human(self, arguments: Mapping[str, Any]) -> str:
        """Open a gate with the agent's question, marked as the agent's words."""
        choices = arguments.get("choices")
        question = self.redactor.redact_text(str(arguments.get("question", "")))
        gate = GateWait(
            f"{self.context.path}/question",
            f"{self._asker} asks:\n\n{escape_control_characters(question)}",
            [self.redactor.redact_text(replace_surrogates(str(choice))) for choice in choices]
            if isinstance(choices, list) and choices
            else None,
            node_id=self._step_name,
        )
        return str(await self._wait_at_gate(gate))

    async def _wait_at_gate(self, gate: GateWait) -> Any:
        with self.context.leaf_runtime.timers_paused(self.context.path):
            async with self.release_slot():
                return await self.context.leaf_runtime.ask(gate)

    @property
    def _step_name(self) -> str:
        """The name of the step as users know it: its own name, unless that was generated."""
        name = self.context.path.rpartition("/")[2].partition("[")[0]
        return name if name and not name.startswith("_") else self.name

    @property
    def _asker(self) -> str:
        return self._step_name if self._step_name == self.name else f"{self._step_name} ({self.name})"
