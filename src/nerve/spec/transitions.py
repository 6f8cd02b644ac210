"""Transitions of the machines of a spec."""

from __future__ import annotations

from nerve.core.result import Result, is_final_rejection, is_rejected
from nerve.spec import models
from nerve.spec.scope import Scope
from nerve.spec.template_values import is_condition_true


class MachineTransitions:
    """The transitions of one machine in one run."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._remembered_failure: Result | None = None

    def next_state(self, state: models.StateSpec, result: Result) -> str | None:
        scope = self._scope
        if scope.pending_goto.is_leaving:
            scope.pending_goto.is_leaving = False
            return scope.pending_goto.target
        if not result.success:
            if is_final_rejection(result) or (state.on_error is None and state.after_failure == "fail"):
                return None
            if state.on_error is not None:
                return state.on_error
            if state.after_failure == "remember":
                if is_rejected(result):
                    return None
                self._remembered_failure = Result.failed(
                    f"state '{state.name}' failed: {result.error}",
                    result.error_type,
                    result.output,
                    result.attributes,
                )
        view = scope.view(given=result.output)
        targets = (
            transition.to
            for transition in state.next
            if transition.when is None or is_condition_true(transition.when, view)
        )
        return next(targets, None)

    def reset(self) -> None:
        """Forget the failure of the previous execution of the machine."""
        self._remembered_failure = None

    def outcome(self, result: Result) -> Result:
        """Return the result of the machine: a remembered failure, if there is one."""
        return self._remembered_failure if self._remembered_failure is not None and result.success else result
