"""Which step something in a journal belongs to."""

from __future__ import annotations

import re

from nerve.core.event import WorkflowEvent


def step_name(event: WorkflowEvent) -> str:
    """What a step is called: by its own name, and not by that of the agent that does it."""
    return re.sub(r"\[\w+\]$", "", step_path(event.path).rsplit("/", 1)[-1])


def step_path(path: str) -> str:
    """The path of the step that something at a path is done for: another try, a check, a request."""
    above, slash, last = path.rpartition("/")
    return f"{above}{slash}{last.partition('~')[0]}"


def is_aside(path: str) -> bool:
    """Whether something is done about a step and is neither it nor another try of it."""
    aside = path.rpartition("/")[2].partition("~")[2]
    return bool(aside) and not aside.startswith("again")
