"""Scopes: the values that expressions of a running workflow can read."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from nerve.core.result import Result, was_skipped
from nerve.expr import EvalError
from nerve.lazy_dataclass import dataclass
from nerve.spec.prompt_variables import prompt_value_text

if TYPE_CHECKING:
    import asyncio

EXPRESSION_NAMES = frozenset(
    {
        "input",
        "inputs",
        "given",
        "steps",
        "results",
        "outputs",
        "fields",
        "context",
        "roles",
        "run",
        "iteration",
    }
    | {"item", "index", "acc", "args", "output"}
)
"""All names that expressions may use; the last five only in some places."""


def artifacts_directory(folder: str) -> str:
    """Return the artifacts folder, relative to the project, for a definition from a project folder."""
    return f"{folder or '.nerve'}/artifacts"


@dataclass(slots=True)
class RunVariables:
    """The properties of a run that expressions read as `run`."""

    id: str = ""
    workflow: str = ""
    label: str = ""
    branch: str = "main"
    folder: str = ""
    """The folder the definition came from, relative to the project."""
    has_own_branch: bool = False
    """Whether the run was started with a branch."""

    @property
    def artifacts(self) -> str:
        return f"{artifacts_directory(self.folder)}/{self.id}"

    def to_dict(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "has_own_branch"}
        return {**values, "label": self.label or self.id, "artifacts": self.artifacts}


@dataclass(slots=True)
class PendingGoto:
    """Whether a `goto` is leaving the body of its state, and its target."""

    is_leaving: bool = False
    target: str | None = None


@dataclass(slots=True)
class PendingPrompt:
    """A detached prompt that is not joined yet."""

    task: asyncio.Task[Result]
    path: str
    is_overdue: bool = False
    """Whether a wait for its answer timed out; it is cancelled at the end of its state."""


@dataclass(slots=True)
class Scope:
    """The input and the results of one run so far.

    The body of a map has a separate scope for each item, which extends the outer scope.
    """

    input: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    run_variables: RunVariables = field(default_factory=RunVariables)
    initial_context: Mapping[str, Any] = field(default_factory=dict)
    results: MutableMapping[str, Result] = field(default_factory=dict)
    roles: dict[str, Any] = field(default_factory=dict)
    threads: dict[tuple[str, str], str] = field(default_factory=dict)
    """The conversations that can be resumed, by provider and name."""
    provider: str | None = None
    model: str | None = None
    hyphens: frozenset[str] = frozenset()
    """The ids with hyphens that expressions may use without quotes."""
    local_values: dict[str, Any] = field(default_factory=dict)
    """`item` and `index` of the enclosing map, and `iteration` of the enclosing loop."""
    pending_goto: PendingGoto = field(default_factory=PendingGoto)
    pending_prompts: dict[str, PendingPrompt] = field(default_factory=dict)
    """The detached prompts that are not joined yet, by tag."""
    role_by_tag: dict[str, str] = field(default_factory=dict)
    """The role of the request with each tag."""
    answered_tags: set[str] = field(default_factory=set)
    """The tags of requests that their own agent has answered."""
    awaited_tags: set[str] = field(default_factory=set)
    """The tags whose answers a wait has received."""
    detached_tasks: dict[str, asyncio.Task[Result]] = field(default_factory=dict)
    """The last detached prompt of each conversation."""
    item_path: str = ""
    """The path of map items, which makes tags unique per item."""

    def for_map_item(self, item: Any, index: int) -> Scope:
        """Return the scope of a map item, with separate results and conversations."""
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
        """Return the scope of a parallel branch, with separate conversations; everything else is shared."""
        return replace(self, threads={}, detached_tasks={}, pending_goto=PendingGoto())

    def for_iteration(self) -> Scope:
        """Return the scope of a loop body, which adds `iteration`."""
        return replace(self, local_values={**self.local_values, "iteration": 0})

    def record(self, id: str | None, result: Result) -> None:
        if id is not None:
            self.results[id] = result

    def view(self, **values: Any) -> ScopeView:
        return ScopeView(self, {**self.local_values, **values} if self.local_values else values)

    def goto(self, state: str | None) -> None:
        self.pending_goto.is_leaving, self.pending_goto.target = True, state


class ConversationScopes:
    """The scopes of branches: each has separate conversations, inherited from its dependencies.

    A graph with a single start step continues the conversations of the outer scope, and the outer scope
    continues those of the last steps.
    """

    def __init__(self, outer_scope: Scope) -> None:
        self._outer_scope = outer_scope
        self._scopes: dict[str, Scope] = {}
        self._dependencies: dict[str, list[str]] = {}

    def scope_for(self, name: str, depends_on: Iterable[str] = ()) -> Scope:
        self._dependencies[name] = list(depends_on)
        scope = self._scopes[name] = self._outer_scope.for_branch()
        return scope

    def clear(self) -> None:
        """Forget the conversations of the previous execution of these steps."""
        for scope in self._scopes.values():
            scope.threads.clear()
            scope.detached_tasks.clear()

    def inherit_threads(self, name: str) -> None:
        """Copy the conversations of the dependencies of a step; the last dependency takes precedence."""
        scope, dependencies = self._scopes[name], self._dependencies[name]
        has_single_start = sum(not after for after in self._dependencies.values()) == 1
        source_scopes = [self._scopes[up] for up in dependencies] or (
            [self._outer_scope] if has_single_start else []
        )
        for other in source_scopes:
            scope.threads.update(other.threads)
            scope.detached_tasks.update(other.detached_tasks)

    def hand_back(self, result: Result) -> Result:
        """Copy the conversations of the last steps to the outer scope; return the result unchanged."""
        inner = {up for after in self._dependencies.values() for up in after}
        for name, scope in self._scopes.items():
            if name not in inner:
                self._outer_scope.threads.update(scope.threads)
                self._outer_scope.detached_tasks.update(scope.detached_tasks)
        return result


class LazyMapping(Mapping[str, Any]):
    """A mapping that computes its values on access, so that unread values are not copied."""

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
    """The names that the expressions of one node can read."""

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

    def with_values(self, **values: Any) -> ScopeView:
        return ScopeView(self.scope, {**self._local_values, **values})


class StepFields(Mapping[str, Any]):
    """The object in the output of a step; reading a key that it does not have raises EvalError."""

    __slots__ = ("_data", "_id")

    def __init__(self, id: str, data: dict[str, Any]) -> None:
        self._id, self._data = id, data

    def __getitem__(self, key: str) -> Any:
        if key not in self._data:
            raise EvalError(f"The output of step '{self._id}' has no field '{key}'", key, 0, len(key))
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


def results_by(scope: Scope, view: Callable[[Result], Any]) -> LazyMapping:
    """Return a view of the result of each step by id."""
    return LazyMapping(lambda: list(scope.results), lambda id: view(scope.results[id]))


def step_view(result: Result) -> dict[str, Any]:
    """Return the outcome of a step, as `steps` shows it."""
    return {
        "status": "skipped" if was_skipped(result) else "completed" if result.success else "failed",
        "success": is_step_success(result),
        "output": result.output,
        "error": visible_error(result),
        "attributes": result.attributes,
    }


def is_step_success(result: Result) -> bool:
    """Whether a step succeeded and its output does not contain `success: false`.

    A skipped failure does not fail the steps after it, but expressions can see it.
    """
    return has_ended_well(result) and result.data.get("success") is not False


def has_ended_well(result: Result) -> bool:
    return result.success and not {"skipped", "error_type"} <= result.attributes.keys()


def visible_error(result: Result) -> Any:
    return (
        result.get("error") if not result.success or has_ended_well(result) else result.attributes["skipped"]
    )


def step_output(result: Result) -> Any:
    """Return the output of a step, as `results` shows it.

    A failure adds `error` to an object, or puts other output under `output`.

    The output of a parallel is a list that already contains the failures.
    """
    output = result.output
    if result.success or isinstance(output, list):
        return output
    if isinstance(output, dict):
        return {"error": result.error, **output}
    return {"error": result.error} | ({} if output in (None, "") else {"output": output})


def outputs_view(scope: Scope) -> LazyMapping:
    """Return `outputs`: the output of each step as text; empty if it was skipped or has not run.

    Reading a failed step raises EvalError.
    """

    def get_text(id: str) -> str:
        result = ended_step(scope, id)
        if result is None:
            return ""
        return prompt_value_text(result.output).removesuffix("\n")

    return LazyMapping(lambda: list(scope.results), get_text)


def fields_view(scope: Scope) -> LazyMapping:
    """Return `fields`: the object in the output of each step, or of its text.

    Reading a step that failed, did not run, or has another output raises EvalError.
    """

    def get_fields(id: str) -> StepFields:
        result = ended_step(scope, id)
        if result is None:
            raise unreadable_step(id, "did not run")
        if not (data := result.data):
            raise unreadable_step(id, "has an output that is not a JSON object")
        return StepFields(id, data)

    return LazyMapping(lambda: list(scope.results), get_fields)


def ended_step(scope: Scope, id: str) -> Result | None:
    """Return the result of a step that succeeded, or None; raises EvalError for a failed step."""
    result = scope.results.get(id)
    if result is None or (was_skipped(result) and (has_ended_well(result) or not result.success)):
        return None
    if not has_ended_well(result):
        raise unreadable_step(id, f"failed ({visible_error(result)})")
    return result


def unreadable_step(id: str, reason: str) -> EvalError:
    return EvalError(f"The output of step '{id}' cannot be used: the step {reason}", id, 0)


def context_view(scope: Scope) -> LazyMapping:
    """Return `context`: success, data and attributes of each step; before it has run, the initial context.

    JSON text in the output of a step counts as data.
    """

    def get_step(id: str) -> Any:
        return flat_result(scope.results[id]) if id in scope.results else scope.initial_context[id]

    return LazyMapping(lambda: list({**scope.initial_context, **scope.results}), get_step)


def flat_result(result: Result) -> dict[str, Any]:
    fields = {"output": result.output, "error": visible_error(result)}
    return {**fields, **result.attributes, **result.data, "success": is_step_success(result)}


def roles_view(scope: Scope) -> LazyMapping:
    """Return `roles`: the last answer of each role; empty if there is none."""

    def get_answer(role: str) -> Any:
        answer = scope.roles.get(role)
        return "" if answer is None else answer

    return LazyMapping(lambda: list(scope.roles), get_answer)


VISIBLE_NAMES: dict[str, Callable[[Scope], Any]] = {
    "input": lambda scope: scope.input,
    "inputs": lambda scope: scope.inputs,
    "steps": lambda scope: results_by(scope, step_view),
    "results": lambda scope: results_by(scope, step_output),
    "outputs": outputs_view,
    "fields": fields_view,
    "context": context_view,
    "roles": roles_view,
    "run": lambda scope: scope.run_variables.to_dict(),
}
"""The names that every expression can read, and how to compute them."""
