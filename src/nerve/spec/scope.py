"""Scopes: what the expressions of a workflow see while it runs."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.core.result import Result, was_skipped

NAMES = frozenset(
    {"input", "inputs", "given", "steps", "results", "context", "roles", "run", "iteration"}
    | {"item", "index", "acc", "args", "output"}
)
"""Every name that some expression may use; the last five only where the spec says so."""


def artifacts_in(folder: str) -> str:
    """Where runs of a definition from a folder of the project have their artifacts, in the project."""
    return f"{folder or '.nerve'}/artifacts"


@dataclass(slots=True)
class Facts:
    """What a run tells about itself."""

    id: str = ""
    workflow: str = ""
    label: str = ""
    branch: str = "main"
    folder: str = ""
    """The folder the definition came from, relative to the project."""

    @property
    def artifacts(self) -> str:
        return f"{artifacts_in(self.folder)}/{self.id}"

    def to_dict(self) -> dict[str, str]:
        told = {name: getattr(self, name) for name in self.__slots__}
        return {**told, "label": self.label or self.id, "artifacts": self.artifacts}


@dataclass(slots=True)
class Way:
    """Whether a `goto` is on its way out of the body of its state, and where to."""

    leaving: bool = False
    target: str | None = None


@dataclass(slots=True)
class Sent:
    """A prompt that was sent and is not joined yet."""

    task: asyncio.Task[Result]
    path: str
    overdue: bool = False
    """Whether the time of a wait for its answer was up: it is stopped when its state is left."""


@dataclass(slots=True)
class Scope:
    """The results of one run so far, and what it was started with.

    The body of a map has a scope of its own for every item, which sees the one around it.
    """

    input: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    initial: Mapping[str, Any] = field(default_factory=dict)
    done: MutableMapping[str, Result] = field(default_factory=dict)
    roles: dict[str, Any] = field(default_factory=dict)
    threads: dict[tuple[str, str], str] = field(default_factory=dict)
    """The conversations with agents that can be gone on with, by their providers and names."""
    provider: str | None = None
    model: str | None = None
    hyphens: frozenset[str] = frozenset()
    """The ids with hyphens, which expressions may write as they are."""
    given: dict[str, Any] = field(default_factory=dict)
    """`item` and `index` of the map around, and the `iteration` of the loop."""
    way: Way = field(default_factory=Way)
    detached: dict[str, Sent] = field(default_factory=dict)
    """Prompts that were sent and are not joined yet, by their tags."""
    asked: dict[str, str] = field(default_factory=dict)
    """Who was asked under each tag."""
    answered: set[str] = field(default_factory=set)
    """The tags of those whose own agent has answered."""
    heard: set[str] = field(default_factory=set)
    """The tags whose answers somebody has waited for."""
    talking: dict[str, asyncio.Task[Result]] = field(default_factory=dict)
    """The last prompt that was sent into a conversation and not waited for."""
    place: str = ""
    """Which item of which map this is, so that tags in one are not those in another."""

    def inside(self, item: Any, index: int) -> Scope:
        """The scope of one item of a map: its results and its conversations are its own."""
        return replace(
            self.beside(),
            done=ChainMap({}, self.done),
            given={**self.given, "item": item, "index": index},
            detached={},
            answered=set(),
            heard=set(),
            place=f"{self.place}[{index}]",
        )

    def beside(self) -> Scope:
        """The scope of a branch beside others: its conversations are its own, all else is shared."""
        return replace(self, threads={}, talking={}, way=Way())

    def turning(self) -> Scope:
        """The scope of the body of a loop, which is this one and knows which iteration it is."""
        return replace(self, given={**self.given, "iteration": 0})

    def record(self, id: str | None, result: Result) -> None:
        if id is not None:
            self.done[id] = result

    def sight(self, **given: Any) -> Sight:
        return Sight(self, {**self.given, **given} if self.given else given)

    def goto(self, state: str | None) -> None:
        self.way.leaving, self.way.target = True, state


class View(Mapping[str, Any]):
    """A mapping made when it is looked at: nothing is copied that no expression reads."""

    __slots__ = ("_keys", "_look")

    def __init__(self, keys: Callable[[], Any], look: Callable[[str], Any]) -> None:
        self._keys, self._look = keys, look

    def __getitem__(self, key: str) -> Any:
        return self._look(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())


class Sight(Mapping[str, Any]):
    """The names in sight at one place of a workflow."""

    __slots__ = ("_given", "scope")

    def __init__(self, scope: Scope, given: dict[str, Any]) -> None:
        self.scope, self._given = scope, given

    def __getitem__(self, name: str) -> Any:
        given = self._given
        return given[name] if name in given else SEEN[name](self.scope)

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in SEEN

    def __iter__(self) -> Iterator[str]:
        return iter({**SEEN, **self._given})

    def __len__(self) -> int:
        return len({**SEEN, **self._given})

    def also(self, **given: Any) -> Sight:
        return Sight(self.scope, {**self._given, **given})


def steps(scope: Scope) -> View:
    """`steps.<id>`: how each step ended."""
    return View(lambda: list(scope.done), lambda id: step(scope.done[id]))


def step(result: Result) -> dict[str, Any]:
    return {
        "status": status(result),
        "success": succeeded(result),
        "output": result.output,
        "error": error(result),
        "attributes": result.attributes,
    }


def succeeded(result: Result) -> bool:
    """Whether a step ended well, and what it gave does not say otherwise with a `success` of its own.

    A failure that was skipped is none for what comes after it, but it can be seen.
    """
    return ended_well(result) and result.data.get("success") is not False


def ended_well(result: Result) -> bool:
    return result.success and not {"skipped", "error_type"} <= result.attributes.keys()


def error(result: Result) -> Any:
    return result.get("error") if not result.success or ended_well(result) else result.attributes["skipped"]


def status(result: Result) -> str:
    if was_skipped(result):
        return "skipped"
    return "completed" if result.success else "failed"


def results(scope: Scope) -> View:
    """`results.<id>`: what each step gave; of one that failed also its error."""
    return View(lambda: list(scope.done), lambda id: given_by(scope.done[id]))


def given_by(result: Result) -> Any:
    """What a step gave. A failure has its `error`, beside the keys of an object or the other `output`.

    The report of a parallel is a list, and says itself which parts failed.
    """
    output = result.output
    if result.success or isinstance(output, list):
        return output
    if isinstance(output, dict):
        return {"error": result.error, **output}
    return {"error": result.error} | ({} if output in (None, "") else {"output": output})


def context(scope: Scope) -> View:
    """`context.<id>`: a step's success first, then its data; before it has run, the initial context.

    JSON that a step gave as text is looked into like an object.
    """

    def look(id: str) -> Any:
        return flat(scope.done[id]) if id in scope.done else scope.initial[id]

    return View(lambda: list({**scope.initial, **scope.done}), look)


def flat(result: Result) -> dict[str, Any]:
    told = {"output": result.output, "error": error(result)}
    return {**told, **result.attributes, **result.data, "success": succeeded(result)}


def roles(scope: Scope) -> View:
    """`roles.<name>`: what a role answered last; empty if it answered nothing."""

    def look(role: str) -> Any:
        said = scope.roles.get(role)
        return "" if said is None else said

    return View(lambda: list(scope.roles), look)


SEEN: dict[str, Callable[[Scope], Any]] = {
    "input": lambda scope: scope.input,
    "inputs": lambda scope: scope.inputs,
    "steps": steps,
    "results": results,
    "context": context,
    "roles": roles,
    "run": lambda scope: scope.facts.to_dict(),
}
"""What can always be seen, and how."""
