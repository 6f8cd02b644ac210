"""Workflows as tools of their own: their arguments are those of the workflow, by its JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import mcp_types

from nerve.api.errors import ApiError
from nerve.api.models import WorkflowResponse
from nerve.core.input_fields import object_schema
from nerve.core.slugs import slugify
from nerve.mcp.bounded_results import shorten_text
from nerve.mcp.run_tools import DEFAULT_WAIT_S, MAX_WAIT_S, RunTools
from nerve.mcp.tool import Tool, tool_annotations
from nerve.ui.typed_options import is_part_of_input

TOOL_PREFIX = "run_workflow_"
MAX_TOOL_NAME_CHARS = 64
"""The longest name that all hosts accept."""
ANY_PARAMS: dict[str, Any] = {"type": "object"}


class WorkflowTools:
    """The workflows that the project has at the moment, by the names of their tools."""

    def __init__(self, run_tools: RunTools) -> None:
        self._run_tools, self._start = run_tools, Tool(run_tools.start_run)

    async def list_tools(self) -> list[mcp_types.Tool]:
        return [workflow_tool(name, workflow) for name, workflow in (await self._workflows()).items()]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run, and return its state when it ends, needs a person, or the time to wait is over."""
        workflow = (await self._workflows()).get(tool)
        if workflow is None:
            raise ApiError("not_found", f"Unknown tool '{tool[:80]}'", "List the tools again.")
        return await self._start.call({"wait": DEFAULT_WAIT_S, **arguments, "workflow": workflow.id})

    async def _workflows(self) -> dict[str, WorkflowResponse]:
        return {
            tool_name(workflow.id): workflow
            for workflow in (await self._run_tools.client.workflows()).workflows
        }


def tool_name(workflow: str) -> str:
    """Return a name of letters, digits, '_' and '-', which no other workflow has."""
    name = TOOL_PREFIX + slugify(workflow)
    if name == TOOL_PREFIX + workflow and len(name) <= MAX_TOOL_NAME_CHARS:
        return name
    return f"{name[: MAX_TOOL_NAME_CHARS - 9]}-{sha256(workflow.encode()).hexdigest()[:8]}"


def workflow_tool(name: str, workflow: WorkflowResponse) -> mcp_types.Tool:
    """Return the tool of a workflow; definitions in its schemas move to the top, where references look."""
    input_schema, params_schema = (
        dict(workflow.input_schema or {}),
        dict(workflow.params_schema or ANY_PARAMS),
    )
    definitions = input_schema.pop("$defs", {}) | params_schema.pop("$defs", {})
    properties: dict[str, Any] = {"input": input_schema, "params": params_schema}
    required = {
        "input" if is_part_of_input(workflow, each.name) else "params"
        for each in workflow.inputs
        if each.required
    }
    properties["label"] = {"type": "string", "description": "A short name for the run."}
    properties["wait"] = {
        "type": "number",
        "minimum": 0,
        "maximum": MAX_WAIT_S,
        "default": DEFAULT_WAIT_S,
        "description": "Seconds to wait for its end. Call wait_for_run to wait on.",
    }
    schema = object_schema(properties, sorted(required))
    about = shorten_text(workflow.description) or "No description."
    return mcp_types.Tool(
        name=name,
        description=f"Run the workflow '{workflow.id}': {about}",
        input_schema=schema | ({"$defs": definitions} if definitions else {}),
        annotations=tool_annotations(is_read_only=False),
    )
