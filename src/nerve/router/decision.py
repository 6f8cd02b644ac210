"""The candidates and the decisions of the router."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field, is_dataclass
from typing import Any, ClassVar, Literal

from nerve.agents.provider import TurnUsage
from nerve.lazy_dataclass import dataclass
from nerve.spec.models import InputSpec
from nerve.text import clip_names

DecidedBy = Literal["agent", "words"]
MAX_LISTED_NAMES = 20
"""The decider: an agent, or keyword matching without an agent."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workflow that the router can choose."""

    name: str
    description: str = ""
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    """The declared inputs; a workflow without declared inputs accepts any."""
    steps: tuple[str, ...] = ()
    """The steps known before the run."""
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The JSON Schemas of the inputs of a typed Python workflow."""
    takes_intent: bool = True
    """Whether the intent is the input of the run; else `inputs` has the input, or its fields."""
    input_name: str = ""
    """The one of `inputs` that is the whole input of the run; "" if the input has fields."""
    bind_start: Callable[[str, Mapping[str, Any]], Any] | None = field(
        default=None, repr=False, compare=False
    )
    """Raises ValueError for an intent and inputs with which the workflow cannot start."""

    def __post_init__(self) -> None:
        if not self.name or any(character.isspace() for character in self.name):
            raise ValueError(
                f"The name of a workflow must not be empty or contain whitespace, got {self.name!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """Fields common to all decisions."""

    kind: ClassVar[str] = ""
    text: str = ""
    """The message of the user."""
    by: DecidedBy = "agent"
    reason: str = ""
    """The reason, if the router knows it."""
    warnings: tuple[str, ...] = ()
    thread: str = ""
    """The thread id of the agent; pass it as `resume` to continue the conversation."""
    usage: TurnUsage | Mapping[str, Any] | None = None
    """Usage of the agent's turn."""

    def to_dict(self) -> dict[str, Any]:
        payload = {"kind": self.kind, **asdict(self)}
        payload["usage"] = asdict(self.usage) if is_dataclass(self.usage) else self.usage
        return payload


@dataclass(frozen=True, slots=True)
class WorkflowDecision(RoutingDecision):
    """Start a workflow; the intent is the input of its run, unless the workflow declares another type."""

    kind: ClassVar[str] = "workflow"
    workflow: str
    intent: str
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationDecision(RoutingDecision):
    """Reply without starting a workflow."""

    kind: ClassVar[str] = "conversation"
    reply: str


@dataclass(frozen=True, slots=True)
class QuestionDecision(RoutingDecision):
    """Ask the user first: which candidate to start, or which inputs to use."""

    kind: ClassVar[str] = "question"
    question: str
    candidates: tuple[str, ...] = ()
    intent: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The valid inputs, when only other inputs are missing."""


Decision = WorkflowDecision | ConversationDecision | QuestionDecision


def join_quoted_names(names: tuple[str, ...] | list[str]) -> str:
    """Return the first names quoted and separated by commas."""
    return clip_names([f"'{name}'" for name in names], MAX_LISTED_NAMES)
