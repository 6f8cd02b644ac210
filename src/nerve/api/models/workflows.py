"""Workflows and their definitions."""

from datetime import datetime
from typing import Any

from nerve.api.models.base import (
    ApiRequest,
    ApiResponse,
    CommandRequest,
    DoneResponse,
    Name,
    PageResponse,
    ProblemFields,
    Text,
)
from nerve.core.notation_table import NotationName


class WorkflowRequest(ApiRequest):
    workflow: Name


class ListWorkflowsRequest(ApiRequest):
    all: bool = False
    """Include workflows that the project's configuration disables."""


class DefineRequest(CommandRequest):
    source: Text
    notation: NotationName | None = None
    file: Text | None = None
    """The name to show in problems; the file is not read."""
    prompts: dict[str, Text] = {}
    """Prompt texts that it references, stored with it; others are read from the project."""
    keep: bool = True
    """Whether its name refers to it from now on; if not, runs can start it by its `hash`."""


class ReloadRequest(CommandRequest):
    pass


class InputResponse(ApiResponse):
    name: str
    type: str
    required: bool = False
    default: Any = None
    description: str = ""
    choices: list[Any] | None = None
    format: str = ""
    """What a text stands for: `date-time`, `decimal`, `uuid` and the other formats of JSON Schema."""


class WorkflowResponse(ApiResponse):
    id: str
    kind: str
    description: str = ""
    inputs: list[InputResponse] = []
    """The declared inputs. Those of a typed Python workflow include the fields of its input."""
    input_schema: dict[str, Any] | None = None
    """The JSON Schema of `input`; None if the workflow does not declare it."""
    params_schema: dict[str, Any] | None = None
    """The JSON Schema of `params`."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the result."""
    steps: list[str] = []
    hash: str = ""
    created_at: datetime | None = None
    source: str | None = None
    spec: dict[str, Any] | None = None
    """The parsed workflow; None in lists, and for Python code, which has no parsed form."""
    prompts: dict[str, str] = {}
    """The texts of the prompts that the source references."""
    enabled: bool = True
    """Whether the project's configuration allows it to be started."""


class WorkflowPage(PageResponse):
    workflows: list[WorkflowResponse] = []
    nodes: list[str] = []
    """The nodes that can be started by name."""
    graphs: list[str] = []
    problems: list[ProblemFields] = []
    """Problems of the files that the last reload read, with `file`, `line`, `message` and `fix`."""


class ReloadResponse(DoneResponse):
    workflows: int = 0
    removed: list[str] = []
    """The workflows whose files were removed."""
    python_files: list[str] = []
    """Python files that are not reloaded: the process keeps the code it started with."""
    problems: list[ProblemFields] = []


class DefinitionResponse(ApiResponse):
    """A definition that runs were started from."""

    hash: str
    workflow: str
    notation: str
    source: str
    current: bool
    """Whether a run that starts now uses it."""
    runs: int
    spec: dict[str, Any] | None = None
    """The parsed workflow; None in lists, and for Python code, which has no parsed form."""


class DefinitionPage(PageResponse):
    definitions: list[DefinitionResponse] = []
