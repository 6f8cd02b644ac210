"""Names and paths of the steps that journal entries belong to."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def step_name(path: str) -> str:
    """Return the name of the step of a path, not the name of the agent that executes it."""
    return plain_path_part(step_path(path).rsplit("/", 1)[-1])


@lru_cache(maxsize=1024)
def step_label(path: str) -> str:
    """Return a label for a path: the outermost state or step, and the innermost step in it."""
    names = [plain_path_part(part) for part in step_path(path).split("/")[1:]]
    if len(names) > 1 and names[-1] == "emit":
        names.pop()
    return "/".join(dict.fromkeys([names[0], names[-1]])) if names else ""


def plain_path_part(part: str) -> str:
    """Return a path segment without its index, and without the affixes of a generated id."""
    return re.sub(r"^_(\w+)_\d+$", r"\1", re.sub(r"\[\w+\]$", "", part))


def plain_step_path(path: str) -> str:
    """Return the path of a step without the numbers of iterations and attempts, which are the same step."""
    return "/".join(map(plain_path_part, step_path(path).split("/")))


def step_path(path: str) -> str:
    """Return the path of the step that an internal path (a retry, a check, a request) belongs to."""
    above, slash, last = path.rpartition("/")
    name = last.partition("~")[0]
    return f"{above}{slash}{name}" if name else above


def is_internal_path(path: str) -> bool:
    """Return whether a path is internal to a step, and not the step itself or a retry of it."""
    aside = path.rpartition("/")[2].partition("~")[2]
    return bool(aside) and not aside.startswith("again")
