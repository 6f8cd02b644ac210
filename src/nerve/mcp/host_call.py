"""The call of a tool by a host: progress and questions on the way back to its user."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import mcp_types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from nerve.client import Client
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

QUESTION_KEY = "answer"
"""The key of the only question that a call asks."""


class QuestionForUser(Exception):
    """A host of the current protocol asks its user, and then repeats the call with the reply."""

    def __init__(self, result: mcp_types.InputRequiredResult) -> None:
        super().__init__("the host has to ask its user")
        self.result = result


@dataclass(frozen=True, slots=True)
class UserReply:
    """What the user of a host has replied to a question."""

    is_accepted: bool
    content: dict[str, Any]
    state: str
    """The text that was given with the question."""


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call of a tool that is being executed."""

    context: ServerRequestContext[Any, Any]
    params: mcp_types.CallToolRequestParams

    async def report_progress(self, count: int, message: str) -> None:
        """Send a progress notification, if the host has asked for them."""
        await self.context.session.report_progress(count, message=message)

    @property
    def can_ask_user(self) -> bool:
        """Whether the host can show a form to its user."""
        capabilities = self.context.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        # A host that names no mode shows forms, which were the only mode once.
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    async def ask_user(self, message: str, schema: dict[str, Any], state: str) -> UserReply:
        """Return the reply of the user of the host; raise QuestionForUser if the host has to call again."""
        reply = (self.params.input_responses or {}).get(QUESTION_KEY)
        if isinstance(reply, mcp_types.ElicitResult):
            return UserReply(
                reply.action == "accept", dict(reply.content or {}), self.params.request_state or ""
            )
        if self.context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            form = mcp_types.ElicitRequestFormParams(message=message, requested_schema=schema)
            question = mcp_types.ElicitRequest(params=form)
            raise QuestionForUser(
                mcp_types.InputRequiredResult(input_requests={QUESTION_KEY: question}, request_state=state)
            )
        result = await self.context.session.elicit_form(message, schema, self.context.request_id)
        return UserReply(result.action == "accept", dict(result.content or {}), state)


HOST_CALL: ContextVar[HostCall] = ContextVar("HOST_CALL")
"""The call that the current task executes."""
CURRENT_CLIENT: ContextVar[Client] = ContextVar("CURRENT_CLIENT")
"""The API, for the sender of the request that the current task handles."""
