"""Command handlers with the names of the seeds."""

from nerve.server.handlers.workflow_handler import WorkflowHandler

__all__ = ["WorkflowHandler"]
