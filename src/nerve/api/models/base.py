"""The base classes of requests and responses, and the types of their fields."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

from nerve.api.callers import LOCAL_CALLER, Caller
from nerve.api.pending_reply import PendingReply
from nerve.store.port import ReplyRow

Text = Annotated[str, Field(max_length=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Key = Annotated[str, Field(min_length=1, max_length=256)]
NameList = Annotated[
    list[Name],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(max_length=32),
]
"""Names; a single one may be given without a list. A query repeats the parameter."""


class ApiRequest(BaseModel):
    """A request; unknown fields are rejected. The caller is not part of it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    key_field: ClassVar[str] = ""
    """The field with the idempotency key."""

    _caller: Caller = PrivateAttr(default=LOCAL_CALLER)
    _reply: PendingReply | None = PrivateAttr(default=None)

    @property
    def caller(self) -> Caller:
        """The sender of the request: this program if no server has received it."""
        return self._caller

    @property
    def pending_reply(self) -> PendingReply | None:
        """The reply that the store keeps for the idempotency key; None without a key."""
        return self._reply

    def set_caller(self, caller: Caller) -> None:
        self._caller = caller

    def set_pending_reply(self, reply: PendingReply) -> None:
        self._reply = reply

    def reply_maker(self, respond: "Callable[[Any], ApiResponse]") -> Callable[[Any], ReplyRow] | None:
        """Return a function that makes the reply row of an effect, to store with it; None without a key."""
        reply = self._reply
        return None if reply is None else lambda effect: reply.completed_row(respond(effect))

    @property
    def request_key(self) -> str | None:
        """The idempotency key, if there is one."""
        return getattr(self, self.key_field) if self.key_field else None


class CommandRequest(ApiRequest):
    key_field: ClassVar[str] = "key"

    key: Key | None = None
    """Idempotency key: a repeated command with the same key returns the first reply."""


class EmptyRequest(ApiRequest):
    pass


class ApiResponse(BaseModel):
    """A response; later versions may add fields."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class DoneResponse(ApiResponse):
    done: bool = True


class PageResponse(ApiResponse):
    """A page of a list, and whether there is more."""

    more: bool = False


ProblemFields = Annotated[
    dict[str, Any],
    Field(
        json_schema_extra={
            "properties": {
                **{name: {"type": "string"} for name in ("file", "message", "fix")},
                **{name: {"type": "integer"} for name in ("line", "column")},
                "severity": {"type": "string", "enum": ["error", "warning", "note"]},
            },
            "required": ["file", "line", "column", "severity", "message", "fix"],
        }
    ),
]
"""A problem of a definition."""
