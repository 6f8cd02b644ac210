"""Workflows with gates and inputs of every kind, for the inbox and the start forms."""

import json
from collections.abc import AsyncIterator
from typing import Any

from nerve import Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.agents.provider import AssistantText, Capabilities, PermissionRequest, TurnFinished

DIFF = "diff --git a/app.py b/app.py\n--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-old = 1\n+new = 2\n"
RELEASE_FORM = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Release it?"},
        "channel": {"enum": ["stable", "beta"], "default": "stable"},
        "percent": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Share of **users**"},
        "notes": {"type": "string", "maxLength": 2000},
        "regions": {"type": "array", "items": {"type": "string"}},
        "reviewers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "is_lead": {"type": "boolean", "default": False}},
                "required": ["name"],
            },
        },
    },
    "required": ["approved", "percent"],
}


class DeployProvider:
    """An agent that asks for permission to run each line of its prompt, one after the other."""

    name = "deploy"
    capabilities = Capabilities(permissions=True)
    suffix = ""
    """What it adds to each command."""

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: Any
    ) -> AsyncIterator[Any]:
        for line in prompt.split("\n"):
            tool_input = {"command": line + self.suffix, "description": "Deploy the site"}
            if line.startswith("edit "):
                tool_input = {"file_path": line[5:], "old_string": "a = 1\n", "new_string": "a = 2\n"}
            tool = "Edit" if line.startswith("edit ") else "Bash"
            request = PermissionRequest(
                tool, tool_input, "It is Friday.", "site", is_editable=not line.startswith("fixed ")
            )
            decision = await options.ask(request)
            yield AssistantText(f"{line}: {decision.allow}\n")
            if decision.edited_input is not None:
                yield AssistantText(f"ran {json.dumps(dict(decision.edited_input))}\n")
        yield TurnFinished("thread")


def register(session: Session) -> None:
    AgentNode("deployer", session, DeployProvider(), permissions={"ask": ["*"], "deny": ["Bash(sudo *)"]})

    @session.workflow
    async def roll_out(ctx: WorkflowContext) -> Any:
        """Ask for the details of a release with a form."""
        return await ctx.gate("Release **version 3**?\n\n- tests passed\n- docs built", form=RELEASE_FORM)

    @session.workflow
    async def publish(ctx: WorkflowContext) -> Any:
        """Let an agent run commands that a person has allowed."""
        return await ctx.run("deployer", ctx.input or "make deploy")

    @session.workflow
    async def merge(ctx: WorkflowContext) -> Any:
        """Ask whether to merge a change, within half an hour."""
        prompt = ctx.input or f"Merge this change?\n\n```diff\n{DIFF}```"
        return await ctx.gate(prompt, choices=["approve", "reject"], timeout=1800)

    @session.workflow
    async def name_it(ctx: WorkflowContext) -> Any:
        """Ask for a name, with suggestions."""
        return await ctx.gate("How should the release be called?", options=["Aurora", "Borealis"])

    @session.workflow
    async def choose(ctx: WorkflowContext) -> Any:
        """Ask for one of the choices in the input."""
        return await ctx.gate("Which one?", choices=ctx.input)

    @session.workflow
    async def ask_twice(ctx: WorkflowContext) -> Any:
        """Ask an open question, then another one."""
        return [await ctx.gate("First question?"), await ctx.gate("Second question?")]

    @session.workflow
    async def translate(
        ctx: WorkflowContext, text: str, language: str = "German", words: int = 100, formal: bool = True
    ) -> str:
        """Translate a text.

        The result has at most that many words.
        """
        return f"{language} {words} {formal}: {text}"
