"""The controller, under the name that seeds import it by."""

from __future__ import annotations

from nerve.commander.commander import WorkflowController

__all__ = ["WorkflowController"]
