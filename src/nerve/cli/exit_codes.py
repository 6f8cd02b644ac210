"""Exit codes. They are documented in docs/reference/cli.md."""

from __future__ import annotations

from nerve import early_interrupt

COMPLETED = 0
FAILED = 1
"""The run failed, a check found errors, or the server failed."""
REFUSED = 2
"""The command or the workflow is invalid; nothing was started."""
CANCELLED = 3
"""The run was cancelled, or a gate was rejected."""
WAITING = 4
"""The run waits, is paused or is held; `nerve resume` resumes it."""
INTERRUPTED = early_interrupt.INTERRUPTED_EXIT_CODE
"""Ctrl-C; the run is parked and `nerve resume` resumes it."""

EXIT_CODE_BY_STATE = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED}


def exit_code_for_state(state: str) -> int:
    """Return the exit code for the final state of a run."""
    return EXIT_CODE_BY_STATE.get(state, WAITING)
