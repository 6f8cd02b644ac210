"""The context of a step machine as immutable data: every change gives a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any


def freeze_json(value: Any) -> Any:
    """A copy of a JSON value that cannot be changed: mappings that are read only, and tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze_json(item) for key, item in value.items()})
    return tuple(map(freeze_json, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended."""

    step_id: str
    success: bool
    data: Any = None
    error: str | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    duration: float = 0.0
    """Milliseconds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", freeze_json(self.data))


@dataclass(frozen=True, slots=True)
class Metadata:
    """How far a workflow has come."""

    current_step: str = ""
    previous_steps: tuple[str, ...] = ()
    iteration_count: int = 0
    error_count: int = 0


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a workflow was started with and what its steps gave; every method gives a new context."""

    workflow_id: str
    start_time: datetime
    input: Any = None
    results: Mapping[str, StepResult] = field(default_factory=lambda: MappingProxyType({}))
    metadata: Metadata = Metadata()

    def __post_init__(self) -> None:
        object.__setattr__(self, "input", freeze_json(self.input))

    def add_result(self, step_id: str, result: StepResult) -> StepContext:
        """With the result of a step, which is the current one now."""
        done = (*self.metadata.previous_steps, step_id)
        return replace(
            self,
            results=MappingProxyType({**self.results, step_id: result}),
            metadata=replace(self.metadata, current_step=step_id, previous_steps=done),
        )

    def get_result(self, step_id: str) -> StepResult | None:
        return self.results.get(step_id)

    def increment_iteration(self) -> StepContext:
        count = self.metadata.iteration_count + 1
        return replace(self, metadata=replace(self.metadata, iteration_count=count))

    def increment_error(self) -> StepContext:
        return replace(self, metadata=replace(self.metadata, error_count=self.metadata.error_count + 1))


def create_context(workflow_id: str, input: Any, start_time: datetime | None = None) -> StepContext:
    """The context of a workflow that has not begun."""
    return StepContext(workflow_id, start_time or datetime.now(UTC), input)
