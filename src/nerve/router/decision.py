"""What the router decides between, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, ClassVar, Literal

from nerve.agents.provider import TurnUsage
from nerve.spec.models import InputSpec

DecidedBy = Literal["agent", "words"]
"""Who decided: an agent, or the words of the text and of the workflows, offline."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A workflow that a text may be about."""

    name: str
    description: str = ""
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    """The inputs it declares; without any it takes what it is given."""
    steps: tuple[str, ...] = ()
    """The steps that are known before it runs."""

    def __post_init__(self) -> None:
        if not self.name or any(character.isspace() for character in self.name):
            raise ValueError(f"a workflow is offered under a name without spaces, not {self.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """What every decision says of itself."""

    kind: ClassVar[str] = ""
    text: str = ""
    """What the user wrote."""
    by: DecidedBy = "agent"
    reason: str = ""
    """Why, where the router can say it."""
    warnings: tuple[str, ...] = ()
    thread: str = ""
    """The agent's conversation, by which the next text can go on with it."""
    usage: TurnUsage | Mapping[str, Any] | None = None
    """What asking the agent took."""

    def to_dict(self) -> dict[str, Any]:
        payload = {"kind": self.kind, **asdict(self)}
        payload["usage"] = asdict(self.usage) if is_dataclass(self.usage) else self.usage
        return payload


@dataclass(frozen=True, slots=True)
class WorkflowDecision(RoutingDecision):
    """A workflow is to be started; the intent is what its run is told."""

    kind: ClassVar[str] = "workflow"
    workflow: str
    intent: str
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConversationDecision(RoutingDecision):
    """No workflow is meant; this is the answer."""

    kind: ClassVar[str] = "conversation"
    reply: str


@dataclass(frozen=True, slots=True)
class QuestionDecision(RoutingDecision):
    """Something must be known first: which of the candidates is meant, or what its inputs are."""

    kind: ClassVar[str] = "question"
    question: str
    candidates: tuple[str, ...] = ()
    intent: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The inputs that are known to be right, when only inputs are missing."""


Decision = WorkflowDecision | ConversationDecision | QuestionDecision


def join_quoted_names(names: tuple[str, ...] | list[str], limit: int = 20) -> str:
    """Names as a sentence has them."""
    return ", ".join(f"'{name}'" for name in names[:limit]) + (", …" if len(names) > limit else "")
