"""Shared parsing of the YAML forms: located values, keys and problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from nerve.core.suggest import did_you_mean_hint
from nerve.spec.key_suggestions import describe_unknown_key, suggest_key
from nerve.text.source import LocatedList, LocatedMap, Position, Problem

WORKFLOW_KEYS = ("name", "description", "provider", "model", "inputs", "limits", "context", "metadata")
NODE_KEYS = ("description", "when", "retry", "timeout", "idle_timeout", "on_error", "effect", "expect")
AGENT_KEYS = (
    *("provider", "model", "agent", "role", "thread", "args", "output_schema", "permissions"),
    *("tools", "max_turns", "fallback", "limits"),
)
INPUT_TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")
DEFAULT_PROVIDER = "claude"


class YamlDiagnostics:
    """Collects the problems of one document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []

    def add(self, position: Position | None, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, position or Position(), message, fix))

    def check_keys(
        self, source: LocatedMap, known: Collection[str], hints: dict[str, str] | None = None
    ) -> None:
        """Report unknown keys; parsing continues with the suggested keys."""
        for key in [key for key in source if key not in known]:
            position, hint = source.key_positions.get(key), (hints or {}).get(key)
            if hint is not None:
                self.add(position, f"Unknown key '{key}'", hint)
                continue
            self.add(position, *describe_unknown_key(key, known))
            if (word := suggest_key(key, known)) is not None and word not in source:
                put_from_origin(source, word, source[key], source, key)
                del source[key]

    def require_text(self, source: LocatedMap, key: str, fix: str) -> str | None:
        """Return a required non-empty string, or None after adding a problem."""
        value = source.get(key)
        if key not in source:
            self.add(source.position, f"'{key}' is missing", fix)
        elif not isinstance(value, str):
            self.add(
                value_position(source, key),
                f"'{key}' must be a string, got {describe_yaml_value(value)}",
                fix,
            )
        elif not value.strip():
            self.add(value_position(source, key), f"'{key}' is empty", fix)
        else:
            return value
        return None


def value_position(source: LocatedMap, key: str) -> Position | None:
    """Return the position of the value of a key."""
    return getattr(source.get(key), "position", None) or source.value_positions.get(key) or source.position


def copy_values(source: LocatedMap, target: LocatedMap, keys: Iterable[str]) -> None:
    """Copy values unchanged, with their positions."""
    for key in keys:
        if key in source:
            put_from_origin(target, key, source[key], source, key)


def put_from_origin(target: LocatedMap, key: str, value: Any, source: LocatedMap, origin: str) -> None:
    """Set a value with the position of the source key it derives from."""
    target.set_at(key, value, source.value_positions.get(origin) or value_position(source, origin))
    if origin in source.key_positions:
        target.key_positions[key] = source.key_positions[origin]


