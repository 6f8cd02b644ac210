"""What is known of a workflow while it is read: roles, inputs, states, helpers, prompts, names."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.notations.lisp.diagnostics import LispDiagnostics
from nerve.text.source import LocatedList, LocatedMap, Position

Names = ChainMap[str, str]
"""What each name in sight stands for: the text of an expression."""


@dataclass(frozen=True, slots=True)
class Role:
    """Who answers a prompt."""

    agent: str | None
    thread: str
    model: str | None
    prompt_options: LocatedMap = field(default_factory=LocatedMap)
    """What else is said of every prompt for it: `fallback`, `tools`, `max_turns`."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A `defn`: the text of its expression, with its parameters as numbered slots."""

    parameter_count: int
    text: str


@dataclass(frozen=True, slots=True)
class Env:
    """Where a form stands: the names in sight, and the steps to which it adds its own.

    In a `test`, a condition does not wait: it says whether it holds now or, where it is `compared`, which
    value it has now. Elsewhere it waits. Without `steps` it can do neither.
    """

    names: Names
    steps: list[LocatedMap] | None
    test: bool = False
    compared: bool = False

    def for_test(self) -> Env:
        return Env(self.names, self.steps, True)

    def for_comparison(self, compared: bool = True) -> Env:
        return self if compared is self.compared else replace(self, compared=compared)

    def add_step(self, node: LocatedMap) -> None:
        if self.steps is not None:
            self.steps.append(node)


@dataclass(slots=True)
class LispProgram:
    """The workflow that is being read."""

    diagnostics: LispDiagnostics
    roles: dict[str, Role] = field(default_factory=dict)
    inputs: LocatedMap = field(default_factory=LocatedMap)
    states: set[str] = field(default_factory=set)
    helpers: dict[str, Helper | None] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    """Those that are written down with `:tag`."""
    prompt_count: int = 0
    """How many there were so far."""
    untagged_prompts: list[tuple[int, LocatedMap]] = field(default_factory=list)
    """Those that have no tag yet, each with its number."""
    prompt_number_by_tag: dict[str, int] = field(default_factory=dict)
    """The number of the prompt that got a tag from the wait for it."""
    used_ids: set[str] = field(default_factory=set)
    """The ids that are written down."""
    expression_chars: int = 0
    """Characters of all expressions so far."""
    id_count: int = 0

    def claim_id(self, name: str) -> str:
        """The name itself as an id, if nothing else has it, for what people answer by its name."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name) or name in self.used_ids | self.states:
            return self.new_id(name)
        self.used_ids.add(name)
        return name

    def new_id(self, name: str) -> str:
        """An id that nothing else has; those that begin with an underscore are ours."""
        self.id_count += 1
        return f"_{re.sub(r'[^a-z0-9]+', '_', name.lower())[:40].strip('_')}_{self.id_count}"


def make_node(kind: str, position: Position, **values: Any) -> LocatedMap:
    """A node of the spec whose parts stand where they stood, or else where it stands itself."""
    result = LocatedMap((), position).set_at("kind", kind, position)
    for key, value in values.items():
        result.set_at(key, value, getattr(value, "position", None) or position)
    return result


def join_steps(steps: list[LocatedMap], position: Position) -> LocatedMap:
    """Several steps as one node; none is one that hands on what it is given."""
    if not steps:
        return make_node("transform", position, expression="given")
    return (
        steps[0] if len(steps) == 1 else make_node("sequence", position, steps=located_steps(steps, position))
    )


def located_steps(items: list[LocatedMap], position: Position) -> LocatedList:
    steps = LocatedList((), position)
    for item in items:
        steps.append_at(item, item.position)
    return steps
