"""The table of commands: source of the palette, the help, completion and documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass

ArgumentKind = Literal[
    "run", "gate", "workflow", "target", "node", "queue", "file", "theme", "command", "word", "text"
]
"""What an argument names; decides which completions are offered."""


@dataclass(frozen=True, slots=True)
class CommandArgument:
    """One argument of a command."""

    name: str
    kind: ArgumentKind = "text"
    words: tuple[str, ...] = ()
    """The allowed values, if the argument is one of a fixed set."""
    optional: bool = True

    def __str__(self) -> str:
        placeholder = "|".join(self.words) or self.name
        return f"[{placeholder}]" if self.optional else placeholder


@dataclass(frozen=True, slots=True)
class CommanderCommand:
    """A command: its name, its arguments, and a one-sentence summary."""

    name: str
    group: str
    summary: str
    arguments: tuple[CommandArgument, ...] = ()
    aliases: tuple[str, ...] = ()
    example: str = ""

    @property
    def usage(self) -> str:
        return " ".join([f"/{self.name}", *map(str, self.arguments)])

    def split_arguments(self, text: str) -> list[str]:
        """Split a text into arguments; the last one takes the rest."""
        return text.split(None, max(len(self.arguments) - 1, 0)) if self.arguments else text.split()


RUN_ARGUMENT = CommandArgument("RUN", "run")
NAMED_RUN_ARGUMENT = CommandArgument("RUN", "run", optional=False)
GATE_ARGUMENT = CommandArgument("GATE", "gate")
FILE_ARGUMENT = CommandArgument("FILE", "file", optional=False)

COMMANDS: tuple[CommanderCommand, ...] = (
    CommanderCommand("workflows", "Workflows", "List the workflows with their descriptions and inputs."),
    CommanderCommand(
        "workflow",
        "Workflows",
        "List the workflows with their steps, or reload their files.",
        (CommandArgument("WHAT", "word", ("list", "ls", "reload"), optional=False),),
        example="/workflow reload",
    ),
    CommanderCommand(
        "target",
        "Workflows",
        "Set where plain text goes: a node, a graph, a workflow, or the router.",
        (CommandArgument("@NODE|#GRAPH|%WORKFLOW|router", "target"),),
        example="/target @reviewer",
    ),
    CommanderCommand(
        "runs",
        "Runs",
        "List the runs, newest first, of a state or with a tag.",
        (CommandArgument("STATE", "word"), CommandArgument("--tag NAME=VALUE", "word")),
        ("jobs",),
        example="/runs waiting --tag customer=42",
    ),
    CommanderCommand("status", "Runs", "Show the status of a run.", (RUN_ARGUMENT,), example="/status 4f2a"),
    CommanderCommand(
        "watch", "Runs", "Follow a run, including one started elsewhere.", (RUN_ARGUMENT,), ("follow",)
    ),
    CommanderCommand("logs", "Runs", "Show the log of a run.", (RUN_ARGUMENT,)),
    CommanderCommand("pause", "Runs", "Pause a run after its current steps.", (RUN_ARGUMENT,)),
    CommanderCommand("resume", "Runs", "Resume a paused or held run.", (RUN_ARGUMENT,), ("continue",)),
    CommanderCommand("stop", "Runs", "Stop a run and everything it started.", (RUN_ARGUMENT,), ("cancel",)),
    CommanderCommand(
        "fork",
        "Runs",
        "Start a copy of a run that reuses its results up to a step.",
        (RUN_ARGUMENT, CommandArgument("STEP", "text")),
        example="/fork 4f2a review",
    ),
    CommanderCommand(
        "retry",
        "Runs",
        "Resume a held run, or retry a copy of a finished run from its failure.",
        (RUN_ARGUMENT,),
    ),
    CommanderCommand(
        "diff",
        "Runs",
        "Show what the steps of a run have changed in workspaces.",
        (RUN_ARGUMENT,),
    ),
    CommanderCommand(
        "queues",
        "Runs",
        "List the queues with what runs in them and what waits, or pause or resume one.",
        (CommandArgument("ACTION", "word", ("pause", "resume")), CommandArgument("NAME", "queue")),
        ("queue",),
        example="/queues pause emails",
    ),
    CommanderCommand(
        "triggers",
        "Runs",
        "List the triggers with their next times and last runs, or pause, resume or fire one.",
        (CommandArgument("ACTION", "word", ("pause", "resume", "fire")), CommandArgument("NAME", "text")),
        ("trigger",),
        example="/triggers fire nightly",
    ),
    CommanderCommand(
        "gates",
        "Gates",
        "List the open gates, with `mine` those that wait for you, or open one to answer it.",
        (GATE_ARGUMENT,),
        ("gate",),
        example="/gates mine",
    ),
    CommanderCommand(
        "answer",
        "Gates",
        "Answer a gate with a number or text.",
        (GATE_ARGUMENT, CommandArgument("ANSWER", "text", optional=False)),
        example="/answer 1 looks good",
    ),
    CommanderCommand("approve", "Gates", "Approve a gate.", (GATE_ARGUMENT,), ("yes",)),
    CommanderCommand("reject", "Gates", "Reject a gate.", (GATE_ARGUMENT,), ("no",)),
    CommanderCommand(
        "send",
        "Messages",
        "Send a message to the mailbox of a run.",
        (NAMED_RUN_ARGUMENT, CommandArgument("CHANNEL [VALUE]", optional=False)),
        example='/send 4f2a orders {"item": "tea"}',
    ),
    CommanderCommand(
        "update",
        "Messages",
        "Let the code of a run handle an update, and show its reply.",
        (NAMED_RUN_ARGUMENT, CommandArgument("NAME [VALUE]", optional=False)),
        example='/update 4f2a add_item {"item": "tea"}',
    ),
    CommanderCommand(
        "query",
        "Messages",
        "Ask the code of a run about its state.",
        (NAMED_RUN_ARGUMENT, CommandArgument("NAME", optional=False)),
        example="/query 4f2a progress",
    ),
    CommanderCommand(
        "facts", "Facts", "List the facts, or those that match a pattern.", (CommandArgument("PATTERN"),)
    ),
    CommanderCommand(
        "signal",
        "Facts",
        "Send a signal with an optional value and key; every run that waits for it resumes.",
        (CommandArgument("NAME", "text", optional=False), CommandArgument("VALUE [--key KEY]")),
        example="/signal deployed true --key v2.1",
    ),
    CommanderCommand("usage", "Here", "Show today's usage and cost by run.", aliases=("cost",)),
    CommanderCommand("agents", "Here", "List the conversations with agents."),
    CommanderCommand(
        "export",
        "Here",
        "Export this conversation to a file.",
        (FILE_ARGUMENT,),
        example="/export conversation.md",
    ),
    CommanderCommand(
        "import",
        "Here",
        "Import a conversation or define a workflow from a file.",
        (FILE_ARGUMENT,),
        example="/import conversation.json",
    ),
    CommanderCommand("theme", "Here", "Choose the colours.", (CommandArgument("NAME", "theme"),)),
    CommanderCommand(
        "tui",
        "Here",
        "Switch between the full screen and plain lines.",
        (CommandArgument("MODE", "word", ("plain", "full"), optional=False),),
    ),
    CommanderCommand(
        "help",
        "Here",
        "Show this help, or the help of one command.",
        (CommandArgument("COMMAND", "command"),),
        ("?",),
    ),
    CommanderCommand("quit", "Here", "Quit. Runs continue in the background.", aliases=("exit", "q")),
)
COMMANDS_BY_NAME: dict[str, CommanderCommand] = {
    name: command for command in COMMANDS for name in (command.name, *command.aliases)
}
"""Every command by its name and aliases."""

PREFIX_HELP = (
    ("@node text", "send text to a node or a graph (@./path names a file)"),
    ("#graph text", "send text to a graph"),
    ("%workflow --name=value text", "start a workflow; -- ends the options"),
    ("/command", "run a command; //text sends text that starts with a slash"),
    (
        "::3  ::-1  ::last  ::name",
        "insert the result of an earlier block; ::3[field][0] selects a part of it",
    ),
    ("text", "send text to the target, or to the router, which chooses a workflow"),
)


def find_command(name: str) -> CommanderCommand | None:
    """Return a command by its name or alias."""
    return COMMANDS_BY_NAME.get(name.lower())


def unknown_command_message(name: str) -> str:
    """Return the error for an unknown command."""
    close = (
        did_you_mean_hint(name.lower(), COMMANDS_BY_NAME)
        .removeprefix(". ")
        .replace("'", "/", 1)
        .replace("'", "")
    )
    suggestion = close or "/help lists the commands."
    return f"Unknown command /{name}. {suggestion} To send text that starts with a slash, write //{name}."


def help_text(name: str = "") -> str:
    """Return the help of one command, or of all, as Markdown."""
    if name:
        command = find_command(name.lstrip("/"))
        return (
            format_command_help(command) if command is not None else unknown_command_message(name.lstrip("/"))
        )
    lines = [
        "**What you type**",
        "",
        *format_help_rows((f"`{syntax}`", description) for syntax, description in PREFIX_HELP),
    ]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        usage_rows = [
            (f"`{group_command.usage}`", group_command.summary)
            for group_command in COMMANDS
            if group_command.group == group
        ]
        lines += ["", f"**{group}**", "", *format_help_rows(usage_rows)]
    return "\n".join(lines)


def format_help_rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"- {term} {description}" for term, description in pairs]


def format_command_help(command: CommanderCommand) -> str:
    also = f"\n\nAlso: {', '.join(f'`/{name}`' for name in command.aliases)}" if command.aliases else ""
    example = f"\n\nExample: `{command.example}`" if command.example else ""
    return f"`{command.usage}`\n\n{command.summary}{example}{also}"
