"""The options of a workflow: conversion of text to the declared types before the run starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nerve.api.models import InputResponse, WorkflowResponse
from nerve.core.json_schema import (
    FORMAT_EXAMPLES,
    find_validation_error,
    matches_format,
    reduce_field_schema,
)
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.suggest import did_you_mean_hint
from nerve.text import clip_text
from nerve.ui.formatting import format_value

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


CHECKED_KEYWORDS = {"type", "format", "enum", "const", "default", "description", "title"}
"""Keywords of a schema that the conversion of an option from text checks, or that check nothing."""


class InvalidOption(ValueError):
    """An unknown, missing or invalid option; the message says how to fix it."""


def parse_workflow_options(
    options: Mapping[str, Any],
    workflow: WorkflowResponse,
    command_options: Iterable[str] = (),
    has_input: bool = False,
) -> dict[str, Any]:
    """Return the parameters of a run in their declared types; raise InvalidOption for an invalid option.

    The message for an unknown option may suggest one of the options of the command. With `has_input`, the
    fields of the input may be missing.
    """
    if takes_any_option(workflow):
        return {name: parse_json_or_text(value) for name, value in options.items()}
    if (unknown := find_unknown_option(options, workflow, command_options)) is not None:
        raise InvalidOption(unknown)
    declared = {workflow_input.name: workflow_input for workflow_input in workflow.inputs}
    params = {name: parse_option_value(declared[name], value) for name, value in options.items()}
    for name, value in params.items():
        check_option_schema(name, value, find_option_schema(workflow, name))
    for name, workflow_input in declared.items():
        is_given = name in params or (has_input and is_part_of_input(workflow, name))
        if workflow_input.required and not is_given:
            raise InvalidOption(
                f"'{workflow.id}' requires {format_option(name, command_options)}"
                f" ({workflow_input.format or workflow_input.type})."
                f" {describe_options(workflow, command_options)}"
            )
    return params


def is_part_of_input(workflow: WorkflowResponse, name: str) -> bool:
    """Return whether an option is the input of the run, or a field of it, and not a parameter."""
    return workflow.input_schema is not None and name not in (workflow.params_schema or {})["properties"]


def find_option_schema(workflow: WorkflowResponse, name: str) -> Mapping[str, Any]:
    """Return the JSON Schema of an option; {} if the workflow does not have one."""
    if not is_part_of_input(workflow, name):
        schema: Mapping[str, Any] = workflow.params_schema or {}
    elif name not in (schema := reduce_field_schema(workflow.input_schema or {})).get("properties", {}):
        return schema
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {**schema.get("properties", {}).get(name, {}), **definitions}


def check_option_schema(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Raise InvalidOption if a value of the right JSON type breaks another rule of its schema."""
    if set(schema) <= CHECKED_KEYWORDS:  # validation needs imports that take long
        return
    if problem := find_validation_error(value, schema):
        raise InvalidOption(f"--{format_option_name(name)} is invalid: {problem}.")


def takes_any_option(workflow: WorkflowResponse) -> bool:
    """Return whether the workflow is Python code that declares no inputs."""
    return not workflow.inputs and workflow.kind not in NOTATION_NAMES


def find_unknown_option(
    options: Iterable[str], workflow: WorkflowResponse, command_options: Iterable[str] = ()
) -> str | None:
    """Return the message for the first option that the workflow does not declare, or None."""
    declared = {workflow_input.name for workflow_input in workflow.inputs}
    unknown = next((name for name in options if name not in declared), None)
    if unknown is None or takes_any_option(workflow):
        return None
    return unknown_workflow_option_message(unknown, workflow, command_options)


def unknown_workflow_option_message(
    name: str, workflow: WorkflowResponse, command_options: Iterable[str] = ()
) -> str:
    known = [*(workflow_input.name for workflow_input in workflow.inputs), *command_options]
    close = did_you_mean_hint(name, known)
    if name == "branch" and not close:
        command = f"nerve start {workflow.id} --branch NAME"
        return f"'{workflow.id}' has no option 'branch'. To name the branch of its workspace: {command}"
    period = "" if close.endswith("?") else "."
    return (
        f"'{workflow.id}' has no option '{name}'{close}{period} {describe_options(workflow, command_options)}"
    )


def describe_options(workflow: WorkflowResponse, command_options: Iterable[str] = ()) -> str:
    """Describe the declared inputs in one sentence."""
    descriptions = [
        f"{format_option(workflow_input.name, command_options)} ({describe_option_type(workflow_input)})"
        for workflow_input in workflow.inputs
    ]
    return f"Options: {', '.join(descriptions)}." if descriptions else "The workflow has no options."


def describe_option_type(input: InputResponse) -> str:
    return (input.format or input.type) + (", required" if input.required else "")


def describe_option_lines(workflow: WorkflowResponse, command_options: Iterable[str] = ()) -> list[str]:
    """Return a line for each declared input: the option, its type, choices, default and description."""
    names = [format_option(declared.name, command_options) for declared in workflow.inputs]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {describe_option_type(declared)}{describe_option_details(declared)}"
        for name, declared in zip(names, workflow.inputs, strict=True)
    ]


def describe_option_details(input: InputResponse) -> str:
    choices = f", one of {', '.join(map(format_value, input.choices))}" if input.choices else ""
    default = f", default {format_value(input.default)}" if input.default is not None else ""
    description = " ".join(input.description.split())
    return choices + default + (f": {description}" if description else "")


def format_option(name: str, command_options: Iterable[str] = ()) -> str:
    """Return how an option is written; one that the command has, too, goes through `--input`."""
    return f"--input {name}=…" if name in command_options else f"--{format_option_name(name)}"


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
        parsed = OPTION_PARSERS[type](value) if isinstance(value, str) else value
        if isinstance(parsed, str) and not matches_format(parsed, input.format):
            raise ValueError(parsed)
    except ValueError:
        expected = TYPE_DESCRIPTIONS[type]
        if (example := FORMAT_EXAMPLES.get(input.format)) is not None:
            expected = f"a {input.format} such as {example}"
        raise InvalidOption(f"--{name} must be {expected}, got '{clip_text(value, 60)}'.") from None
    return parsed


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
