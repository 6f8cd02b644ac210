"""The Commander: the interactive terminal for workflows and agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.commander.core.input_parser import InputType, ParsedInput, parse_input
    from nerve.commander.workflow_controller import WorkflowController as WorkflowController
    from nerve.commander.workflow_renderer import WorkflowRenderer as WorkflowRenderer

_EXPORT_MODULES = {
    "InputType": "nerve.commander.core.input_parser",
    "ParsedInput": "nerve.commander.core.input_parser",
    "WorkflowController": "nerve.commander.workflow_controller",
    "WorkflowRenderer": "nerve.commander.workflow_renderer",
    "parse_input": "nerve.commander.core.input_parser",
}
__all__ = ["InputType", "ParsedInput", "WorkflowController", "WorkflowRenderer", "parse_input"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _EXPORT_MODULES:
        raise AttributeError(f"module 'nerve.commander' has no attribute '{name}'")
    return getattr(import_module(_EXPORT_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
