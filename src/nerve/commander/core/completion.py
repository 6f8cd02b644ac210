"""Completion of commands, names, options, references and files at the cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from nerve.api.models import InputResponse, WorkflowResponse
from nerve.commander.core import command_table
from nerve.commander.core.input_parser import FILE_PREFIXES, InputType, parse_input
from nerve.lazy_dataclass import dataclass
from nerve.text import take_first_line
from nerve.ui.fuzzy import best_matches
from nerve.ui.typed_options import describe_option_type, format_option_name

MAX_COMPLETIONS = 50
"""Maximum number of completions that are offered."""
RUN_STATES = ("running", "waiting", "paused", "held", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Completion:
    """A replacement for the text from `start` to the cursor."""

    text: str
    start: int
    display: str = ""
    description: str = ""

    def apply_to(self, line: str, cursor: int) -> tuple[str, int]:
        """Return the completed line and the new cursor position."""
        return line[: self.start] + self.text + line[cursor:], self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class CompletionName:
    """A name that can be completed, with its description."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class CompletionNames:
    """All names that can be completed now."""

    workflows: Sequence[WorkflowResponse] = ()
    nodes: Sequence[CompletionName] = ()
    graphs: Sequence[CompletionName] = ()
    runs: Sequence[CompletionName] = ()
    gates: Sequence[CompletionName] = ()
    queues: Sequence[CompletionName] = ()
    blocks: Sequence[CompletionName] = ()
    """Names that may follow `::`."""
    answers: Sequence[str] = ()
    """The possible answers of the open gate."""
    themes: Sequence[str] = ()
    files: Callable[[str], Iterable[str]] | None = None
    """Return the paths that start with a text; directories end with a slash."""

    @property
    def workflow_names(self) -> list[CompletionName]:
        return [
            CompletionName(workflow.id, take_first_line(workflow.description)) for workflow in self.workflows
        ]


def find_completions(text: str, cursor: int, names: CompletionNames) -> list[Completion]:
    """Return the completions of the word before the cursor, best first."""
    cursor = max(0, min(cursor, len(text)))
    before = text[:cursor]
    start = len(before) - len(re.split(r"\s", before)[-1])
    word = before[start:]
    if names.answers and before.strip() and parse_input(before).type is InputType.DIRECT:
        typed = before.lstrip()  # the answer is the complete line
        completions = [
            Completion(answer, len(before) - len(typed), answer, "answer the open gate")
            for answer in best_matches(typed, names.answers, str)
            if "\n" not in typed
        ]
    elif not before[:start].strip():
        completions = list(complete_first_word(word, start, names))
    else:
        completions = list(complete_later_word(before.lstrip(), word, start, names))
    return (
        []
        if [completion.text for completion in completions] in ([word], [before.lstrip()])
        else completions[:MAX_COMPLETIONS]
    )


def complete_first_word(word: str, start: int, names: CompletionNames) -> Iterator[Completion]:
    """Complete the first word of the line, which decides the kind of input."""
    if re.match(r"/(?!/)|:[a-zA-Z]", word):
        yield from complete_command_name(word, start)
    elif word.startswith("%"):
        yield from complete_name("%", word[1:], start, names.workflow_names)
    elif word.startswith("#") and not word.startswith("##"):
        yield from complete_name("#", word[1:], start, names.graphs)
    elif word.startswith("@") and not word[1:].startswith(FILE_PREFIXES):
        yield from complete_name("@", word[1:], start, [*names.nodes, *names.graphs])
    else:
        yield from complete_reference_or_file(word, start, names)


def complete_later_word(line: str, word: str, start: int, names: CompletionNames) -> Iterator[Completion]:
    """Complete a word after the first."""
    head = line.split(None, 1)[0]
    if head.startswith("%") and word.startswith("--") and not re.search(r"\s--\s", line):
        yield from complete_option(head[1:], word, start, line, names)
        return
    command = (
        command_table.find_command(head[1:]) if head[:1] in ("/", ":") and not head.startswith("//") else None
    )
    offered = (
        list(complete_command_argument(command, line, word, start, names)) if command is not None else []
    )
    yield from offered or complete_reference_or_file(word, start, names)


def complete_reference_or_file(word: str, start: int, names: CompletionNames) -> Iterator[Completion]:
    """Complete references and files, which may appear anywhere in the text."""
    if reference := re.match(r":{2,3}", word):
        yield from complete_name(reference[0], word[reference.end() :], start, names.blocks)
    elif word.startswith("@") and word[1:].startswith(FILE_PREFIXES):
        yield from complete_file("@", word[1:], start, names)


