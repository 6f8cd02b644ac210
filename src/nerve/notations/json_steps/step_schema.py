"""The schema of the step machine format: the keys of workflows and steps, and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nerve.core.suggest import did_you_mean_hint
from nerve.spec.key_suggestions import suggest_key
from nerve.text.source import InvalidDefinition, LocatedList, LocatedMap, Position, Problem

MAX_STEP_PROBLEMS = 50
"""Parsing stops after this many problems."""
MAX_COMPARED_NAMES = 1000
"""Maximum number of names to compare for a suggestion."""
MAX_NESTING = 10
"""Maximum nesting of parallel steps."""
STEP_ID_PATTERN = re.compile(r"\w[\w.-]{0,127}")

WORKFLOW_SCHEMA = {
    "$schema": "text",
    "id": "name",
    "description": "text",
    "max_iterations": "whole",
    "max_duration_ms": "duration",
    "parallel": "flag",
    "initial_context": "object",
    "steps": "list",
}
STEP_SCHEMA = {
    "id": "id",
    "type": "text",
    "description": "text",
    "next": "target",
    "on_error": "target",
    "max_retries": "attempts",
    "retry_delay_ms": "duration",
    "timeout_ms": "bound",
}
STEP_TYPE_SCHEMAS: dict[str, dict[str, str]] = {
    "agent": {
        "agent": "name",
        "input": "inputs",
        "params": "object",
        "output_schema": "object",
        "limits": "object",
    },
    "approval": {"message": "text", "on_approve": "target", "on_reject": "target"},
    "parallel": {"steps": "list", "min_success": "whole"},
    "condition": {"condition": "name", "then": "target", "else": "target"},
    "transform": {"transform": "name"},
}
REQUIRED_KEYS = {
    "agent": ["agent"],
    "approval": [],
    "parallel": ["steps"],
    "condition": ["condition", "then", "else"],
    "transform": ["transform"],
}
ROUTE_KEYS = ["next", "on_error", "then", "else", "on_approve", "on_reject"]
"""The keys that name a next step."""


CONTINUE_ON_REJECT = "continue"
"""Value of `on_reject` in a parallel step: the report contains the rejection."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_json_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


VALUE_RULES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "text": (lambda value: isinstance(value, str), "a string", "Put it in double quotes."),
    "name": (
        lambda value: isinstance(value, str) and bool(value.strip()),
        "a non-empty string",
        "Put it in double quotes.",
    ),
    "id": (
        lambda value: isinstance(value, str) and STEP_ID_PATTERN.fullmatch(value) is not None,
        "1 to 128 letters, digits, '_', '-' and '.', the first a letter, digit or '_'",
        'Write it like "a-name".',
    ),
    "target": (
        lambda value: value is None or (isinstance(value, str) and bool(value)),
        "the id of a step, or null for the end",
        "Name one step.",
    ),
    "continue": (
        lambda value: value in (None, CONTINUE_ON_REJECT),
        f'"{CONTINUE_ON_REJECT}" in a parallel step',
        "Remove it to cancel the run on a rejection.",
    ),
    "whole": (
        lambda value: is_json_integer(value) and value >= 0,
        "a non-negative integer",
        "Write a number such as 3.",
    ),
    "attempts": (
        lambda value: is_json_integer(value) and value >= 1,
        "the total number of attempts, at least 1 (1 means no retry)",
        "Write a number such as 3.",
    ),
    "duration": (
        lambda value: is_number(value) and value >= 0,
        "non-negative milliseconds",
        "Write a number such as 60000 for a minute.",
    ),
    "bound": (
        lambda value: is_number(value) and value > 0,
        "positive milliseconds",
        "Write a number such as 60000 for a minute.",
    ),
    "flag": (lambda value: isinstance(value, bool), "true or false", "Write it without quotes."),
    "list": (
        lambda value: isinstance(value, list),
        "a list of steps",
        "Put the steps in brackets: [{…}, {…}].",
    ),
    "object": (lambda value: isinstance(value, dict), "an object", 'Write {"key": value}.'),
    "inputs": (
        lambda value: isinstance(value, str) or (isinstance(value, list) and all_strings(value)),
        "the id of a step, or a list of ids",
        'Write "plan" or ["plan", "code"].',
    ),
}
"""The check of a value, its description in messages, and the fix."""
KEY_EXAMPLES = {
    "id": '"id": "a-name"',
    "agent": '"agent": "claude"',
    "steps": '"steps": [{…}]',
    "condition": '"condition": "context.test.success"',
    "then": '"then": "a-step" or null',
    "else": '"else": "a-step" or null',
    "transform": '"transform": "input"',
}
"""Examples of required keys."""


