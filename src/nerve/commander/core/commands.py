"""The table of commands: palette, help, completion and documentation are made from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nerve.core.suggest import suggest

Kind = Literal["run", "gate", "workflow", "target", "node", "file", "theme", "command", "word", "text"]
"""What an argument names; what is offered for it while it is typed follows from that."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a command."""

    name: str
    kind: Kind = "text"
    words: tuple[str, ...] = ()
    """What it can be, of those that are words."""
    optional: bool = True

    def __str__(self) -> str:
        told = "|".join(self.words) or self.name
        return f"[{told}]" if self.optional else told


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it is called, what it takes, and what it does, in one sentence."""

    name: str
    group: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    aliases: tuple[str, ...] = ()
    example: str = ""

    @property
    def usage(self) -> str:
        return " ".join([f"/{self.name}", *map(str, self.arguments)])

    def split(self, text: str) -> list[str]:
        """What is given for the arguments, the last with all that is left."""
        return text.split(None, max(len(self.arguments) - 1, 0)) if self.arguments else text.split()


RUN = Argument("RUN", "run")
GATE = Argument("GATE", "gate")
FILE = Argument("FILE", "file", optional=False)

COMMANDS: tuple[Command, ...] = (
    Command("workflows", "Workflows", "List the workflows with what they do and take."),
    Command(
        "workflow",
        "Workflows",
        "List the workflows with their steps, or read their files again.",
        (Argument("WHAT", "word", ("list", "ls", "reload"), optional=False),),
        example="/workflow reload",
    ),
    Command(
        "target",
        "Workflows",
        "Say where plain text goes: to a node, a graph, a workflow, or the router.",
        (Argument("@NODE|#GRAPH|%WORKFLOW|router", "target"),),
        example="/target @reviewer",
    ),
    Command("runs", "Runs", "List the runs, newest first.", (Argument("STATE", "word"),), ("jobs",)),
    Command("status", "Runs", "Show where a run stands.", (RUN,), example="/status 4f2a"),
    Command("watch", "Runs", "Follow a run, also one that was started elsewhere.", (RUN,), ("follow",)),
    Command("logs", "Runs", "Show what a run has said so far.", (RUN,)),
    Command("pause", "Runs", "Let nothing new begin in a run.", (RUN,)),
    Command("resume", "Runs", "Go on with a paused or held run.", (RUN,), ("continue",)),
    Command("stop", "Runs", "End a run, with everything it has started.", (RUN,), ("cancel",)),
    Command(
        "fork",
        "Runs",
        "Start a run that takes over what another has done, up to a step.",
        (RUN, Argument("STEP", "text")),
        example="/fork 4f2a review",
    ),
    Command(
        "retry", "Runs", "Go on with a held run, or with a copy of a finished one from its failure.", (RUN,)
    ),
    Command("gates", "Gates", "List what waits for you, or open one to answer it.", (GATE,), ("gate",)),
    Command(
        "answer",
        "Gates",
        "Answer a gate by a number or by text.",
        (GATE, Argument("ANSWER", "text", optional=False)),
        example="/answer 1 looks good",
    ),
    Command("approve", "Gates", "Say yes to a gate.", (GATE,), ("yes",)),
    Command("reject", "Gates", "Say no to a gate.", (GATE,), ("no",)),
    Command("facts", "Facts", "List the facts, or those that fit a pattern.", (Argument("PATTERN"),)),
    Command(
        "signal",
        "Facts",
        "Send a signal, with a value and a key; every run that waits for it goes on.",
        (Argument("NAME", "text", optional=False), Argument("VALUE [--key KEY]")),
        example="/signal deployed true --key v2.1",
    ),
    Command("usage", "Here", "Show what was spent today, and by which runs.", aliases=("cost",)),
    Command("agents", "Here", "List the conversations with agents."),
    Command("export", "Here", "Write this conversation to a file.", (FILE,), example="/export talk.md"),
    Command(
        "import",
        "Here",
        "Read a conversation back, or define a workflow, from a file.",
        (FILE,),
        example="/import talk.json",
    ),
    Command("theme", "Here", "Choose the colours.", (Argument("NAME", "theme"),)),
    Command(
        "tui",
        "Here",
        "Change between the full screen and plain lines.",
        (Argument("MODE", "word", ("plain", "full"), optional=False),),
    ),
    Command(
        "help", "Here", "Show this, or how a command is used.", (Argument("COMMAND", "command"),), ("?",)
    ),
    Command("quit", "Here", "Leave. What runs goes on.", aliases=("exit", "q")),
)
BY_NAME: dict[str, Command] = {
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


def find(name: str) -> Command | None:
    """A command by its name or another name of it."""
    return BY_NAME.get(name.lower())


def unknown(name: str, text: str = "") -> str:
    """Why a command is not done that does not exist."""
    close = suggest(name.lower(), BY_NAME).removeprefix(". ").replace("'", "/", 1).replace("'", "")
    told = close or "/help lists them."
    return f"There is no command /{name}. {told} To send a text that begins with a slash, write //{name}."


def help_text(name: str = "") -> str:
    """The help as Markdown: of one command, or of all."""
    if name:
        command = find(name.lstrip("/"))
        return one(command) if command is not None else unknown(name.lstrip("/"))
    lines = ["**What you type**", "", *rows((f"`{typed}`", told) for typed, told in PREFIX_HELP)]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        listed = [(f"`{each.usage}`", each.summary) for each in COMMANDS if each.group == group]
        lines += ["", f"**{group}**", "", *rows(listed)]
    return "\n".join(lines)


def rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"- {left} {right}" for left, right in pairs]


def one(command: Command) -> str:
    also = f"\n\nAlso: {', '.join(f'`/{name}`' for name in command.aliases)}" if command.aliases else ""
    example = f"\n\nExample: `{command.example}`" if command.example else ""
    return f"`{command.usage}`\n\n{command.summary}{example}{also}"
