"""Scopes: what the expressions of a workflow see while it runs."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from nerve.core.result import Result, was_skipped

EXPRESSION_NAMES = frozenset(
    {"input", "inputs", "given", "steps", "results", "context", "roles", "run", "iteration"}
    | {"item", "index", "acc", "args", "output"}
)
"""Every name that some expression may use; the last five only where the spec says so."""


def artifacts_directory(folder: str) -> str:
    """Where runs of a definition from a folder of the project have their artifacts, in the project."""
    return f"{folder or '.nerve'}/artifacts"


@dataclass(slots=True)
class RunVariables:
    """What a run tells about itself."""

    id: str = ""
    workflow: str = ""
    label: str = ""
    branch: str = "main"
    folder: str = ""
    """The folder the definition came from, relative to the project."""

    @property
    def artifacts(self) -> str:
        return f"{artifacts_directory(self.folder)}/{self.id}"

    def to_dict(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {**values, "label": self.label or self.id, "artifacts": self.artifacts}


@dataclass(slots=True)
class PendingGoto:
    """Whether a `goto` is on its way out of the body of its state, and where to."""

    is_leaving: bool = False
    target: str | None = None


@dataclass(slots=True)
class PendingPrompt:
    """A prompt that was sent and is not joined yet."""

    task: asyncio.Task[Result]
    path: str
    is_overdue: bool = False
    """Whether the time of a wait for its answer was up: it is stopped when its state is left."""


@dataclass(slots=True)
class Scope:
    """The results of one run so far, and what it was started with.

    The body of a map has a scope of its own for every item, which sees the one around it.
    """

    input: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    run_variables: RunVariables = field(default_factory=RunVariables)
    initial_context: Mapping[str, Any] = field(default_factory=dict)
    results: MutableMapping[str, Result] = field(default_factory=dict)
    roles: dict[str, Any] = field(default_factory=dict)
    threads: dict[tuple[str, str], str] = field(default_factory=dict)
    """The conversations with agents that can be gone on with, by their providers and names."""
    provider: str | None = None
    model: str | None = None
    hyphens: frozenset[str] = frozenset()
    """The ids with hyphens, which expressions may write as they are."""
    local_values: dict[str, Any] = field(default_factory=dict)
    """`item` and `index` of the map around, and the `iteration` of the loop."""
    pending_goto: PendingGoto = field(default_factory=PendingGoto)
    pending_prompts: dict[str, PendingPrompt] = field(default_factory=dict)
    """Prompts that were sent and are not joined yet, by their tags."""
    role_by_tag: dict[str, str] = field(default_factory=dict)
    """Who was asked under each tag."""
    answered_tags: set[str] = field(default_factory=set)
    """The tags of those whose own agent has answered."""
    awaited_tags: set[str] = field(default_factory=set)
    """The tags whose answers somebody has waited for."""
    detached_tasks: dict[str, asyncio.Task[Result]] = field(default_factory=dict)
    """The last prompt that was sent into a conversation and not waited for."""
    item_path: str = ""
    """Which item of which map this is, so that tags in one are not those in another."""

    def for_map_item(self, item: Any, index: int) -> Scope:
        """The scope of one item of a map: its results and its conversations are its own."""
        return replace(
            self.for_branch(),
            results=ChainMap({}, self.results),
            local_values={**self.local_values, "item": item, "index": index},
            pending_prompts={},
            answered_tags=set(),
            awaited_tags=set(),
            item_path=f"{self.item_path}[{index}]",
        )

    def for_branch(self) -> Scope:
        """The scope of a branch beside others: its conversations are its own, all else is shared."""
        return replace(self, threads={}, detached_tasks={}, pending_goto=PendingGoto())

    def for_iteration(self) -> Scope:
        """The scope of the body of a loop, which is this one and knows which iteration it is."""
        return replace(self, local_values={**self.local_values, "iteration": 0})

    def record(self, id: str | None, result: Result) -> None:
        if id is not None:
            self.results[id] = result

    def view(self, **given: Any) -> ScopeView:
        return ScopeView(self, {**self.local_values, **given} if self.local_values else given)

    def goto(self, state: str | None) -> None:
        self.pending_goto.is_leaving, self.pending_goto.target = True, state


class LazyMapping(Mapping[str, Any]):
    """A mapping made when it is looked at: nothing is copied that no expression reads."""

    __slots__ = ("_get_item", "_keys")

    def __init__(self, keys: Callable[[], Any], get_item: Callable[[str], Any]) -> None:
        self._keys, self._get_item = keys, get_item

    def __getitem__(self, key: str) -> Any:
        return self._get_item(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __len__(self) -> int:
        return len(self._keys())


class ScopeView(Mapping[str, Any]):
    """The names in sight at one place of a workflow."""

    __slots__ = ("_local_values", "scope")

    def __init__(self, scope: Scope, local_values: dict[str, Any]) -> None:
        self.scope, self._local_values = scope, local_values

    def __getitem__(self, name: str) -> Any:
        local_values = self._local_values
        return local_values[name] if name in local_values else VISIBLE_NAMES[name](self.scope)

    def __contains__(self, name: object) -> bool:
        return name in self._local_values or name in VISIBLE_NAMES

    def __iter__(self) -> Iterator[str]:
        return iter({**VISIBLE_NAMES, **self._local_values})

    def __len__(self) -> int:
        return len({**VISIBLE_NAMES, **self._local_values})

    def with_values(self, **given: Any) -> ScopeView:
        return ScopeView(self.scope, {**self._local_values, **given})


def steps_view(scope: Scope) -> LazyMapping:
    """`steps.<id>`: how each step ended."""
    return LazyMapping(lambda: list(scope.results), lambda id: step_view(scope.results[id]))


def step_view(result: Result) -> dict[str, Any]:
    return {
        "status": step_status(result),
        "success": is_step_success(result),
        "output": result.output,
        "error": visible_error(result),
        "attributes": result.attributes,
    }


def is_step_success(result: Result) -> bool:
    """Whether a step ended well, and what it gave does not say otherwise with a `success` of its own.

    A failure that was skipped is none for what comes after it, but it can be seen.
    """
    return has_ended_well(result) and result.data.get("success") is not False


def has_ended_well(result: Result) -> bool:
    return result.success and not {"skipped", "error_type"} <= result.attributes.keys()


def visible_error(result: Result) -> Any:
    return (
        result.get("error") if not result.success or has_ended_well(result) else result.attributes["skipped"]
    )


def step_status(result: Result) -> str:
    if was_skipped(result):
        return "skipped"
    return "completed" if result.success else "failed"


def results_view(scope: Scope) -> LazyMapping:
    """`results.<id>`: what each step gave; of one that failed also its error."""
    return LazyMapping(lambda: list(scope.results), lambda id: step_output(scope.results[id]))


def step_output(result: Result) -> Any:
    """What a step gave. A failure has its `error`, beside the keys of an object or the other `output`.

    The report of a parallel is a list, and says itself which parts failed.
    """
    output = result.output
    if result.success or isinstance(output, list):
        return output
    if isinstance(output, dict):
        return {"error": result.error, **output}
    return {"error": result.error} | ({} if output in (None, "") else {"output": output})


def context_view(scope: Scope) -> LazyMapping:
    """`context.<id>`: a step's success first, then its data; before it has run, the initial context.

    JSON that a step gave as text is looked into like an object.
    """

    def look(id: str) -> Any:
        return flat_result(scope.results[id]) if id in scope.results else scope.initial_context[id]

    return LazyMapping(lambda: list({**scope.initial_context, **scope.results}), look)


def flat_result(result: Result) -> dict[str, Any]:
    fields = {"output": result.output, "error": visible_error(result)}
    return {**fields, **result.attributes, **result.data, "success": is_step_success(result)}


def roles_view(scope: Scope) -> LazyMapping:
    """`roles.<name>`: what a role answered last; empty if it answered nothing."""

    def look(role: str) -> Any:
        answer = scope.roles.get(role)
        return "" if answer is None else answer

    return LazyMapping(lambda: list(scope.roles), look)


VISIBLE_NAMES: dict[str, Callable[[Scope], Any]] = {
    "input": lambda scope: scope.input,
    "inputs": lambda scope: scope.inputs,
    "steps": steps_view,
    "results": results_view,
    "context": context_view,
    "roles": roles_view,
    "run": lambda scope: scope.run_variables.to_dict(),
}
"""What can always be seen, and how."""
