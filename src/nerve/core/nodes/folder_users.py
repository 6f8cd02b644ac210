"""The folders that running agents may edit: two agents of one run must not share one unawares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from nerve.core.result import Result
from nerve.core.runtime import NodeCall

UserId = tuple[str, str]
"""The run and the path of a call."""


class FolderUsers:
    """The agents that work in the folders of each run, together with those of its child runs."""

    def __init__(self, find_family: Callable[[str], str] = str) -> None:
        self._find_family = find_family
        """Returns the outermost run around a run."""
        self._users: defaultdict[tuple[str, str], dict[UserId, str]] = defaultdict(dict)
        self._places: dict[UserId, tuple[str, str]] = {}

    def enter(self, call: NodeCall, *, is_restarted: bool) -> Result | None:
        """Note where a call works; return its failure if another agent works there.

        A call that an earlier process has started is not refused: it may have done a part of its work.
        """
        find_folder = getattr(call.node, "find_edited_folder", None)
        if find_folder is None or call.context is None or call.context.shares_files:
            return None
        folder: str | None = find_folder(call.context, call.input)
        if folder is None:
            return None
        run_id = call.context.run_id
        place = (self._find_family(run_id), folder)
        if not is_restarted and (users := self._users.get(place)):
            return refuse(call.node_id, next(iter(users.values())), folder)
        self._places[run_id, call.path] = place
        self._users[place][run_id, call.path] = call.node_id
        return None

    def leave(self, call: NodeCall) -> None:
        """Forget a call that has ended, if it was noted."""
        if not self._places or call.context is None:
            return
        user = call.context.run_id, call.path
        if (place := self._places.pop(user, None)) is not None:
            del self._users[place][user]
            if not self._users[place]:
                del self._users[place]


def refuse(name: str, other: str, folder: str) -> Result:
    where = "the folder of the project" if folder == "." else f"the folder {folder}"
    agents = f"Two calls of the agent '{name}'" if name == other else f"The agents '{other}' and '{name}'"
    result = Result.failed(
        f"{agents} would edit {where} at the same time. Give each a workspace, deny it Edit and Write, or"
        " set workspace='shared' if they edit different files.",
        "SharedFolder",
    )
    result.settlement = "error"
    return result
