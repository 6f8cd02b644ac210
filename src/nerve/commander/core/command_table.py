"""The table of commands: palette, help, completion and documentation are made from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nerve.core.suggest import did_you_mean_hint

ArgumentKind = Literal[
    "run", "gate", "workflow", "target", "node", "file", "theme", "command", "word", "text"
]
"""What an argument names; what is offered for it while it is typed follows from that."""


@dataclass(frozen=True, slots=True)
class CommandArgument:
    """One argument of a command."""

    name: str
    kind: ArgumentKind = "text"
    words: tuple[str, ...] = ()
    """What it can be, of those that are words."""
    optional: bool = True

    def __str__(self) -> str:
        placeholder = "|".join(self.words) or self.name
        return f"[{placeholder}]" if self.optional else placeholder


@dataclass(frozen=True, slots=True)
class CommanderCommand:
    """A command: what it is called, what it takes, and what it does, in one sentence."""

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
        """What is given for the arguments, the last with all that is left."""
        return text.split(None, max(len(self.arguments) - 1, 0)) if self.arguments else text.split()


RUN_ARGUMENT = CommandArgument("RUN", "run")
GATE_ARGUMENT = CommandArgument("GATE", "gate")
FILE_ARGUMENT = CommandArgument("FILE", "file", optional=False)

COMMANDS: tuple[CommanderCommand, ...] = (
    CommanderCommand("workflows", "Workflows", "List the workflows with what they do and take."),
    CommanderCommand(
        "workflow",
        "Workflows",
        "List the workflows with their steps, or read their files again.",
        (CommandArgument("WHAT", "word", ("list", "ls", "reload"), optional=False),),
        example="/workflow reload",
    ),
    CommanderCommand(
        "target",
        "Workflows",
        "Say where plain text goes: to a node, a graph, a workflow, or the router.",
        (CommandArgument("@NODE|#GRAPH|%WORKFLOW|router", "target"),),
        example="/target @reviewer",
    ),
    CommanderCommand(
        "runs", "Runs", "List the runs, newest first.", (CommandArgument("STATE", "word"),), ("jobs",)
    ),
    CommanderCommand("status", "Runs", "Show where a run stands.", (RUN_ARGUMENT,), example="/status 4f2a"),
    CommanderCommand(
        "watch", "Runs", "Follow a run, also one that was started elsewhere.", (RUN_ARGUMENT,), ("follow",)
    ),
    CommanderCommand("logs", "Runs", "Show what a run has said so far.", (RUN_ARGUMENT,)),
    CommanderCommand("pause", "Runs", "Let nothing new begin in a run.", (RUN_ARGUMENT,)),
    CommanderCommand("resume", "Runs", "Go on with a paused or held run.", (RUN_ARGUMENT,), ("continue",)),
    CommanderCommand(
        "stop", "Runs", "End a run, with everything it has started.", (RUN_ARGUMENT,), ("cancel",)
    ),
    CommanderCommand(
        "fork",
        "Runs",
        "Start a run that takes over what another has done, up to a step.",
        (RUN_ARGUMENT, CommandArgument("STEP", "text")),
        example="/fork 4f2a review",
    ),
    CommanderCommand(
        "retry",
        "Runs",
        "Go on with a held run, or with a copy of a finished one from its failure.",
        (RUN_ARGUMENT,),
    ),
    CommanderCommand(
        "gates", "Gates", "List what waits for you, or open one to answer it.", (GATE_ARGUMENT,), ("gate",)
    ),
    CommanderCommand(
        "answer",
        "Gates",
        "Answer a gate by a number or by text.",
        (GATE_ARGUMENT, CommandArgument("ANSWER", "text", optional=False)),
        example="/answer 1 looks good",
    ),
    CommanderCommand("approve", "Gates", "Say yes to a gate.", (GATE_ARGUMENT,), ("yes",)),
    CommanderCommand("reject", "Gates", "Say no to a gate.", (GATE_ARGUMENT,), ("no",)),
    CommanderCommand(
        "facts", "Facts", "List the facts, or those that fit a pattern.", (CommandArgument("PATTERN"),)
    ),
    CommanderCommand(
        "signal",
        "Facts",
        "Send a signal, with a value and a key; every run that waits for it goes on.",
        (CommandArgument("NAME", "text", optional=False), CommandArgument("VALUE [--key KEY]")),
        example="/signal deployed true --key v2.1",
    ),
    CommanderCommand("usage", "Here", "Show what was spent today, and by which runs.", aliases=("cost",)),
    CommanderCommand("agents", "Here", "List the conversations with agents."),
    CommanderCommand(
        "export", "Here", "Write this conversation to a file.", (FILE_ARGUMENT,), example="/export talk.md"
    ),
    CommanderCommand(
        "import",
        "Here",
        "Read a conversation back, or define a workflow, from a file.",
        (FILE_ARGUMENT,),
        example="/import talk.json",
    ),
    CommanderCommand("theme", "Here", "Choose the colours.", (CommandArgument("NAME", "theme"),)),
    CommanderCommand(
        "tui",
        "Here",
        "Change between the full screen and plain lines.",
        (CommandArgument("MODE", "word", ("plain", "full"), optional=False),),
    ),
    CommanderCommand(
        "help",
        "Here",
        "Show this, or how a command is used.",
        (CommandArgument("COMMAND", "command"),),
        ("?",),
    ),
    CommanderCommand("quit", "Here", "Leave. What runs goes on.", aliases=("exit", "q")),
)
COMMANDS_BY_NAME: dict[str, CommanderCommand] = {
    name: command for command in COMMANDS for name in (command.name, *command.aliases)
}
"""Every command, by its name and by its other names."""

PREFIX_HELP = (
    ("@node text", "ask a node or a graph (@./path names a file)"),
    ("#graph text", "ask a graph"),
    ("%workflow --name=value text", "start a workflow; -- ends the options"),
    ("/command", "do a command, as /help lists them; //text is text that begins with a slash"),
    ("::3  ::-1  ::last  ::name", "what an earlier block gave; ::3[field][0] is a part of it"),
    ("text", "goes to the target, or to the router, which finds a workflow for it"),
)


def find_command(name: str) -> CommanderCommand | None:
    """A command by its name or another name of it."""
    return COMMANDS_BY_NAME.get(name.lower())


def unknown_command_message(name: str, text: str = "") -> str:
    """Why a command is not done that does not exist."""
    close = (
        did_you_mean_hint(name.lower(), COMMANDS_BY_NAME)
        .removeprefix(". ")
        .replace("'", "/", 1)
        .replace("'", "")
    )
    suggestion = close or "/help lists them."
    return (
        f"There is no command /{name}. {suggestion} To send a text that begins with a slash, write //{name}."
    )


def help_text(name: str = "") -> str:
    """The help as Markdown: of one command, or of all."""
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
