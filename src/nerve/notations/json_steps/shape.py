"""The shape of the dialect: which keys a workflow and its steps have, and what each of them takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nerve.core.suggest import suggest
from nerve.spec.meant import meant
from nerve.spec.source import Map, Place, Problem, Seq, Unreadable

TOLD = 50
"""Problems that are collected before reading stops."""
NAMES = 1000
"""Names among which a misspelt one is looked for."""
NESTED = 10
"""How deep parallel steps may stand in parallel steps."""
ID = re.compile(r"\w[\w.-]{0,127}")

WORKFLOW = {
    "$schema": "text",
    "id": "name",
    "description": "text",
    "max_iterations": "whole",
    "max_duration_ms": "duration",
    "parallel": "flag",
    "initial_context": "object",
    "steps": "list",
}
STEP = {
    "id": "id",
    "type": "text",
    "description": "text",
    "next": "target",
    "on_error": "target",
    "max_retries": "attempts",
    "retry_delay_ms": "duration",
    "timeout_ms": "bound",
}
TYPES: dict[str, dict[str, str]] = {
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
NEEDED = {
    "agent": ["agent"],
    "approval": [],
    "parallel": ["steps"],
    "condition": ["condition", "then", "else"],
    "transform": ["transform"],
}
ROUTES = ["next", "on_error", "then", "else", "on_approve", "on_reject"]
"""The keys that name a step to go on with."""


CONTINUE = "continue"
"""What `on_reject` of an approval in a parallel step may say: the report has the rejection."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TAKES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "text": (lambda value: isinstance(value, str), "a text", "Put it in double quotes."),
    "name": (
        lambda value: isinstance(value, str) and bool(value.strip()),
        "a text that is not empty",
        "Put it in double quotes.",
    ),
    "id": (
        lambda value: isinstance(value, str) and ID.fullmatch(value) is not None,
        "1 to 128 letters, digits, '_', '-' and '.', the first a letter, digit or '_'",
        'Write it like "a-name".',
    ),
    "target": (
        lambda value: value is None or (isinstance(value, str) and bool(value)),
        "the id of a step, or null for the end",
        "Name one step.",
    ),
    "continue": (
        lambda value: value in (None, CONTINUE),
        f'"{CONTINUE}" in a parallel step',
        "Leave it out to cancel the run on a rejection.",
    ),
    "whole": (
        lambda value: is_whole(value) and value >= 0,
        "a whole number that is not negative",
        "Write a number such as 3.",
    ),
    "attempts": (
        lambda value: is_whole(value) and value >= 1,
        "the number of attempts in all, at least 1 (1 is no retry)",
        "Write a number such as 3.",
    ),
    "duration": (
        lambda value: is_number(value) and value >= 0,
        "milliseconds, not negative",
        "Write a number such as 60000, a minute.",
    ),
    "bound": (
        lambda value: is_number(value) and value > 0,
        "milliseconds, more than 0",
        "Write a number such as 60000, a minute.",
    ),
    "flag": (lambda value: isinstance(value, bool), "true or false", "Write it without quotes."),
    "list": (
        lambda value: isinstance(value, list),
        "a list of steps",
        "Put the steps in brackets: [{…}, {…}].",
    ),
    "object": (lambda value: isinstance(value, dict), "an object", 'Write {"key": value}.'),
    "inputs": (
        lambda value: isinstance(value, str) or (isinstance(value, list) and all_text(value)),
        "the id of a step, or a list of ids",
        'Write "plan" or ["plan", "code"].',
    ),
}
"""What a value must be, how that is said, and how one is written."""
ADD = {
    "id": '"id": "a-name"',
    "agent": '"agent": "claude"',
    "steps": '"steps": [{…}]',
    "condition": '"condition": "context.test.success"',
    "then": '"then": "a-step" or null',
    "else": '"else": "a-step" or null',
    "transform": '"transform": "input"',
}
"""How a key is written that must be there."""


def all_text(values: list[Any]) -> bool:
    return all(isinstance(item, str) for item in values)


