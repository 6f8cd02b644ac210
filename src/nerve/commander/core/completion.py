"""Completion: what the word at the cursor may become, for commands, names, options, references and files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from nerve.api.models import InputTold, WorkflowTold
from nerve.commander.core import commands
from nerve.commander.core.fuzzy import best
from nerve.commander.core.input import FILES, InputType, parse_input
from nerve.commander.core.options import about, shown

MOST = 50
"""How many are offered at once."""
STATES = ("running", "waiting", "paused", "held", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Completion:
    """What is put in place of everything from `start` to the cursor."""

    text: str
    start: int
    display: str = ""
    description: str = ""

    def applied(self, line: str, cursor: int) -> tuple[str, int]:
        """The line with it, and where the cursor is then."""
        return line[: self.start] + self.text + line[cursor:], self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Named:
    """Something that can be named, and what is said of it."""

    name: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """Everything that can be named now."""

    workflows: Sequence[WorkflowTold] = ()
    nodes: Sequence[Named] = ()
    graphs: Sequence[Named] = ()
    runs: Sequence[Named] = ()
    gates: Sequence[Named] = ()
    blocks: Sequence[Named] = ()
    """What `::` may be followed by."""
    answers: Sequence[str] = ()
    """What the gate may be answered with that is open, if one is."""
    themes: Sequence[str] = ()
    files: Callable[[str], Iterable[str]] | None = None
    """The paths that begin with a text; a folder ends with a slash."""

    @property
    def flows(self) -> list[Named]:
        return [Named(each.id, first_line(each.description)) for each in self.workflows]


def complete(text: str, cursor: int, names: Names) -> list[Completion]:
    """What the word before the cursor may become, the best first; nothing where nothing is asked for."""
    cursor = max(0, min(cursor, len(text)))
    before = text[:cursor]
    start = len(before) - len(re.split(r"\s", before)[-1])
    word = before[start:]
    if names.answers and before.strip() and parse_input(before).type is InputType.DIRECT:
        found = list(answers(before, names))
    elif not before[:start].strip():
        found = list(first(word, start, names))
    else:
        found = list(later(before.lstrip(), word, start, names))
    return [] if [each.text for each in found] in ([word], [before.lstrip()]) else found[:MOST]


def answers(before: str, names: Names) -> Iterator[Completion]:
    """For an answer, which is the whole line."""
    typed = before.lstrip()
    for each in best(typed, names.answers, str):
        if "\n" not in typed:
            yield Completion(each, len(before) - len(typed), each, "answers the gate that is open")


def first(word: str, start: int, names: Names) -> Iterator[Completion]:
    """For the first word of the line, which says what the line is."""
    if re.match(r"/(?!/)|:[a-zA-Z]", word):
        yield from command_names(word, start)
    elif word.startswith("%"):
        yield from named("%", word[1:], start, names.flows)
    elif word.startswith("#") and not word.startswith("##"):
        yield from named("#", word[1:], start, names.graphs)
    elif word.startswith("@") and not word[1:].startswith(FILES):
        yield from named("@", word[1:], start, [*names.nodes, *names.graphs])
    else:
        yield from anywhere(word, start, names)


def later(line: str, word: str, start: int, names: Names) -> Iterator[Completion]:
    """For a word behind the first."""
    head = line.split(None, 1)[0]
    if head.startswith("%") and word.startswith("--") and not re.search(r"\s--\s", line):
        yield from options(head[1:], word, start, line, names)
        return
    command = commands.find(head[1:]) if head[:1] in ("/", ":") and not head.startswith("//") else None
    offered = list(argument(command, line, word, start, names)) if command is not None else []
    yield from offered or anywhere(word, start, names)


def anywhere(word: str, start: int, names: Names) -> Iterator[Completion]:
    """References and files, which may stand in any text."""
    if reference := re.match(r":{2,3}", word):
        yield from named(reference[0], word[reference.end() :], start, names.blocks)
    elif word.startswith("@") and word[1:].startswith(FILES):
        yield from files("@", word[1:], start, names)


def command_names(word: str, start: int) -> Iterator[Completion]:
    typed = word[1:]
    every = [(name, each) for each in commands.COMMANDS for name in (each.name, *each.aliases)]
    seen = set()
    for name, each in best(typed, every, lambda pair: pair[0]):
        if each.name in seen or (not typed and name != each.name):
            continue
        seen.add(each.name)
        yield Completion(word[0] + name, start, usage_of(name, each), each.summary)


def usage_of(name: str, command: commands.Command) -> str:
    return f"/{name}{command.usage.removeprefix(f'/{command.name}')}"


def named(prefix: str, typed: str, start: int, things: Iterable[Named]) -> Iterator[Completion]:
    unique: dict[str, Named] = {}
    for each in things:
        unique.setdefault(each.name, each)
    for each in best(typed, unique.values(), lambda named: named.name):
        yield Completion(prefix + each.name, start, prefix + each.name, each.about)


def files(prefix: str, typed: str, start: int, names: Names) -> Iterator[Completion]:
    for path in names.files(typed) if names.files is not None else ():
        if not re.search(r"\s", path):
            yield Completion(prefix + path, start, path)


def argument(
    command: commands.Command, line: str, word: str, start: int, names: Names
) -> Iterator[Completion]:
    """For the argument of a command that the cursor is in."""
    given = len(line.split()) - (2 if word else 1)
    if given >= len(command.arguments):
        return
    match command.arguments[given]:
        case commands.Argument(kind="run"):
            yield from named("", word, start, names.runs)
        case commands.Argument(kind="gate"):
            yield from named("", word, start, names.gates)
        case commands.Argument(kind="workflow"):
            yield from named("", word, start, names.flows)
        case commands.Argument(kind="theme"):
            yield from named("", word, start, map(Named, names.themes))
        case commands.Argument(kind="command"):
            known = [Named(each.name, each.summary) for each in commands.COMMANDS]
            yield from named("", word, start, known)
        case commands.Argument(kind="file"):
            yield from files("", word, start, names)
        case commands.Argument(kind="target"):
            yield from named("", word, start, targets(names))
        case commands.Argument(kind="word", words=words):
            yield from named("", word, start, map(Named, words or STATES))


def targets(names: Names) -> list[Named]:
    return [
        Named("router", "Say what you want; the router finds the workflow."),
        *(Named(f"%{each.name}", each.about) for each in names.flows),
        *(Named(f"@{each.name}", each.about) for each in names.nodes),
        *(Named(f"#{each.name}", each.about) for each in names.graphs),
    ]


def options(workflow: str, word: str, start: int, line: str, names: Names) -> Iterator[Completion]:
    """For `--name` and `--name=value` of a workflow."""
    told = next((each for each in names.workflows if each.id == workflow), None)
    if told is None:
        return
    typed, equals, value = word[2:].partition("=")
    if equals:
        yield from values(typed, value, start, told)
        return
    used = {each.replace("-", "_") for each in re.findall(r"\s--([\w-]+)", line[: len(line) - len(word)])}
    left = [each for each in told.inputs if each.name not in used]
    for input in best(typed, left, lambda each: shown(each.name)):
        stop = "" if input.type == "boolean" else "="
        text = f"--{shown(input.name)}{stop}"
        yield Completion(text, start, text, described(input))


def values(name: str, typed: str, start: int, workflow: WorkflowTold) -> Iterator[Completion]:
    input = next((each for each in workflow.inputs if each.name == name.replace("-", "_")), None)
    if input is None:
        return
    known = ["true", "false"] if input.type == "boolean" else list(map(str, input.choices or []))
    for value in best(typed, [each for each in known if not re.search(r"\s", each)], str):
        yield Completion(f"--{name}={value}", start, value, described(input))


def described(input: InputTold) -> str:
    return f"{about(input)}: {first_line(input.description)}" if input.description else about(input)


def first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
