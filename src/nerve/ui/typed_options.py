"""The options of a workflow: conversion of text to the declared types before the run starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nerve.api.models import InputResponse, WorkflowResponse
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.suggest import did_you_mean_hint

BOOLEAN_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TYPE_DESCRIPTIONS = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "a JSON list",
    "object": "a JSON object",
    "any": "any value",
}


class InvalidOption(ValueError):
    """An unknown, missing or invalid option; the message says how to fix it."""


def parse_workflow_options(
    options: Mapping[str, Any], workflow: WorkflowResponse, command_options: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the parameters of a run in their declared types; raise InvalidOption for an invalid option.

    The message for an unknown option may suggest one of the options of the command.
    """
    declared = {workflow_input.name: workflow_input for workflow_input in workflow.inputs}
    if not declared and workflow.kind not in NOTATION_NAMES:
        return {name: parse_json_or_text(value) for name, value in options.items()}
    for name in options:
        if name not in declared:
            raise InvalidOption(unknown_workflow_option_message(name, workflow, command_options))
    params = {name: parse_option_value(declared[name], value) for name, value in options.items()}
    for name, workflow_input in declared.items():
        if workflow_input.required and name not in params:
            raise InvalidOption(
                f"'{workflow.id}' requires --{format_option_name(name)} ({workflow_input.type}). "
                f"{describe_options(workflow)}"
            )
    return params


def unknown_workflow_option_message(
    name: str, workflow: WorkflowResponse, command_options: Iterable[str] = ()
) -> str:
    known = [*(workflow_input.name for workflow_input in workflow.inputs), *command_options]
    close = did_you_mean_hint(name, known)
    period = "" if close.endswith("?") else "."
    return f"'{workflow.id}' has no option '{name}'{close}{period} {describe_options(workflow)}"


def describe_options(workflow: WorkflowResponse) -> str:
    """Describe the declared inputs in one sentence."""
    descriptions = [
        f"--{format_option_name(workflow_input.name)} ({describe_option_type(workflow_input)})"
        for workflow_input in workflow.inputs
    ]
    return f"Options: {', '.join(descriptions)}." if descriptions else "The workflow has no options."


def describe_option_type(input: InputResponse) -> str:
    return input.type + (", required" if input.required else "")


def format_option_name(name: str) -> str:
    return name.replace("_", "-")


def parse_option_value(input: InputResponse, value: Any) -> Any:
    """Convert a text or referenced value to the declared type and check the choices."""
    parsed = convert_option_value(input, value)
    if input.choices is not None and parsed not in input.choices:
        known = ", ".join(map(str, input.choices))
        raise InvalidOption(f"--{format_option_name(input.name)} must be one of {known}, got '{value}'.")
    return parsed


def convert_option_value(input: InputResponse, value: Any) -> Any:
    name, type = format_option_name(input.name), input.type
    if value is True and type not in ("boolean", "any"):
        raise InvalidOption(f"--{name} requires {TYPE_DESCRIPTIONS[type]}: write --{name}=value.")
    if not isinstance(value, str | bool):
        value = json.dumps(value, ensure_ascii=False)
    try:
        return OPTION_PARSERS[type](value) if isinstance(value, str) else value
    except ValueError:
        shortened = value if len(value) <= 60 else f"{value[:60]}…"
        raise InvalidOption(f"--{name} must be {TYPE_DESCRIPTIONS[type]}, got '{shortened}'.") from None


def parse_boolean_option(value: str) -> bool:
    if value.lower() not in BOOLEAN_WORDS:
        raise ValueError(value)
    return BOOLEAN_WORDS[value.lower()]


def parse_number_option(value: str) -> float:
    parsed: Any = parse_finite_json(value)
    if isinstance(parsed, bool) or not isinstance(parsed, int | float):
        raise ValueError(value)
    return parsed


def parse_integer_option(value: str) -> int:
    parsed = parse_number_option(value)
    if parsed != int(parsed):
        raise ValueError(value)
    return int(parsed)


def make_json_parser(kind: type) -> Callable[[str], Any]:
    def parse(value: str) -> Any:
        parsed = parse_finite_json(value)
        if not isinstance(parsed, kind):
            raise ValueError(value)
        return parsed

    return parse


def parse_json_or_text(value: Any) -> Any:
    """Parse JSON; return the text if it is not valid JSON."""
    try:
        return parse_finite_json(value) if isinstance(value, str) else value
    except ValueError:
        return value


def parse_finite_json(value: str) -> Any:
    """Parse JSON without NaN and infinity."""

    def reject(constant: str) -> Any:
        raise ValueError(constant)

    try:
        parsed = json.loads(value, parse_constant=reject)
    except RecursionError:
        raise ValueError(value) from None
    if parsed in (float("inf"), float("-inf")):
        raise ValueError(value)
    return parsed


OPTION_PARSERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "number": parse_number_option,
    "integer": parse_integer_option,
    "boolean": parse_boolean_option,
    "array": make_json_parser(list),
    "object": make_json_parser(dict),
    "any": parse_json_or_text,
}
