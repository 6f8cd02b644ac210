"""W3C trace context: which span of a distributed trace something belongs to."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext

TRACEPARENT_PATTERN = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
TRACEPARENT_VARIABLE = "TRACEPARENT"
"""The environment variable from which programs read the span that they belong to."""
SAMPLED_FLAG = 1


class TraceParent(NamedTuple):
    """The value of a `traceparent` header."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED_FLAG

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Return the parsed value; None for one that is not valid, which the standard says to ignore."""
        if text is None or not re.match(TRACEPARENT_PATTERN, text) or text.startswith("ff"):
            return None
        _, trace_id, span_id, flags = text.split("-")
        value = cls(int(trace_id, 16), int(span_id, 16), int(flags, 16))
        return value if value.trace_id and value.span_id else None

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED_FLAG)

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


class StepTracing(Protocol):
    """What steps need of the telemetry of their session."""

    async def prepare_step(self, run_id: str, path: str) -> None:
        """Find the span of a step that a worker begins, if that takes time."""

    def open_step(self, context: ExecutionContext) -> AbstractContextManager[None]:
        """Make the span of the step current in a block, so that spans of its code are below it."""

    def find_span(self, run_id: str, path: str) -> TraceParent | None:
        """Return the span of a step, or of a run with an empty path."""

    def environment_of(self, context: ExecutionContext) -> dict[str, str]:
        """Return the variables that tell a program which span it belongs to."""


def tracing_of(context: ExecutionContext) -> StepTracing | None:
    """Return the tracing of the session of a step; None if it is off."""
    tracing: StepTracing | None = getattr(context.session, "tracing", None)
    return tracing


def trace_environment(context: ExecutionContext) -> dict[str, str]:
    """Return the variables that tell a program which span it belongs to; none without telemetry."""
    tracing = tracing_of(context)
    return {} if tracing is None else tracing.environment_of(context)
