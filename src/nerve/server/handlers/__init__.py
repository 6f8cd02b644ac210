"""Handlers of commands, under the names that the seeds give them."""

from nerve.server.handlers.workflow_handler import WorkflowHandler

__all__ = ["WorkflowHandler"]