@dataclass(slots=True)
class Told:
    """What is said about one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def error(self, place: Place | None, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, place or Place(), message, fix))
        if len(self.problems) >= TOLD:
            raise Unreadable(self.problems)

    def note(self, place: Place | None, message: str) -> None:
        self.notes.append(Problem(self.file, place or Place(), message, severity="note"))


@dataclass(frozen=True, slots=True)
class Step:
    """A step whose shape is right."""

    id: str
    type: str
    source: Map
    nested: tuple[Step, ...] = ()

    @property
    def place(self) -> Place | None:
        return self.source.place

    def get(self, key: str, default: Any = None) -> Any:
        return self.source.get(key, default)

    def at(self, key: str) -> Place | None:
        """Where the value of a key stands, or the step if it has no such key."""
        return self.source.values_at.get(key, self.source.place)

    def all(self) -> Iterator[Step]:
        """The step, and those in it."""
        yield self
        for step in self.nested:
            yield from step.all()


def near(name: str, names: Iterable[str]) -> str:
    """What may have been meant, if there are not too many names to look at."""
    known = list(names)
    return suggest(name, known) if len(known) <= NAMES else ""


def fit(
    told: Told, source: Map, keys: dict[str, str], what: str, fix: Callable[[str], str] = lambda _: ""
) -> Map:
    """The source with only what is right about it; the rest is told."""
    for key in [key for key in source if key not in keys]:
        unknown_key(told, source, key, keys, what, fix(key))
    made = Map((), source.place)
    made.keys_at, made.values_at = source.keys_at, source.values_at
    for key, value in source.items():
        if key not in keys:
            continue
        right, words, example = TAKES[keys[key]]
        if right(value):
            made[key] = value
            continue
        at = source.values_at.get(key, source.keys_at.get(key, source.place))
        told.error(at, f"'{key}' of {what} must be {words}, not {shown(value)}", example)
    return made


def unknown_key(told: Told, source: Map, key: str, keys: Collection[str], what: str, fix: str) -> None:
    """Tell of a key, and read on as if it were the one that was meant."""
    at, message = source.keys_at.get(key, source.place), f"{what} has no key '{key}'"
    if fix or (word := meant(key, keys)) is None:
        told.error(at, message, fix or f"Its keys: {', '.join(keys)}.")
        return
    told.error(at, f"{message}. Did you mean '{word}'?")
    if word not in source:
        source.put(word, source[key], source.values_at.get(key, at))


def shown(value: Any) -> str:
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


def steps_of(told: Told, source: Map, what: str, depth: int = 0) -> tuple[Step, ...]:
    """The steps of a workflow or of a parallel step."""
    found = source.get("steps")
    if not isinstance(found, Seq):
        return ()
    if not found:
        told.error(found.place, f"{what} has no steps", "Give it at least one.")
    if depth > NESTED:
        message = f"parallel steps stand deeper than {NESTED} levels in each other"
        told.error(found.place, message, "Call a workflow instead.")
        return ()
    made = []
    for index, item in enumerate(found):
        if isinstance(item, Map):
            made.append(step_of(told, item, index, depth))
        else:
            at = found.values_at.get(index, found.place)
            told.error(at, f"a step is an object, not {shown(item)}", 'Write {"id": …, "type": …}.')
    return tuple(step for step in made if step is not None)


def step_of(told: Told, source: Map, index: int, depth: int) -> Step | None:
    id = source.get("id")
    what = f"step '{id}'" if isinstance(id, str) else f"step {index + 1}"
    type = source.get("type")
    if not isinstance(type, str) or type not in TYPES:
        unknown_type(told, source, what)
        return None
    keys = keys_of(type, depth)
    if depth:
        keys |= {key: "target" for key in ROUTES if key in source and source[key] is None}
    made = fit(told, source, keys, f"{what} of type {type}", lambda key: out_of_place(key, type, depth))
    if lacking := [key for key in ["id", *NEEDED[type]] if key not in source and key in keys]:
        message = f"{what} of type {type} has no {' and no '.join(map(repr, lacking))}"
        told.error(source.place, message, f"Add {', '.join(ADD[key] for key in lacking)}.")
    nested = steps_of(told, made, what, depth + 1)
    most = made.get("min_success", 0)
    if most > len(nested) > 0:
        message = f"min_success of {what} is {most}, of {len(nested)} steps"
        told.error(made.values_at.get("min_success"), message, "Lower it.")
    return Step(made["id"], type, made, nested) if "id" in made else None


def keys_of(type: str, depth: int) -> dict[str, str]:
    """The keys of a step; one in a parallel step leads nowhere (and may say so with null)."""
    without = ROUTES if depth else ["next"] if type == "condition" else []
    keys = {key: takes for key, takes in (STEP | TYPES[type]).items() if key not in without}
    return keys | {"on_reject": "continue"} if depth and type == "approval" else keys


ELSEWHERE = {
    ("condition", "next"): "A condition goes on by 'then' and 'else'.",
    ("agent", "prompt"): "What an agent is told stands in its file; it is given the input and the results.",
}
"""Keys that are often written in a step of a type that has no such thing."""


def out_of_place(key: str, type: str, depth: int) -> str:
    if depth and key in ROUTES:
        return "A step in a parallel step leads nowhere: let the parallel step go on."
    return ELSEWHERE.get((type, key), "")


def unknown_type(told: Told, source: Map, what: str) -> None:
    types = f"Types are: {', '.join(TYPES)}."
    if "type" not in source:
        close = next((key for key in source if meant(key, ["type"])), None)
        if close is not None:
            unknown_key(told, source, close, ["type"], what, "")
        else:
            told.error(source.place, f"{what} has no 'type'", types)
        return
    type, at = source["type"], source.values_at.get("type", source.place)
    close = near(type, TYPES) if isinstance(type, str) else ""
    told.error(at, f"Unknown step type: {shown(type).strip(chr(39))}{close}", types)


def check_ids(told: Told, steps: Iterable[Step]) -> dict[str, Step]:
    """Every step by its id, nested ones too; an id stands for one step only."""
    known: dict[str, Step] = {}
    for top in steps:
        for step in top.all():
            if first := known.get(step.id):
                line = (first.at("id") or Place()).line
                message = f"two steps have the id '{step.id}'; the first is in line {line}"
                told.error(step.at("id"), message, "Rename one of them.")
            known.setdefault(step.id, step)
    return known


def check_inputs(told: Told, known: dict[str, Step]) -> None:
    """The steps named by `input` exist, and their names are free among what an agent is given."""
    for step in known.values():
        for index, name in enumerate(inputs_of(step)):
            given = step.get("input")
            at = given.values_at.get(index, given.place) if isinstance(given, Seq) else step.at("input")
            if name not in known:
                close = near(name, known)
                fix = "" if close else f"Steps: {', '.join(list(known)[:NAMES])}."
                told.error(at, f"'input' of step '{step.id}' names no step '{name}'{close}", fix)
            elif name in ("input", "context"):
                told.error(at, f"a step called '{name}' cannot be an input", "Give it another id.")


def inputs_of(step: Step) -> list[str]:
    given = step.get("input", [])
    return [given] if isinstance(given, str) else list(given)
