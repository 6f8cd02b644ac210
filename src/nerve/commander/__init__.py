"""The Commander: the terminal where people live with their agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.commander.core.input import InputType as InputType
    from nerve.commander.core.input import ParsedInput as ParsedInput
    from nerve.commander.core.input import parse_input as parse_input
    from nerve.commander.renderer import WorkflowRenderer as WorkflowRenderer
    from nerve.commander.workflow_controller import WorkflowController as WorkflowController

_HOMES = {
    "InputType": "nerve.commander.core.input",
    "ParsedInput": "nerve.commander.core.input",
    "WorkflowController": "nerve.commander.workflow_controller",
    "WorkflowRenderer": "nerve.commander.renderer",
    "parse_input": "nerve.commander.core.input",
}
__all__ = ["InputType", "ParsedInput", "WorkflowController", "WorkflowRenderer", "parse_input"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'nerve.commander' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
