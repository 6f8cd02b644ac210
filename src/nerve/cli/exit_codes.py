"""Exit codes: what a command says to the shell. They stand here and in docs/reference/cli.md."""

from __future__ import annotations

from nerve import early_interrupt

COMPLETED = 0
FAILED = 1
"""The run failed; for commands that look at something, something is wrong; or the server failed."""
REFUSED = 2
"""The command was wrong, or the workflow is: nothing was started."""
CANCELLED = 3
"""The run was cancelled, or a person rejected what it asked for."""
WAITING = 4
"""The run waits, is paused or is held; `nerve resume` goes on with it."""
INTERRUPTED = early_interrupt.INTERRUPTED_EXIT_CODE
"""Ctrl-C; the run is parked and `nerve resume` goes on with it."""

EXIT_CODE_BY_STATE = {"completed": COMPLETED, "failed": FAILED, "cancelled": CANCELLED}


def exit_code_for_state(state: str) -> int:
    """The exit code for a run that was left in this state."""
    return EXIT_CODE_BY_STATE.get(state, WAITING)
