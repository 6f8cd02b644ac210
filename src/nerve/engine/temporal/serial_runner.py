"""Executes workflows, and never two tasks of one workflow at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

if TYPE_CHECKING:
    from temporalio.bridge.proto.workflow_activation import WorkflowActivation
    from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion


class SerialWorkflowRunner(UnsandboxedWorkflowRunner):
    """Runs workflows without the sandbox, which would import the project again for each run.

    A worker drops a workflow whose body has blocked its thread for too long, and then tries again. It does
    not wait for that thread: the loop would be closed in another thread while the body still runs in it,
    tasks would remain that do not end, and the worker would never try again.
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return a workflow whose tasks wait for each other."""
        instance = super().create_instance(det)
        activate, is_free = instance.activate, threading.Lock()

        def activate_alone(act: WorkflowActivation) -> WorkflowActivationCompletion:
            with is_free:
                return activate(act)

        instance.activate = activate_alone  # type: ignore[method-assign]
        return instance
