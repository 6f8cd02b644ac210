"""Formatting of the steps that create, merge and remove a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_SHOWN_FILES = 5
MERGE_FIELDS = {"status", "files", "reason", "commit", "tree", "diff"}


def list_files(files: Sequence[str], more: int = 0) -> str:
    """Return the first files, and how many are left out: `a.py, b.py and 3 more`."""
    left_out = max(0, len(files) - MAX_SHOWN_FILES) + more
    return ", ".join(files[:MAX_SHOWN_FILES]) + (f" and {left_out} more" if left_out else "")


def describe_workspace_output(output: object) -> str | None:
    """Return what a step that creates, merges, reads or removes a workspace did; None for others."""
    if not isinstance(output, Mapping):
        return None
    if output.keys() == MERGE_FIELDS:
        return describe_merge(output)
    if output.keys() >= {"kind", "branch", "base_head", "base_tree", "target"}:
        return "a copy of the project" if output["kind"] == "copy" else f"branch {output['branch']}"
    if output.keys() == {"removed", "files", "branch"}:
        return describe_removal(output)
    if output.keys() == {"tree", "diff"}:
        return "changes to ask about" if output["diff"] else "no changes to ask about"
    if output.keys() == {"head", "tree", "branch"}:
        return "recorded the files that its steps start from"
    return "removed" if output == {"removed": True} else None


def describe_merge(outcome: Mapping[str, Any]) -> str:
    files = list_files(outcome["files"])
    match outcome["status"]:
        case "merged":
            commit = f" as {outcome['commit'][:10]}" if outcome["commit"] else ""
            return f"merged {files}{commit}" if files else f"merged{commit}"
        case "unchanged":
            return "nothing to merge"
        case "conflict":
            return f"conflict in {files}"
        case "changed":
            return f"not merged: {files} changed after the approval or the check"
        case "kept":
            return f"not merged: {files} stays in the workspace"
    return f"not merged: {outcome['reason']}"


def describe_removal(outcome: Mapping[str, Any]) -> str:
    if outcome["removed"]:
        return "removed"
    files = f" with {list_files(outcome['files'])}" if outcome["files"] else ""
    return f"kept{files} on branch {outcome['branch']}" if outcome["branch"] else f"kept{files}"
