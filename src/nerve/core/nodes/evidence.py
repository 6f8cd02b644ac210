"""Evidence about the files of a workspace: approvals and checks, which count for one state of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from nerve.lazy_dataclass import dataclass

RepeatCheck = Callable[[], Awaitable[str]]
"""Repeats the checks of a step; returns why one failed, or an empty text."""


@dataclass(slots=True)
class Evidence:
    """What people and checks have said about the files of a workspace."""

    tree: str | None = None
    """The files after the last step."""
    approved_tree: str | None = None
    """The files that the last answer of a gate was about."""
    checked_tree: str | None = None
    """The files that the checks were about."""
    checks: list[RepeatCheck] = field(default_factory=list, repr=False)
    is_body_done: bool = False
    """Whether all steps have ended: what changes the files now, such as a conflict, needs new checks."""

    def note_files(self, recorded: Mapping[str, Any]) -> None:
        """Note the files after a step; the checks of earlier steps were about others, as the body wants."""
        self.tree = recorded.get("tree")
        if "files" in recorded and not self.is_body_done:
            self.checks.clear()
            self.checked_tree = None

    def note_approval(self, files: Mapping[str, Any] | None) -> None:
        """Note that a gate was answered; without changes there was nothing to approve."""
        if files is not None:
            self.approved_tree = files["tree"] if files["diff"] else None

    def note_checks(self, repeat: RepeatCheck) -> None:
        """Note that the checks of a step have passed for the files as they are."""
        if self.tree is not None:
            self.checks.append(repeat)
            self.checked_tree = self.tree

    def expected_trees(self) -> list[str] | None:
        """Return the states of the files that all have to be those which are merged, or None."""
        return sorted({tree for tree in (self.approved_tree, self.checked_tree) if tree}) or None

    async def repeat_checks(self, tree: str) -> str:
        """Repeat the checks if they were about other files; return why one failed, or an empty text."""
        self.tree = tree
        if not self.checks or self.checked_tree == tree:
            return ""
        for repeat in self.checks:
            if problem := await repeat():
                return problem
        self.checked_tree = self.tree
        return ""

    @property
    def needs_approval(self) -> bool:
        """Whether the files are others than those that were approved."""
        return self.approved_tree is not None and self.approved_tree != self.tree
