"""The immutable context of a step machine; every change returns a new context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from nerve.lazy_dataclass import dataclass


def freeze_json(value: Any) -> Any:
    """Return an immutable copy of a JSON value, with read-only mappings and tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze_json(item) for key, item in value.items()})
    return tuple(map(freeze_json, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

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
    """The progress of a workflow."""

    current_step: str = ""
    previous_steps: tuple[str, ...] = ()
    iteration_count: int = 0
    error_count: int = 0


@dataclass(frozen=True, slots=True)
class StepContext:
    """The input and the results of a workflow; every method returns a new context."""

    workflow_id: str
    start_time: datetime
    input: Any = None
    results: Mapping[str, StepResult] = field(default_factory=lambda: MappingProxyType({}))
    metadata: Metadata = Metadata()

    def __post_init__(self) -> None:
        object.__setattr__(self, "input", freeze_json(self.input))

    def add_result(self, step_id: str, result: StepResult) -> StepContext:
        """Return a context with the result of a step, which becomes the current step."""
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
    """Return the context of a workflow that has not started."""
    return StepContext(workflow_id, start_time or datetime.now(UTC), input)
