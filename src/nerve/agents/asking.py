"""What an agent asks in the middle of a turn: whether it may use a tool, and what only a person knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from nerve.agents.permissions import Action, Permissions, question, visible
from nerve.agents.port import Decision, HostTool, Permission
from nerve.agents.secrets import Secrets
from nerve.core.misfits import whole
from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import Gate
from nerve.core.values import mended

ASKING = "Ask the person you work for, when only they can decide. Waits until they answer."
QUESTION = {
    "type": "object",
    "properties": {
        "question": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["question"],
}


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides about calls, and shows by what permissions."""

    permissions: Permissions
    decide: Callable[[Permission], Awaitable[Decision]]

    async def __call__(self, wanted: Permission) -> Decision:
        return await self.decide(wanted)


@dataclass(frozen=True, slots=True)
class Asking:
    """The questions of one step; `aside` gives the agent's slot to others while a person is asked."""

    context: ExecutionContext
    name: str
    permissions: Permissions
    cwd: str
    secrets: Secrets
    aside: Callable[[], AbstractAsyncContextManager[None]]

    @property
    def tools(self) -> dict[str, HostTool]:
        return {"ask_human": HostTool(ASKING, QUESTION, self.human)}

    @property
    def permission(self) -> Judge:
        return Judge(self.permissions, self._permission)

    async def _permission(self, wanted: Permission) -> Decision:
        """What the permissions say, or a person."""
        wanted = replace(wanted.within(self.cwd), input=mended(dict(wanted.input)))
        said, pattern = self.permissions.said(*wanted.uses())
        verdict = said or self.permissions.otherwise or "ask"
        if verdict != "ask":
            self.context.emit("permission", {"tool": wanted.tool, "verdict": verdict})
            refusal = "the workflow does not allow it" + f": it denies {pattern}" * bool(pattern)
            return Decision(verdict == "allow", "" if verdict == "allow" else refusal)
        action = Action(wanted.tool, wanted.input, wanted.cwd)
        gate = Gate(
            f"{self.context.path}/permission",
            self.secrets.text(question(self._who, action, wanted.reason)),
            ["allow", "deny"],
            node_id=self._step,
            action=self.secrets.value(action.to_dict()),
        )
        answer = await self._at(gate)
        return Decision(answer == "allow", "" if answer == "allow" else "a person said no")

    async def human(self, given: Mapping[str, Any]) -> str:
        """The agent asks a person: an ordinary gate, with the agent's words marked as such."""
        choices = given.get("choices")
        gate = Gate(
            f"{self.context.path}/question",
            f"{self._who} asks:\n\n{visible(self.secrets.text(str(given.get('question', ''))))}",
            [self.secrets.text(whole(str(choice))) for choice in choices]
            if isinstance(choices, list) and choices
            else None,
            node_id=self._step,
        )
        return str(await self._at(gate))

    async def _at(self, gate: Gate) -> Any:
        with self.context.leaf.unhurried(self.context.path):
            async with self.aside():
                return await self.context.leaf.ask(gate)

    @property
    def _step(self) -> str:
        """What people call the step: its own name, unless it was made up for it."""
        name = self.context.path.rpartition("/")[2].partition("[")[0]
        return name if name and not name.startswith("_") else self.name

    @property
    def _who(self) -> str:
        return self._step if self._step == self.name else f"{self._step} ({self.name})"
