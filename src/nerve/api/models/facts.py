"""Facts and signals."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from nerve.api.models.base import ApiRequest, ApiResponse, CommandRequest, Key, Name, PageResponse


class SignalRequest(ApiRequest):
    key_field: ClassVar[str] = "idempotency_key"

    label: Name
    key: Name | None = None
    """The key of the signal, such as the label of a run."""
    value: Any = None
    idempotency_key: Key | None = None
    """Idempotency key: a repeated signal with the same key is sent once."""


class FactRequest(CommandRequest):
    fact: Any
    """A record or a pattern, as text or as JSON."""


class ListFactsRequest(ApiRequest):
    pattern: Any = None
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Only that many facts, the newest first. Without it, all facts, the oldest first."""
    before: Name | None = None
    """Only facts that were asserted before this one, the last of the previous page; the newest first."""
    asserted: bool = False
    """Without the facts that are read from definitions and the journals of runs."""


class FactResponse(ApiResponse):
    id: str
    record: list[Any]
    text: str
    by: str
    at: float


class FactPage(PageResponse):
    facts: list[FactResponse] = []
