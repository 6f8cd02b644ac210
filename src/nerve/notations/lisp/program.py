"""What is known of a workflow while it is read: roles, inputs, states, helpers, prompts, names."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.notations.lisp.telling import Teller
from nerve.spec.source import Map, Place, Seq

Names = ChainMap[str, str]
"""What each name in sight stands for: the text of an expression."""


@dataclass(frozen=True, slots=True)
class Role:
    """Who answers a prompt."""

    agent: str | None
    thread: str
    model: str | None
    more: Map = field(default_factory=Map)
    """What else is said of every prompt for it: `fallback`, `tools`, `max_turns`."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A `defn`: the text of its expression, with its parameters as numbered slots."""

    parameters: int
    text: str


@dataclass(frozen=True, slots=True)
class Env:
    """Where a form stands: the names in sight, and the steps to which it adds its own.

    In a `test`, a condition does not wait: it says whether it holds now or, where it is `compared`, which
    value it has now. Elsewhere it waits. Without `steps` it can do neither.
    """

    names: Names
    steps: list[Map] | None
    test: bool = False
    compared: bool = False

    def testing(self) -> Env:
        return Env(self.names, self.steps, True)

    def comparing(self, compared: bool = True) -> Env:
        return self if compared is self.compared else replace(self, compared=compared)

    def add(self, node: Map) -> None:
        if self.steps is not None:
            self.steps.append(node)


@dataclass(slots=True)
class Program:
    """The workflow that is being read."""

    tell: Teller
    roles: dict[str, Role] = field(default_factory=dict)
    inputs: Map = field(default_factory=Map)
    states: set[str] = field(default_factory=set)
    helpers: dict[str, Helper | None] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)
    """Those that are written down with `:tag`."""
    prompts: int = 0
    """How many there were so far."""
    untagged: list[tuple[int, Map]] = field(default_factory=list)
    """Those that have no tag yet, each with its number."""
    bound: dict[str, int] = field(default_factory=dict)
    """The number of the prompt that got a tag from the wait for it."""
    taken: set[str] = field(default_factory=set)
    """The ids that are written down."""
    written: int = 0
    """Characters of all expressions so far."""
    ids: int = 0

    def own_id(self, name: str) -> str:
        """The name itself as an id, if nothing else has it, for what people answer by its name."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name) or name in self.taken | self.states:
            return self.new_id(name)
        self.taken.add(name)
        return name

    def new_id(self, name: str) -> str:
        """An id that nothing else has; those that begin with an underscore are ours."""
        self.ids += 1
        return f"_{re.sub(r'[^a-z0-9]+', '_', name.lower())[:40].strip('_')}_{self.ids}"


def node(kind: str, place: Place, **values: Any) -> Map:
    """A node of the spec whose parts stand where they stood, or else where it stands itself."""
    found = Map((), place).put("kind", kind, place)
    for key, value in values.items():
        found.put(key, value, getattr(value, "place", None) or place)
    return found


def one(steps: list[Map], place: Place) -> Map:
    """Several steps as one node; none is one that hands on what it is given."""
    if not steps:
        return node("transform", place, expression="given")
    return steps[0] if len(steps) == 1 else node("sequence", place, steps=sequence(steps, place))


def sequence(items: list[Map], place: Place) -> Seq:
    found = Seq((), place)
    for item in items:
        found.push(item, item.place)
    return found
