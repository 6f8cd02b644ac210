"""Workflow inputs from the command line: `--name=value`, parsed as the declared types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.cli.errors import UsageError
from nerve.core.suggest import closest_name
from nerve.core.workflow.workflow import Workflow
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.ui.typed_options import OPTION_PARSERS, TYPE_DESCRIPTIONS, parse_json_or_text

__all__ = [
    "LITERAL_MARK",
    "ParsedArguments",
    "parse_cli_input_value",
    "parse_json_or_text",
    "parse_run_arguments",
    "parse_workflow_params",
]

RUN_OPTIONS = ("answer", "dry_run", "input", "json", "key", "label", "limit", "quiet", "store", "with")
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


def parse_workflow_params(workflow: Workflow, pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    """Return the parameters of a run, parsed as the declared types, or raise UsageError."""
    if not isinstance(workflow, DefinedWorkflow):
        return {name: parse_json_or_text(value) for name, value in pairs.items()}
    declared = workflow.spec.inputs
    for name in pairs:
        if name not in declared:
            raise_unknown_input(workflow, name)
    values = {name: parse_cli_input_value(name, declared[name].type, value) for name, value in pairs.items()}
    try:
        workflow.check_params(values)
    except ValueError as error:
        raise UsageError(f"{error}. {describe_declared_inputs(workflow)}") from None
    return values


def raise_unknown_input(workflow: DefinedWorkflow, name: str) -> None:
    suggestion = suggest_input(name, workflow.spec.inputs)
    full_stop = "" if suggestion.endswith("?") else "."
    raise UsageError(
        f"Unknown input or option '{name}' for workflow '{workflow.name}'{suggestion}{full_stop} "
        f"{describe_declared_inputs(workflow)}"
    )


def suggest_input(name: str, declared: Iterable[str]) -> str:
    """Return a "Did you mean" suffix with the closest input or option, or an empty string."""
    suggestion = closest_name(name, [*declared, *RUN_OPTIONS])
    return f". Did you mean --{suggestion.replace('_', '-')}?" if suggestion else ""


def describe_declared_inputs(workflow: DefinedWorkflow) -> str:
    """Return the declared inputs as one sentence."""
    descriptions = [
        f"--{name.replace('_', '-')} ({input.type}{', required' if input.required else ''})"
        for name, input in workflow.spec.inputs.items()
    ]
    return f"Inputs: {', '.join(descriptions)}." if descriptions else "The workflow declares no inputs."


def parse_cli_input_value(name: str, type: str, value: str | bool) -> Any:
    """Parse a value as the declared type."""
    if value is True:
        if type in ("boolean", "any"):
            return True
        raise UsageError(f"Input '{name}' must be {TYPE_DESCRIPTIONS[type]}: use --{name}=value.")
    assert isinstance(value, str)
    try:
        return OPTION_PARSERS[type](value)
    except ValueError:
        raise UsageError(f"Input '{name}' must be {TYPE_DESCRIPTIONS[type]}, got '{value}'.") from None
