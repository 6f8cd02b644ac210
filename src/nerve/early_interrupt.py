"""Ctrl-C before a command has begun: there is nothing to tidy up and nothing to say."""

from __future__ import annotations

import os
import signal

INTERRUPTED_EXIT_CODE = 130


def exit_quietly(*_: object) -> None:
    """End at once: libraries that are half imported would tell of it at length, or as of something else."""
    os._exit(INTERRUPTED_EXIT_CODE)


def install_early_interrupt() -> None:
    """Be quiet from here on, unless whoever started this process wants no Ctrl-C in it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_quietly)


def remove_early_interrupt() -> None:
    """Let what is done now hear of Ctrl-C itself."""
    if signal.getsignal(signal.SIGINT) is exit_quietly:
        signal.signal(signal.SIGINT, signal.default_int_handler)
