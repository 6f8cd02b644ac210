"""The renderer of a run under the name that the design documents import."""

from nerve.commander.renderer import WorkflowRenderer

__all__ = ["WorkflowRenderer"]
