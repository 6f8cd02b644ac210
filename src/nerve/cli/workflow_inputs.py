"""Workflow inputs from the command line: `--name value`, parsed as the declared types."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nerve.cli.errors import InvalidInputs, UsageError
from nerve.lazy_dataclass import dataclass
from nerve.project.front_matter import read_argument_hint
from nerve.ui.json_forms import describe_field_type, form_fields, format_example_answer
from nerve.ui.typed_options import (
    InvalidOption,
    describe_option_lines,
    find_unknown_option,
    parse_finite_json,
    parse_workflow_options,
)

if TYPE_CHECKING:
    from nerve.api.models import WorkflowResponse

RUN_OPTIONS = (
    "answer",
    "dry_run",
    "help",
    "input",
    "json",
    "key",
    "label",
    "limit",
    "queue",
    "quiet",
    "store",
    "tag",
    "with",
)
"""Options of `nerve run` and `nerve start`, offered as suggestions for unknown inputs."""
NAMED_INPUT = re.compile(r"[^\W\d][\w-]*(=|$)")
"""The beginning of `--input NAME=VALUE`; any other value of it is the input of the run as JSON."""
LITERAL_MARK = "\0"
"""Prefix of arguments after `--`. Process arguments cannot contain NUL, so it is unambiguous."""


@dataclass(slots=True)
class RunArguments:
    """The target of a start command, and the words after it: the input, and options with their values."""

    target: str
    words: list[str]
    named_inputs: list[str]
    """The values of `--input`."""


def parse_run_arguments(arguments: Iterable[str], named_inputs: Iterable[str] = ()) -> RunArguments:
    """Find the target in the arguments of a start command; the types of the workflow tell the rest."""
    words, target = list(arguments), None
    for word in words:
        if word.startswith("--"):
            split_option(word)
        elif word[:1] == "-" and word[1:2].isalpha():
            raise UsageError(f'Unknown option: {word}. Put values that start with "-" after "--".')
        elif target is None:
            target = word
    check_input_text(words)
    if target is None:
        raise UsageError("Missing argument: a workflow or a file to run.")
    words.remove(target)
    return RunArguments(target.removeprefix(LITERAL_MARK), words, list(named_inputs))


def bind_run_arguments(parsed: RunArguments, workflow: WorkflowResponse) -> tuple[Any, dict[str, Any]]:
    """Return the input and the parameters of a run, in the types that the workflow declares."""
    texts: list[str] = []
    pairs: dict[str, str | bool] = {}
    words, types = deque(parsed.words), {declared.name: declared.type for declared in workflow.inputs}
    while words:
        word = words.popleft()
        if not word.startswith("--"):
            texts.append(word.removeprefix(LITERAL_MARK))
            continue
        name, value = split_option(word)
        takes_value = types.get(name, "boolean") != "boolean"
        if value is True and takes_value and words and not words[0].startswith(("--", LITERAL_MARK)):
            value = words.popleft()
        add_input_pair(pairs, name, value)
    if len(texts) > 1:
        # The word after an unknown option is its value: the option is the mistake.
        if (unknown := find_unknown_option(pairs, workflow, RUN_OPTIONS)) is not None:
            raise InvalidInputs(unknown, parsed.target)
        raise UsageError(f"Unexpected argument: {texts[1]}. Quote an input that contains spaces.")
    inputs: list[Any] = list(texts)
    for named_input in parsed.named_inputs:
        if NAMED_INPUT.match(named_input):
            add_input_pair(pairs, *split_option(f"--{named_input}", f"--input {named_input}"))
        else:
            inputs.append(parse_json_input(named_input))
    if len(inputs) > 1:
        raise UsageError("The input of the run is given twice. Use either INPUT or --input JSON.")
    try:
        params = parse_workflow_options(pairs, workflow, RUN_OPTIONS, has_input=bool(inputs))
    except InvalidOption as error:
        raise InvalidInputs(str(error), parsed.target) from None
    return (inputs[0] if inputs else None), params


def parse_json_input(text: str) -> Any:
    try:
        return parse_finite_json(text)
    except ValueError:
        raise UsageError(f"--input must be NAME=VALUE or JSON, got '{text}'.") from None


def check_input_text(values: Iterable[str]) -> None:
    """Raise UsageError for surrogate escapes, which Python uses for bytes that are not UTF-8."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        raise UsageError("The input is not valid UTF-8.") from None


def split_option(option: str, source: str = "") -> tuple[str, str | bool]:
    """Return the name and the value of `--name=value`; True without a value."""
    name, equals, value = option[2:].partition("=")
    name = name.replace("-", "_")
    if not name.isidentifier():
        raise UsageError(f"Invalid input option: {source or option}. Use --name=value.")
    return name, value if equals else True


def add_input_pair(pairs: dict[str, str | bool], name: str, value: str | bool) -> None:
    if name in pairs:
        raise UsageError(f"Input '{name}' is given twice.")
    pairs[name] = value


def describe_workflow_lines(workflow: WorkflowResponse) -> list[str]:
    """Return the description of a workflow and its inputs, as lines of a help."""
    lines = ["", *workflow.description.splitlines()] if workflow.description else []
    if options := describe_option_lines(workflow, RUN_OPTIONS):
        lines += ["", "Inputs:", *(f"  {line}" for line in options)]
    if (schema := workflow.input_schema) is not None:
        kind = "JSON" if form_fields(schema) else describe_field_type(schema)
        lines += ["", f"INPUT: {kind}, such as {format_example_answer(schema)}"]
    hints = {name: read_argument_hint(source) for name, source in workflow.prompts.items()}
    told = [f"  {name}: {hint}" for name, hint in hints.items() if hint]
    return [*lines, "", "INPUT of its commands:", *told] if told else lines