def all_strings(values: list[Any]) -> bool:
    return all(isinstance(item, str) for item in values)


@dataclass(slots=True)
class StepDiagnostics:
    """Problems and notes of one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def add_problem(self, position: Position | None, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, position or Position(), message, fix))
        if len(self.problems) >= MAX_STEP_PROBLEMS:
            raise InvalidDefinition(self.problems)

    def add_note(self, position: Position | None, message: str) -> None:
        self.notes.append(Problem(self.file, position or Position(), message, severity="note"))


@dataclass(frozen=True, slots=True)
class StepSource:
    """A step with valid keys."""

    id: str
    type: str
    source: LocatedMap
    nested: tuple[StepSource, ...] = ()

    @property
    def position(self) -> Position | None:
        return self.source.position

    def get(self, key: str, default: Any = None) -> Any:
        return self.source.get(key, default)

    def position_of(self, key: str) -> Position | None:
        """Return the position of the value of a key, or of the step without that key."""
        return self.source.value_positions.get(key, self.source.position)

    def with_nested(self) -> Iterator[StepSource]:
        """Yield the step and its nested steps."""
        yield self
        for step in self.nested:
            yield from step.with_nested()


def limited_suggestion(name: str, names: Iterable[str]) -> str:
    """Return a suggestion, or an empty string if there are too many names to compare."""
    known = list(names)
    return did_you_mean_hint(name, known) if len(known) <= MAX_COMPARED_NAMES else ""


def drop_invalid_keys(
    diagnostics: StepDiagnostics,
    source: LocatedMap,
    keys: dict[str, str],
    what: str,
    fix: Callable[[str], str] = lambda _: "",
) -> LocatedMap:
    """Return the source with only its valid entries; report the others."""
    for key in [key for key in source if key not in keys]:
        report_unknown_key(diagnostics, source, key, keys, what, fix(key))
    valid = LocatedMap((), source.position)
    valid.key_positions, valid.value_positions = source.key_positions, source.value_positions
    for key, value in source.items():
        if key not in keys:
            continue
        is_valid, description, example = VALUE_RULES[keys[key]]
        if is_valid(value):
            valid[key] = value
            continue
        at = source.value_positions.get(key, source.key_positions.get(key, source.position))
        diagnostics.add_problem(
            at, f"'{key}' of {what} must be {description}, got {describe_json_value(value)}", example
        )
    return valid


def report_unknown_key(
    diagnostics: StepDiagnostics, source: LocatedMap, key: str, keys: Collection[str], what: str, fix: str
) -> None:
    """Report an unknown key; parsing continues with the suggested key."""
    at, message = source.key_positions.get(key, source.position), f"Unknown key '{key}' in {what}"
    if fix or (word := suggest_key(key, keys)) is None:
        diagnostics.add_problem(at, message, fix or f"Valid keys: {', '.join(keys)}.")
        return
    diagnostics.add_problem(at, f"{message}. Did you mean '{word}'?")
    if word not in source:
        source.set_at(word, source[key], source.value_positions.get(key, at))


def describe_json_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value[:40]}'"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return str(value)


def parse_steps(
    diagnostics: StepDiagnostics, source: LocatedMap, what: str, depth: int = 0
) -> tuple[StepSource, ...]:
    """Parse the steps of a workflow or a parallel step."""
    items = source.get("steps")
    if not isinstance(items, LocatedList):
        return ()
    if not items:
        diagnostics.add_problem(items.position, f"No steps in {what}", "Add at least one step.")
    if depth > MAX_NESTING:
        message = f"Parallel steps are nested deeper than {MAX_NESTING} levels"
        diagnostics.add_problem(items.position, message, "Call a workflow instead.")
        return ()
    steps = []
    for index, item in enumerate(items):
        if isinstance(item, LocatedMap):
            steps.append(parse_step(diagnostics, item, index, depth))
        else:
            at = items.value_positions.get(index, items.position)
            diagnostics.add_problem(
                at,
                f"A step must be an object, got {describe_json_value(item)}",
                'Write {"id": …, "type": …}.',
            )
    return tuple(step for step in steps if step is not None)


def parse_step(diagnostics: StepDiagnostics, source: LocatedMap, index: int, depth: int) -> StepSource | None:
    id = source.get("id")
    what = f"step '{id}'" if isinstance(id, str) else f"step {index + 1}"
    type = source.get("type")
    if not isinstance(type, str) or type not in STEP_TYPE_SCHEMAS:
        report_unknown_type(diagnostics, source, what)
        return None
    keys = step_keys(type, depth)
    if depth:
        keys |= {key: "target" for key in ROUTE_KEYS if key in source and source[key] is None}
    valid = drop_invalid_keys(
        diagnostics, source, keys, f"{what} of type {type}", lambda key: misplaced_key_fix(key, type, depth)
    )
    if missing := [key for key in ["id", *REQUIRED_KEYS[type]] if key not in source and key in keys]:
        message = f"Missing {' and '.join(map(repr, missing))} in {what} of type {type}"
        diagnostics.add_problem(
            source.position, message, f"Add {', '.join(KEY_EXAMPLES[key] for key in missing)}."
        )
    nested = parse_steps(diagnostics, valid, what, depth + 1)
    min_success = valid.get("min_success", 0)
    if min_success > len(nested) > 0:
        message = f"min_success of {what} is {min_success}, of {len(nested)} steps"
        diagnostics.add_problem(valid.value_positions.get("min_success"), message, "Lower it.")
    return StepSource(valid["id"], type, valid, nested) if "id" in valid else None


def step_keys(type: str, depth: int) -> dict[str, str]:
    """Return the keys of a step; a step in a parallel step has no route keys, except with null."""
    without = ROUTE_KEYS if depth else ["next"] if type == "condition" else []
    keys = {key: rule for key, rule in (STEP_SCHEMA | STEP_TYPE_SCHEMAS[type]).items() if key not in without}
    return keys | {"on_reject": "continue"} if depth and type == "approval" else keys


MISPLACED_KEY_FIXES = {
    ("condition", "next"): "Route a condition with 'then' and 'else'.",
    ("agent", "prompt"): "Put the prompt in the agent file; the agent gets the input and the results.",
}
"""Fixes for keys that are often used in a step type that does not have them."""


def misplaced_key_fix(key: str, type: str, depth: int) -> str:
    if depth and key in ROUTE_KEYS:
        return "A step in a parallel step has no routes: set the route of the parallel step."
    return MISPLACED_KEY_FIXES.get((type, key), "")


def report_unknown_type(diagnostics: StepDiagnostics, source: LocatedMap, what: str) -> None:
    types = f"Valid types: {', '.join(STEP_TYPE_SCHEMAS)}."
    if "type" not in source:
        close = next((key for key in source if suggest_key(key, ["type"])), None)
        if close is not None:
            report_unknown_key(diagnostics, source, close, ["type"], what, "")
        else:
            diagnostics.add_problem(source.position, f"Missing 'type' in {what}", types)
        return
    type, at = source["type"], source.value_positions.get("type", source.position)
    close = limited_suggestion(type, STEP_TYPE_SCHEMAS) if isinstance(type, str) else ""
    diagnostics.add_problem(
        at, f"Unknown step type: {describe_json_value(type).strip(chr(39))}{close}", types
    )


def check_source_step_ids(diagnostics: StepDiagnostics, steps: Iterable[StepSource]) -> dict[str, StepSource]:
    """Return all steps by id, including nested steps; report duplicate ids."""
    known: dict[str, StepSource] = {}
    for top in steps:
        for step in top.with_nested():
            if first := known.get(step.id):
                line = (first.position_of("id") or Position()).line
                message = f"Duplicate step id '{step.id}'; the first is on line {line}"
                diagnostics.add_problem(step.position_of("id"), message, "Rename one of them.")
            known.setdefault(step.id, step)
    return known


def check_step_inputs(diagnostics: StepDiagnostics, known: dict[str, StepSource]) -> None:
    """Report inputs that name an unknown step or a reserved name."""
    for step in known.values():
        for index, name in enumerate(input_step_ids(step)):
            input_value = step.get("input")
            at = (
                input_value.value_positions.get(index, input_value.position)
                if isinstance(input_value, LocatedList)
                else step.position_of("input")
            )
            if name not in known:
                close = limited_suggestion(name, known)
                fix = "" if close else f"Steps: {', '.join(list(known)[:MAX_COMPARED_NAMES])}."
                diagnostics.add_problem(
                    at, f"'input' of step '{step.id}' names the unknown step '{name}'{close}", fix
                )
            elif name in ("input", "context"):
                diagnostics.add_problem(
                    at, f"A step with the reserved id '{name}' cannot be an input", "Give it another id."
                )


def input_step_ids(step: StepSource) -> list[str]:
    input_value = step.get("input", [])
    return [input_value] if isinstance(input_value, str) else list(input_value)