def describe_yaml_value(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def read_header(diagnostics: YamlDiagnostics, source: LocatedMap) -> LocatedMap:
    """Read the keys that every workflow has."""
    data = LocatedMap((), source.position)
    diagnostics.require_text(source, "name", "Add a name: letters, digits, '-' and '_'.")
    diagnostics.require_text(source, "description", "Say what the workflow does, and when to use it.")
    for key in ("provider", "model"):
        if source.get(key) is not None:
            diagnostics.require_text(source, key, f"Name a {key}, or remove the line.")
    copied_keys = [key for key in WORKFLOW_KEYS if key != "inputs" and source.get(key) is not None]
    copy_values(source, data, copied_keys)
    data.setdefault("provider", DEFAULT_PROVIDER)
    if source.get("inputs") is not None:
        put_from_origin(data, "inputs", read_declared_inputs(diagnostics, source), source, "inputs")
    return data


def read_declared_inputs(diagnostics: YamlDiagnostics, source: LocatedMap) -> Any:
    """Return the declared inputs; an input may be declared by its type alone."""
    raw_inputs = source["inputs"]
    if not isinstance(raw_inputs, LocatedMap):
        fix = "Write 'name: string', one per line, or 'name:' with type, description, required and default."
        diagnostics.add(
            value_position(source, "inputs"),
            f"'inputs' must be a mapping, got {describe_yaml_value(raw_inputs)}",
            fix,
        )
        return LocatedMap()
    inputs = LocatedMap((), raw_inputs.position)
    for name, value in raw_inputs.items():
        declaration = value
        if value is None or (isinstance(value, str) and value in INPUT_TYPES):
            declaration = LocatedMap(
                {} if value is None else {"type": value}, value_position(raw_inputs, name)
            )
        elif not isinstance(value, LocatedMap):
            close = did_you_mean_hint(value, INPUT_TYPES) if isinstance(value, str) else ""
            message = (
                f"The input '{name}' must be a type or a mapping, got {describe_yaml_value(value)}{close}"
            )
            diagnostics.add(
                value_position(raw_inputs, name),
                message,
                "" if close else f"Types: {', '.join(INPUT_TYPES)}.",
            )
        put_from_origin(inputs, name, declaration, raw_inputs, name)
    return inputs


def put_policies(diagnostics: YamlDiagnostics, source: LocatedMap, target: LocatedMap) -> None:
    """Copy the policies of a step, with short forms expanded."""
    for key in NODE_KEYS:
        value = source.get(key)
        if value is None or key == "on_error":
            continue
        match key, value:
            case "retry", int() if not isinstance(value, bool):
                value = LocatedMap({"attempts": value}, value_position(source, key))
            case "retry", _ if not isinstance(value, LocatedMap):
                message = (
                    f"'retry' must be a number of attempts or a mapping, got {describe_yaml_value(value)}"
                )
                diagnostics.add(value_position(source, key), message, "Write 'retry: 3'.")
                continue
            case "when", bool():
                value = str(value).lower()
            case "expect", _:
                value = read_expectations(diagnostics, source)
        put_from_origin(target, key, value, source, key)


def read_expectations(diagnostics: YamlDiagnostics, source: LocatedMap) -> LocatedList:
    """Return the expectations of a step; a string names a file in the artifacts of the run."""
    raw = source["expect"]
    position = value_position(source, "expect")
    items = raw if isinstance(raw, LocatedList) else LocatedList().append_at(raw, position)
    expectations = LocatedList((), position)
    for number, item in enumerate(items):
        where = getattr(item, "position", None) or items.value_positions.get(number) or position
        if isinstance(item, str):
            if reason := explain_outside_path(item):
                diagnostics.add(
                    where, f"The file {item!r} {reason}", "Name a file in the artifacts of the run."
                )
            item = LocatedMap({"file": "{{ run.artifacts }}/" + item}, where)
        elif not isinstance(item, LocatedMap):
            fix = "Write a file name, or a mapping with file, command, condition or schema."
            diagnostics.add(
                where, f"'expect' must be a file or a check, got {describe_yaml_value(item)}", fix
            )
        expectations.append_at(item, where)
    return expectations


def explain_outside_path(name: str) -> str:
    """Return why a file name is not inside its folder, or an empty string."""
    parts = re.split(r"[/\\]", name)
    if not name.strip() or len(name) > 512:
        return "must have 1 to 512 characters"
    if name[0] in "/\\~" or ".." in parts or re.match(r"[A-Za-z]:", name):
        return "leads out of the artifacts"
    return ""


def step_slug(name: str) -> str:
    """Return a name as an id: letters, digits, '_' and '-', starting with a letter."""
    result = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    return result if result[:1].isalpha() else f"step-{result}".rstrip("-")


ItemReader = Callable[[Any, Position | None], LocatedMap]


def read_list_workflow(
    diagnostics: YamlDiagnostics, source: LocatedMap, key: str, kind: str, item: ItemReader, fix: str
) -> LocatedMap:
    """Return the spec of a workflow whose body is the list under a key."""
    data = read_header(diagnostics, source)
    body = LocatedMap({"kind": kind}, source.key_positions.get(key) or source.position)
    put_from_origin(body, "steps", read_items(diagnostics, source, key, item, fix), source, key)
    return data.set_at("body", body, body.position)


def read_items(
    diagnostics: YamlDiagnostics, source: LocatedMap, key: str, item: ItemReader, fix: str
) -> LocatedList:
    """Return the nodes of the list under a key; `fix` shows how to write one."""
    raw, position = source.get(key), value_position(source, key)
    steps = LocatedList((), position)
    if isinstance(raw, LocatedMap) and raw:
        first = next(iter(raw)).lstrip("-")
        message = f"'{key}' must be a list, got a mapping"
        diagnostics.add(position, message, f"Write '- {first}', with a dash and a space before each.")
        return steps
    if not isinstance(raw, LocatedList) or not raw:
        what = "is empty" if raw in (None, []) else f"must be a list, got {describe_yaml_value(raw)}"
        diagnostics.add(position, f"'{key}' {what if key in source else 'is missing'}", fix)
        return steps
    for number, entry in enumerate(raw):
        where = getattr(entry, "position", None) or raw.value_positions.get(number)
        steps.append_at(item(entry, where), where)
    return steps
