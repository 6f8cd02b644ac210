"""The options of a workflow: texts made values of the types that it declares, before anything starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nerve.api.models import InputTold, WorkflowTold
from nerve.core.suggest import suggest
from nerve.written import NAMES

BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TYPES = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a JSON list",
    "object": "a JSON object",
    "any": "anything",
}


class Unfit(ValueError):
    """An option that a workflow does not take; the message is a sentence with the fix."""


def typed(options: Mapping[str, Any], workflow: WorkflowTold) -> dict[str, Any]:
    """The parameters of a run, of the declared types; Unfit for one that is wrong, unknown or missing."""
    declared = {each.name: each for each in workflow.inputs}
    if not declared and workflow.kind not in NAMES:
        return {name: anything(value) for name, value in options.items()}
    for name in options:
        if name not in declared:
            raise Unfit(unknown(name, workflow))
    params = {name: value_of(declared[name], value) for name, value in options.items()}
    for name, each in declared.items():
        if each.required and name not in params:
            raise Unfit(f"'{workflow.id}' needs --{shown(name)} ({each.type}). {inputs_of(workflow)}")
    return params


def unknown(name: str, workflow: WorkflowTold) -> str:
    close = suggest(name, [each.name for each in workflow.inputs])
    stop = "" if close.endswith("?") else "."
    return f"'{workflow.id}' has no option '{name}'{close}{stop} {inputs_of(workflow)}"


def inputs_of(workflow: WorkflowTold) -> str:
    """The declared inputs in one sentence."""
    told = [f"--{shown(each.name)} ({about(each)})" for each in workflow.inputs]
    return f"Its options: {', '.join(told)}." if told else "It has no options."


def about(input: InputTold) -> str:
    return input.type + (", required" if input.required else "")


def shown(name: str) -> str:
    return name.replace("_", "-")


def value_of(input: InputTold, value: Any) -> Any:
    """A value of the declared type, from a text or from a value that a reference gave."""
    made = read(input, value)
    if input.choices is not None and made not in input.choices:
        known = ", ".join(map(str, input.choices))
        raise Unfit(f"--{shown(input.name)} must be one of {known}, not '{value}'.")
    return made


def read(input: InputTold, value: Any) -> Any:
    name, type = shown(input.name), input.type
    if value is True and type not in ("boolean", "any"):
        raise Unfit(f"--{name} needs {TYPES[type]}: write --{name}=value.")
    if not isinstance(value, str | bool):
        value = json.dumps(value, ensure_ascii=False)
    try:
        return READ[type](value) if isinstance(value, str) else value
    except ValueError:
        short = value if len(value) <= 60 else f"{value[:60]}…"
        raise Unfit(f"--{name} must be {TYPES[type]}, not '{short}'.") from None


def boolean(value: str) -> bool:
    if value.lower() not in BOOLEANS:
        raise ValueError(value)
    return BOOLEANS[value.lower()]


def number(value: str) -> float:
    made: Any = plain_json(value)
    if isinstance(made, bool) or not isinstance(made, int | float):
        raise ValueError(value)
    return made


def whole(value: str) -> int:
    made = number(value)
    if made != int(made):
        raise ValueError(value)
    return int(made)


def of_kind(kind: type) -> Callable[[str], Any]:
    def read(value: str) -> Any:
        made = plain_json(value)
        if not isinstance(made, kind):
            raise ValueError(value)
        return made

    return read


def anything(value: Any) -> Any:
    """JSON if it is JSON, else the text."""
    try:
        return plain_json(value) if isinstance(value, str) else value
    except ValueError:
        return value


def plain_json(value: str) -> Any:
    """JSON proper: neither NaN nor infinity."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    try:
        made = json.loads(value, parse_constant=refuse)
    except RecursionError:
        raise ValueError(value) from None
    if made in (float("inf"), float("-inf")):
        raise ValueError(value)
    return made


READ: dict[str, Callable[[str], Any]] = {
    "string": str,
    "number": number,
    "integer": whole,
    "boolean": boolean,
    "array": of_kind(list),
    "object": of_kind(dict),
    "any": anything,
}
