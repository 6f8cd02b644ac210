"""Workflow inputs from the command line: `--name=value`, parsed as the declared types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from nerve.cli.errors import UsageError
from nerve.lazy_dataclass import dataclass
from nerve.ui.typed_options import InvalidOption, parse_workflow_options

if TYPE_CHECKING:
    from nerve.api.models import WorkflowResponse

RUN_OPTIONS = ("answer", "dry_run", "input", "json", "key", "label", "limit", "quiet", "store", "tag", "with")
"""Options of `nerve run` and `nerve start`, offered as suggestions for unknown inputs."""
LITERAL_MARK = "\0"
"""Prefix of arguments after `--`. Process arguments cannot contain NUL, so it is unambiguous."""


@dataclass(slots=True)
class ParsedArguments:
    """The target, input and workflow inputs of a start command."""

    target: str
    input: str | None = None
    pairs: dict[str, str | bool] = field(default_factory=dict)


def parse_run_arguments(arguments: Iterable[str], named_pairs: Iterable[str] = ()) -> ParsedArguments:
    """Parse target, input and `--name=value` pairs; `named_pairs` come from `--input name=value`."""
    texts: list[str] = []
    pairs: dict[str, str | bool] = {}
    for argument in arguments:
        if argument.startswith("--"):
            add_input_pair(pairs, argument[2:], argument)
        elif argument[:1] == "-" and argument[1:2].isalpha():
            raise UsageError(f'Unknown option: {argument}. Put values that start with "-" after "--".')
        else:
            texts.append(argument.removeprefix(LITERAL_MARK))
    for pair in named_pairs:
        add_input_pair(pairs, pair, f"--input {pair}")
    check_input_text([*texts[1:], *pairs.values()])
    if not texts:
        raise UsageError("Missing argument: a workflow or a file to run.")
    if len(texts) > 2:
        raise UsageError(f"Unexpected argument: {texts[2]}. Quote an input that contains spaces.")
    return ParsedArguments(texts[0], texts[1] if len(texts) == 2 else None, pairs)


def check_input_text(values: Iterable[str | bool]) -> None:
    """Raise UsageError for surrogate escapes, which Python uses for bytes that are not UTF-8."""
    try:
        "".join(map(str, values)).encode()
    except UnicodeEncodeError:
        raise UsageError("The input is not valid UTF-8.") from None


def add_input_pair(pairs: dict[str, str | bool], pair: str, source: str) -> None:
    name, equals, value = pair.partition("=")
    name = name.replace("-", "_")
    if not name.isidentifier():
        raise UsageError(f"Invalid input option: {source}. Use --name=value.")
    if name in pairs:
        raise UsageError(f"Input '{name}' is given twice.")
    pairs[name] = value if equals else True


def parse_run_params(workflow: WorkflowResponse, pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    """Return the parameters of a run, parsed as the types that the workflow declares, or raise UsageError."""
    try:
        return parse_workflow_options(pairs, workflow, RUN_OPTIONS)
    except InvalidOption as error:
        raise UsageError(str(error)) from None