def complete_command_name(word: str, start: int) -> Iterator[Completion]:
    typed = word[1:]
    all_names = [
        (name, command) for command in command_table.COMMANDS for name in (command.name, *command.aliases)
    ]
    seen_names = set()
    for name, command in best_matches(typed, all_names, lambda pair: pair[0]):
        if command.name in seen_names or (not typed and name != command.name):
            continue
        seen_names.add(command.name)
        usage = f"/{name}{command.usage.removeprefix(f'/{command.name}')}"
        yield Completion(word[0] + name, start, usage, command.summary)


def complete_name(
    prefix: str, typed: str, start: int, entries: Iterable[CompletionName]
) -> Iterator[Completion]:
    unique: dict[str, CompletionName] = {}
    for entry in entries:
        unique.setdefault(entry.name, entry)
    for entry in best_matches(typed, unique.values(), lambda candidate: candidate.name):
        yield Completion(prefix + entry.name, start, prefix + entry.name, entry.description)


def complete_file(prefix: str, typed: str, start: int, names: CompletionNames) -> Iterator[Completion]:
    for path in names.files(typed) if names.files is not None else ():
        if not re.search(r"\s", path):
            yield Completion(prefix + path, start, path)


def complete_command_argument(
    command: command_table.CommanderCommand, line: str, word: str, start: int, names: CompletionNames
) -> Iterator[Completion]:
    """Complete the command argument at the cursor."""
    index = len(line.split()) - (2 if word else 1)
    if index >= len(command.arguments):
        return
    argument = command.arguments[index]
    if argument.kind == "file":
        yield from complete_file("", word, start, names)
    else:
        yield from complete_name("", word, start, argument_names(argument, names))


def argument_names(
    argument: command_table.CommandArgument, names: CompletionNames
) -> Iterable[CompletionName]:
    """Return the names that an argument of a command can have."""
    match argument.kind:
        case "run":
            return names.runs
        case "gate":
            return names.gates
        case "queue":
            return names.queues
        case "workflow":
            return names.workflow_names
        case "target":
            return [
                CompletionName("router", "Describe the task; the router chooses the workflow."),
                *(CompletionName(f"%{entry.name}", entry.description) for entry in names.workflow_names),
                *(CompletionName(f"@{entry.name}", entry.description) for entry in names.nodes),
                *(CompletionName(f"#{entry.name}", entry.description) for entry in names.graphs),
            ]
        case "theme":
            return map(CompletionName, names.themes)
        case "word":
            return map(CompletionName, argument.words or RUN_STATES)
        case "command":
            return [CompletionName(command.name, command.summary) for command in command_table.COMMANDS]
    return ()


def complete_option(
    workflow: str, word: str, start: int, line: str, names: CompletionNames
) -> Iterator[Completion]:
    """Complete `--name` and `--name=value` of a workflow."""
    workflow_info = next((item for item in names.workflows if item.id == workflow), None)
    if workflow_info is None:
        return
    typed, equals, value = word[2:].partition("=")
    if equals:
        yield from complete_option_value(typed, value, start, workflow_info)
        return
    used = {item.replace("-", "_") for item in re.findall(r"\s--([\w-]+)", line[: len(line) - len(word)])}
    unused_inputs = [item for item in workflow_info.inputs if item.name not in used]
    for input in best_matches(typed, unused_inputs, lambda item: format_option_name(item.name)):
        equals_sign = "" if input.type == "boolean" else "="
        text = f"--{format_option_name(input.name)}{equals_sign}"
        yield Completion(text, start, text, describe_option(input))


def complete_option_value(
    name: str, typed: str, start: int, workflow: WorkflowResponse
) -> Iterator[Completion]:
    input = next((item for item in workflow.inputs if item.name == name.replace("-", "_")), None)
    if input is None:
        return
    known = ["true", "false"] if input.type == "boolean" else list(map(str, input.choices or []))
    for value in best_matches(typed, [item for item in known if not re.search(r"\s", item)], str):
        yield Completion(f"--{name}={value}", start, value, describe_option(input))


def describe_option(input: InputResponse) -> str:
    return (
        f"{describe_option_type(input)}: {take_first_line(input.description)}"
        if input.description
        else describe_option_type(input)
    )
