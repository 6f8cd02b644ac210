"""Which step something in a journal belongs to."""

from __future__ import annotations

import re

from nerve.core.events import WorkflowEvent


def event_step_name(event: WorkflowEvent) -> str:
    """What a step is called: by its own name, and not by that of the agent that does it."""
    return plain_path_part(step_path(event.path).rsplit("/", 1)[-1])


def step_label(path: str) -> str:
    """Where something is done: the state or step of the workflow, and what is done in it."""
    names = [plain_path_part(part) for part in step_path(path).split("/")[1:]]
    if len(names) > 1 and names[-1] == "emit":
        names.pop()
    return "/".join(dict.fromkeys([names[0], names[-1]])) if names else ""


def plain_path_part(part: str) -> str:
    """A part of a path without its number, and as it was written where a notation made an id of it."""
    return re.sub(r"^_(\w+)_\d+$", r"\1", re.sub(r"\[\w+\]$", "", part))


def step_path(path: str) -> str:
    """The path of the step that something at a path is done for: another try, a check, a request."""
    above, slash, last = path.rpartition("/")
    return f"{above}{slash}{last.partition('~')[0]}"


def is_internal_path(path: str) -> bool:
    """Whether something is done about a step and is neither it nor another try of it."""
    aside = path.rpartition("/")[2].partition("~")[2]
    return bool(aside) and not aside.startswith("again")
