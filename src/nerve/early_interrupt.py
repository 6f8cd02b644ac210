"""Ctrl-C during startup: exit without a traceback, because there is nothing to clean up yet."""

from __future__ import annotations

import os
import signal

INTERRUPTED_EXIT_CODE = 130


def exit_quietly(*_: object) -> None:
    """Exit at once; a KeyboardInterrupt inside an import would print misleading tracebacks."""
    os._exit(INTERRUPTED_EXIT_CODE)


def install_early_interrupt() -> None:
    """Exit quietly on Ctrl-C from now on, unless the parent process disabled SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_quietly)


def remove_early_interrupt() -> None:
    """Restore KeyboardInterrupt for Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is exit_quietly:
        signal.signal(signal.SIGINT, signal.default_int_handler)
