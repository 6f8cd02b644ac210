"""Workflows and runs as resources that a host can attach to a conversation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote

import mcp_types

from nerve.api.errors import ApiError
from nerve.mcp.run_tools import RunTools

SCHEME = "nerve://"
MAX_LISTED_RUNS = 50
JSON_TYPE = "application/json"
TEMPLATES = {
    "workflows/{workflow}": ("workflow", "A workflow with its inputs, steps and source."),
    "runs/{run}": ("run", "A run with its state, steps, open gates and result."),
    "runs/{run}/logs": ("run-logs", "The last 200 lines of the log of a run."),
    "runs/{run}/result": ("run-result", "The result of a run."),
    "runs/{run}/changes": ("run-changes", "What the steps of a run have changed in workspaces."),
}
LISTS = {
    "workflows": "The workflows of this project.",
    "runs": "The newest runs of this project.",
    "gates": "The open gates, where runs wait for a person.",
}


class Resources:
    """The resources of one server; reading one returns what a tool returns."""

    def __init__(self, tools: RunTools) -> None:
        self._tools = tools

    async def list_all(self) -> list[mcp_types.Resource]:
        """Return the lists, the workflows and the newest runs."""
        workflows = (await self._tools.client.workflows()).workflows
        runs = (await self._tools.client.runs(limit=MAX_LISTED_RUNS, largest=0)).runs
        return [
            *(resource(name, name, text) for name, text in LISTS.items()),
            *(
                resource(f"workflows/{quote(each.id, safe='')}", each.id, each.description)
                for each in workflows
            ),
            *(
                resource(f"runs/{each.run_id}", each.label or each.run_id, f"{each.workflow}: {each.state}")
                for each in runs
            ),
        ]

    def templates(self) -> list[mcp_types.ResourceTemplate]:
        return [
            mcp_types.ResourceTemplate(
                name=name, uri_template=SCHEME + template, description=text, mime_type=JSON_TYPE
            )
            for template, (name, text) in TEMPLATES.items()
        ]

    async def read(self, uri: str) -> mcp_types.ReadResourceResult:
        """Return the content of a resource; raise ApiError if there is none with this URI."""
        data = await self._find(uri)()
        text = json.dumps(data, ensure_ascii=False)
        contents = mcp_types.TextResourceContents(uri=uri, mime_type=JSON_TYPE, text=text)
        return mcp_types.ReadResourceResult(contents=[contents])

    def _find(self, uri: str) -> Callable[[], Awaitable[dict[str, Any]]]:
        tools = self._tools
        match (
            [unquote(part) for part in uri.removeprefix(SCHEME).split("/")] if uri.startswith(SCHEME) else []
        ):
            case ["workflows"]:
                return tools.list_workflows
            case ["runs"]:
                return tools.list_runs
            case ["gates"]:
                return tools.list_gates
            case ["workflows", str(name)] if name:
                return lambda: tools.show_workflow(name)
            case ["runs", str(run)] if run:
                return lambda: tools.run_status(run)
            case ["runs", str(run), "logs"] if run:
                return lambda: tools.run_logs(run, last=200)
            case ["runs", str(run), "result"] if run:
                return lambda: tools.read_result(run)
            case ["runs", str(run), "changes"] if run:
                return lambda: tools.read_changes(run)
        known = ", ".join(SCHEME + each for each in [*LISTS, *TEMPLATES])
        raise ApiError("not_found", f"Resource '{uri[:200]}' not found", f"Known resources: {known}")


def resource(path: str, name: str, description: str) -> mcp_types.Resource:
    return mcp_types.Resource(
        uri=SCHEME + path, name=name, description=description or None, mime_type=JSON_TYPE
    )
