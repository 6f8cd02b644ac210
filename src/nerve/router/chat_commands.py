"""The `/workflow` commands of a conversation, answered without an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nerve.lazy_dataclass import dataclass
from nerve.router.decision import Candidate

NO_WORKFLOWS_TEXT = "No workflows found. Create workflows in `.archon/workflows/` as YAML files."
COMMAND_LINES = """\
  /workflow list - Show available workflows
  /workflow reload - Reload workflow definitions"""
USAGE_TEXT = f"Usage:\n{COMMAND_LINES}"
HELP_TEXT = f"""\
Workflows:
{COMMAND_LINES}
  Note: Workflows are YAML files in .archon/workflows/"""
"""The section about workflows of a help text."""


@dataclass(frozen=True, slots=True)
class ChatCommandReply:
    """The reply to a command."""

    success: bool
    text: str


def answer_command(text: str, offers: Callable[[], Sequence[Candidate]]) -> ChatCommandReply | None:
    """Return the reply to `/workflow …`, or None for other text; `offers` reads the workflows again."""
    words = text.split()
    if not words or words[0] != "/workflow":
        return None
    match words[1:]:
        case ["list" | "ls"]:
            entries = list(map(format_workflow_entry, offers()))
            text = "\n\n".join(["Available Workflows:", *entries]) if entries else NO_WORKFLOWS_TEXT
            return ChatCommandReply(True, text)
        case ["reload"]:
            return ChatCommandReply(True, f"Reloaded {len(offers())} workflow(s).")
    return ChatCommandReply(False, USAGE_TEXT)


def format_workflow_entry(candidate: Candidate) -> str:
    steps = f"  Steps: {' → '.join(candidate.steps)}" if candidate.steps else ""
    lines = [f"**{candidate.name}**", f"  {' '.join(candidate.description.split())}".rstrip(), steps]
    return "\n".join(line for line in lines if line)
