"""Inputs from the command line: `--name=value`, typed by what the workflow declares."""

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
"""Options of `nerve run` and `nerve start`, which a misspelt input may be meant to be."""
LITERAL_MARK = "\0"
"""Marks an argument that stood behind `--`; no argument of a process can have it."""


@dataclass(slots=True)
class ParsedArguments:
    """What the command line says beside its own options."""

    target: str
    input: str | None = None
    pairs: dict[str, str | bool] = field(default_factory=dict)


def parse_run_arguments(arguments: Iterable[str], named_pairs: Iterable[str] = ()) -> ParsedArguments:
    """The target, the input, and the pairs; `named` are pairs without their hyphens."""
    texts: list[str] = []
    pairs: dict[str, str | bool] = {}
    for argument in arguments:
        if argument.startswith("--"):
            add_input_pair(pairs, argument[2:], argument)
        elif argument[:1] == "-" and argument[1:2].isalpha():
            raise UsageError(f"Unknown option: {argument}. What is no option stands behind --.")
        else:
            texts.append(argument.removeprefix(LITERAL_MARK))
    for pair in named_pairs:
        add_input_pair(pairs, pair, f"--input {pair}")
    check_input_text([*texts[1:], *pairs.values()])
    if not texts:
        raise UsageError("name a workflow or a file to run.")
    if len(texts) > 2:
        raise UsageError(f"Unexpected argument: {texts[2]}. Put an input of several words in quotes.")
    return ParsedArguments(texts[0], texts[1] if len(texts) == 2 else None, pairs)


def check_input_text(values: Iterable[str | bool]) -> None:
    """Bytes that are no text come from a shell as halves of characters, which no run can be given."""
    try:
        "".join(map(str, values)).encode()
    except UnicodeEncodeError:
        raise UsageError("the input is not valid Unicode: give it as UTF-8.") from None


def add_input_pair(pairs: dict[str, str | bool], pair: str, source: str) -> None:
    name, equals, value = pair.partition("=")
    name = name.replace("-", "_")
    if not name.isidentifier():
        raise UsageError(f"{source} names no input: write --name=value.")
    if name in pairs:
        raise UsageError(f"the input '{name}' is given twice.")
    pairs[name] = value if equals else True


def parse_workflow_params(workflow: Workflow, pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    """The parameters of a run, of the declared types; UsageError for one that cannot be."""
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
        f"workflow '{workflow.name}' has no input or option '{name}'{suggestion}{full_stop} "
        f"{describe_declared_inputs(workflow)}"
    )


def suggest_input(name: str, declared: Iterable[str]) -> str:
    """Return the end of a sentence that names the closest input or option as it is written."""
    suggestion = closest_name(name, [*declared, *RUN_OPTIONS])
    return f". Did you mean --{suggestion.replace('_', '-')}?" if suggestion else ""


def describe_declared_inputs(workflow: DefinedWorkflow) -> str:
    """The declared inputs in one sentence."""
    descriptions = [
        f"--{name.replace('_', '-')} ({input.type}{', required' if input.required else ''})"
        for name, input in workflow.spec.inputs.items()
    ]
    return f"Its inputs: {', '.join(descriptions)}." if descriptions else "It declares no inputs."


def parse_cli_input_value(name: str, type: str, value: str | bool) -> Any:
    """A value of the declared type."""
    if value is True:
        if type in ("boolean", "any"):
            return True
        raise UsageError(f"the input '{name}' needs {TYPE_DESCRIPTIONS[type]}: write --{name}=value.")
    assert isinstance(value, str)
    try:
        return OPTION_PARSERS[type](value)
    except ValueError:
        raise UsageError(f"the input '{name}' must be {TYPE_DESCRIPTIONS[type]}, not '{value}'.") from None
