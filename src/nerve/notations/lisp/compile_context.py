"""State of the compiler: roles, inputs, states, helpers, prompts and names."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.notations.lisp.diagnostics import LispDiagnostics
from nerve.text.source import LocatedList, LocatedMap, Position

Names = ChainMap[str, str]
"""The expression of each visible name."""


@dataclass(frozen=True, slots=True)
class Role:
    """The agent that answers a prompt."""

    agent: str | None
    thread: str
    model: str | None
    prompt_options: LocatedMap = field(default_factory=LocatedMap)
    """Options of every prompt of the role: `fallback`, `tools`, `max_turns`."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A `defn`: its expression, with numbered slots for its parameters."""

    parameter_count: int
    text: str


@dataclass(frozen=True, slots=True)
class Env:
    """The context of a form: the visible names, and the list of steps that it appends to.

    In a `test`, a condition does not wait: it yields whether it holds now or, if it is `compared`, its
    current value. Elsewhere it waits. Without `steps`, conditions are not allowed.
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
    """The workflow being compiled."""

    diagnostics: LispDiagnostics
    roles: dict[str, Role] = field(default_factory=dict)
    inputs: LocatedMap = field(default_factory=LocatedMap)
    states: set[str] = field(default_factory=set)
    helpers: dict[str, Helper | None] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    """Tags set with `:tag`."""
    prompt_count: int = 0
    """Number of prompts so far."""
    untagged_prompts: list[tuple[int, LocatedMap]] = field(default_factory=list)
    """Prompts without a tag so far, each with its number."""
    prompt_number_by_tag: dict[str, int] = field(default_factory=dict)
    """Numbers of the prompts that got their tag from a wait, by tag."""
    used_ids: set[str] = field(default_factory=set)
    """Ids set in the source."""
    expression_chars: int = 0
    """Total length of all expressions so far."""
    id_count: int = 0

    def claim_id(self, name: str) -> str:
        """Return the name as an id if it is free, for gates that users answer by name; else a new id."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name) or name in self.used_ids | self.states:
            return self.new_id(name)
        self.used_ids.add(name)
        return name

    def new_id(self, name: str) -> str:
        """Return a unique id; ids that start with an underscore are reserved for the compiler."""
        self.id_count += 1
        return f"_{re.sub(r'[^a-z0-9]+', '_', name.lower())[:40].strip('_')}_{self.id_count}"


def make_node(kind: str, position: Position, **values: Any) -> LocatedMap:
    """Return a node of the spec; values keep their positions, others get that of the node."""
    result = LocatedMap((), position).set_at("kind", kind, position)
    for key, value in values.items():
        result.set_at(key, value, getattr(value, "position", None) or position)
    return result


def join_steps(steps: list[LocatedMap], position: Position) -> LocatedMap:
    """Return several steps as one node; no steps become a node that returns its input."""
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
