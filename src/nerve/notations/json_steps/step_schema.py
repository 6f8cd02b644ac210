"""The schema of the step machine format: the keys of workflows and steps, and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.notations.yaml_keys import GATE_POLICY_KEYS
from nerve.project.agent_settings import STEP_SETTING_KEYS
from nerve.text.source import LocatedMap, Position

MAX_COMPARED_NAMES = 1000
"""Maximum number of names to compare for a suggestion."""
STEP_ID_PATTERN = re.compile(r"\w[\w.-]{0,127}")

WORKFLOW_SCHEMA = {
    "$schema": "text",
    "id": "name",
    "description": "text",
    "max_iterations": "whole",
    "max_duration_ms": "duration",
    "parallel": "flag",
    "initial_context": "object",
    "workspace": "workspace",
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
    "workspace": "workspace",
}
STEP_TYPE_SCHEMAS: dict[str, dict[str, str]] = {
    "agent": {
        "agent": "name",
        "input": "inputs",
        "params": "object",
        "output_schema": "object",
        "cwd": "name",
        "limits": "object",
        **dict.fromkeys(STEP_SETTING_KEYS, "setting"),
    },
    "approval": {
        "message": "text",
        "on_approve": "target",
        "on_reject": "target",
        **dict.fromkeys(GATE_POLICY_KEYS, "setting"),
    },
    "parallel": {"steps": "list", "min_success": "whole"},
    "condition": {"condition": "name", "then": "target", "else": "target"},
    "transform": {"transform": "name"},
    "merge": {"of": "name", "method": "method", "on_conflict": "on_conflict"},
}
REQUIRED_KEYS = {
    "agent": ["agent"],
    "approval": [],
    "parallel": ["steps"],
    "condition": ["condition", "then", "else"],
    "transform": ["transform"],
    "merge": ["of"],
}
ROUTE_KEYS = ["next", "on_error", "then", "else", "on_approve", "on_reject"]
"""The keys that name a next step."""


WORKSPACE_KINDS = ("shared", "worktree", "copy")
MERGE_METHODS = ("files", "ff", "squash", "rebase")
ON_CONFLICT_VALUES = ("ask", "fail")
CONTINUE_ON_REJECT = "continue"
"""Value of `on_reject` in a parallel step: the report contains the rejection."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_json_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class ValueRule(NamedTuple):
    """The rule of a value: its check, its description in messages, the fix, and its JSON Schema."""

    is_valid: Callable[[Any], bool]
    description: str
    fix: str
    schema: dict[str, Any]


VALUE_RULES = {
    "text": ValueRule(
        lambda value: isinstance(value, str), "a string", "Put it in double quotes.", {"type": "string"}
    ),
    "name": ValueRule(
        lambda value: isinstance(value, str) and bool(value.strip()),
        "a non-empty string",
        "Put it in double quotes.",
        {"type": "string", "minLength": 1},
    ),
    "id": ValueRule(
        lambda value: isinstance(value, str) and STEP_ID_PATTERN.fullmatch(value) is not None,
        "1 to 128 letters, digits, '_', '-' and '.', the first a letter, digit or '_'",
        'Write it like "a-name".',
        {"type": "string", "pattern": r"^\w[\w.\-]{0,127}$"},
    ),
    "target": ValueRule(
        lambda value: value is None or (isinstance(value, str) and bool(value)),
        "the id of a step, or null for the end",
        "Name one step.",
        {"type": ["string", "null"], "description": "The id of a step, or null for the end."},
    ),
    "continue": ValueRule(
        lambda value: value in (None, CONTINUE_ON_REJECT),
        f'"{CONTINUE_ON_REJECT}" in a parallel step',
        "Remove it to cancel the run on a rejection.",
        {"enum": [CONTINUE_ON_REJECT, None], "description": "The report contains the rejection."},
    ),
    "whole": ValueRule(
        lambda value: is_json_integer(value) and value >= 0,
        "a non-negative integer",
        "Write a number such as 3.",
        {"type": "integer", "minimum": 0},
    ),
    "attempts": ValueRule(
        lambda value: is_json_integer(value) and value >= 1,
        "the total number of attempts, at least 1 (1 means no retry)",
        "Write a number such as 3.",
        {
            "type": "integer",
            "minimum": 1,
            "description": "The total number of attempts; 1 means no retry.",
        },
    ),
    "duration": ValueRule(
        lambda value: is_number(value) and value >= 0,
        "non-negative milliseconds",
        "Write a number such as 60000 for a minute.",
        {"type": "number", "minimum": 0},
    ),
    "bound": ValueRule(
        lambda value: is_number(value) and value > 0,
        "positive milliseconds",
        "Write a number such as 60000 for a minute.",
        {"type": "number", "exclusiveMinimum": 0},
    ),
    "flag": ValueRule(
        lambda value: isinstance(value, bool),
        "true or false",
        "Write it without quotes.",
        {"type": "boolean"},
    ),
    "setting": ValueRule(lambda value: True, "a setting of an agent", "", {}),
    "list": ValueRule(
        lambda value: isinstance(value, list),
        "a list of steps",
        "Put the steps in brackets: [{…}, {…}].",
        {"type": "array", "minItems": 1},
    ),
    "object": ValueRule(
        lambda value: isinstance(value, dict), "an object", 'Write {"key": value}.', {"type": "object"}
    ),
    "workspace": ValueRule(
        lambda value: value in WORKSPACE_KINDS or isinstance(value, dict),
        "'shared', 'worktree', 'copy' or an object",
        'Write "worktree".',
        {"anyOf": [{"enum": list(WORKSPACE_KINDS)}, {"$ref": "#/$defs/WorkspaceSpec"}]},
    ),
    "method": ValueRule(
        lambda value: value in MERGE_METHODS,
        "'files', 'ff', 'squash' or 'rebase'",
        'Write "squash".',
        {"enum": list(MERGE_METHODS)},
    ),
    "on_conflict": ValueRule(
        lambda value: value in ON_CONFLICT_VALUES,
        "'ask' or 'fail'",
        'Write "ask".',
        {"enum": list(ON_CONFLICT_VALUES)},
    ),
    "inputs": ValueRule(
        lambda value: (
            isinstance(value, str)
            or (isinstance(value, list) and all(isinstance(item, str) for item in value))
        ),
        "the id of a step, or a list of ids",
        'Write "plan" or ["plan", "code"].',
        {
            "type": ["string", "array"],
            "items": {"type": "string"},
            "description": "The steps whose results are its input.",
        },
    ),
}
KEY_EXAMPLES = {
    "id": '"id": "a-name"',
    "agent": '"agent": "claude"',
    "steps": '"steps": [{…}]',
    "condition": '"condition": "context.test.success"',
    "then": '"then": "a-step" or null',
    "else": '"else": "a-step" or null',
    "transform": '"transform": "input"',
    "of": '"of": "a-step"',
}
"""Examples of required keys."""


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


def input_step_ids(step: StepSource) -> list[str]:
    input_value = step.get("input", [])
    return [input_value] if isinstance(input_value, str) else list(input_value)
