"""The commands about workflows in a conversation; no agent is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nerve.router.decision import Offered

EMPTY = "No workflows found. Create workflows in `.archon/workflows/` as YAML files."
COMMANDS = """\
  /workflow list - Show available workflows
  /workflow reload - Reload workflow definitions"""
USAGE = f"Usage:\n{COMMANDS}"
HELP = f"""\
Workflows:
{COMMANDS}
  Note: Workflows are YAML files in .archon/workflows/"""
"""The part of a help text that is about workflows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command says."""

    success: bool
    text: str


def answer_command(text: str, offers: Callable[[], Sequence[Offered]]) -> Answer | None:
    """The answer to `/workflow …`, or None for any other text; `offers` reads the workflows anew."""
    words = text.split()
    if not words or words[0] != "/workflow":
        return None
    match words[1:]:
        case ["list" | "ls"]:
            return Answer(True, listing(offers()))
        case ["reload"]:
            return Answer(True, f"Reloaded {len(offers())} workflow(s).")
    return Answer(False, USAGE)


def listing(workflows: Sequence[Offered]) -> str:
    if not workflows:
        return EMPTY
    return "\n\n".join(["Available Workflows:", *map(entry, workflows)])


def entry(offered: Offered) -> str:
    steps = f"  Steps: {' → '.join(offered.steps)}" if offered.steps else ""
    lines = [f"**{offered.name}**", f"  {' '.join(offered.description.split())}".rstrip(), steps]
    return "\n".join(line for line in lines if line)
