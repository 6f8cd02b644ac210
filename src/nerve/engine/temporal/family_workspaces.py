"""The workspaces of a family of runs, on the one host that has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from nerve.engine.temporal.messages import LeafInput, LeafResult


def next_host(host: str | None, leaf: LeafInput, result: LeafResult) -> str | None:
    """Return the host of a family after a leaf, which the first one names that has ended.

    Another leaf can have named a host before the first workspace was opened, which has no files of it.
    """
    has_priority = host is None or leaf.uses_workspaces
    return (result.host if has_priority else None) or host


class FamilyWorkspaces:
    """Which workspaces may exist, and whether the host is known on which the leaves of a family run."""

    def __init__(self, names: Iterable[Sequence[str]] = ()) -> None:
        """`names` are the runs and the names of workspaces that a history before this one has opened."""
        self._names = {(run_id, name) for run_id, name in names}
        self._is_shared = False
        self.placement = asyncio.Lock()
        """Held by the leaf that finds the host, so that all workspaces are opened on the same one."""

    @property
    def names(self) -> list[list[str]]:
        """The runs and the names of the workspaces that may exist."""
        return [list(each) for each in sorted(self._names)]

    def needs_host(self, leaf: LeafInput, host: str | None) -> bool:
        """Return whether a leaf has to wait until the host of the workspaces is known."""
        return leaf.uses_workspaces and host is None and not self._is_shared

    def note_result(self, leaf: LeafInput, result: LeafResult) -> None:
        """Note what a worker has opened or removed."""
        if not leaf.uses_workspaces:
            return
        # A worker without a host has the files that all workers share.
        self._is_shared = result.host is None
        output = result.result.get("output") if result.result.get("success") else None
        own = None if leaf.workspace is None else (leaf.workspace["run"], leaf.workspace["name"])
        if own is not None:
            self._names.add(own)
        if leaf.workspace_verb == "open" and isinstance(output, dict):
            self._names.add((leaf.run_id, output["name"]))
        elif leaf.workspace_verb == "close" and isinstance(output, dict) and output["removed"]:
            self._names -= {own}

    def take_run(self, run_id: str, *, is_last: bool) -> list[str]:
        """Forget the workspaces of a run that has ended, or of all runs; return the runs that had any."""
        names = {each for each in self._names if is_last or each[0] == run_id}
        self._names -= names
        return sorted({owner for owner, _ in names})
