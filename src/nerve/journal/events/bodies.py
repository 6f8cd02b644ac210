"""Events of a body besides its calls and waits: messages for it, and what the engine records about it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from nerve.core.events import WorkflowEventType
from nerve.journal.events.known_event import KnownEvent
from nerve.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MessageSent(KnownEvent):
    """A message for the run; it stays unread until the body receives it."""

    type = WorkflowEventType.MESSAGE_SENT
    written_nulls = ("value",)
    channel: str = ""
    value: Any = None
    key: str | None = None
    """The idempotency key: a second message with it is not sent."""
    by: str | None = None
    carried: int | None = None
    """The number of the message in the previous run of the chain, which did not read it."""


@dataclass(frozen=True, slots=True)
class UpdateCompleted(KnownEvent):
    """The body has handled an update; `message` is the event that requested it."""

    type = WorkflowEventType.UPDATE_COMPLETED
    has_foreign_text = True
    written_nulls = ("result",)
    name: str = ""
    message: int = 0
    result: Any = None
    error: str | None = None
    error_type: str | None = None


# -- what the engine records about a body ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockRead(KnownEvent):
    type = WorkflowEventType.CLOCK_READ
    now: str = ""


@dataclass(frozen=True, slots=True)
class PathReset(KnownEvent):
    """What is recorded at and below the path no longer applies: the step runs again."""

    type = WorkflowEventType.PATH_RESET
    because: str = ""


@dataclass(frozen=True, slots=True)
class ChildStopped(KnownEvent):
    """The usage of a child run that was stopped."""

    type = WorkflowEventType.CHILD_STOPPED
    run_id: str = ""
    usage: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TagsChanged(KnownEvent):
    """The body has set tags of the run; other tags stay."""

    type = WorkflowEventType.TAGS_CHANGED
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PatchEvaluated(KnownEvent):
    """The body has asked for the first time whether it takes the new branch of a patch."""

    type = WorkflowEventType.PATCH_EVALUATED
    name: str = ""
    active: bool = True


@dataclass(frozen=True, slots=True)
class FactsCopied(KnownEvent):
    """A fork has changed facts as the copied step at the path did, for its own id."""

    type = WorkflowEventType.FACTS_COPIED
