"""Messages to people: the channels of notifications, and chats."""

from datetime import datetime
from typing import Literal

from nerve.api.models.base import ApiResponse, CommandRequest, Name, Text


class ChannelTestRequest(CommandRequest):
    channel: Name


class ChannelTestResponse(ApiResponse):
    """A test message that a channel has accepted."""

    channel: str
    id: str
    target: str


class ChannelResponse(ApiResponse):
    """A channel of notifications, and what was sent to it."""

    name: str
    kind: str
    target: str
    """Where messages go, without secrets."""
    problem: str | None = None
    """Why no message can be delivered, such as a secret that is missing in the process that answers."""
    sent: int = 0
    last_sent: datetime | None = None
    pending: int = 0
    error: str | None = None
    """Why the last attempt to send the next message failed."""


class NotifyRuleResponse(ApiResponse):
    """Which events are sent to which channels."""

    events: list[str]
    to: list[str]
    workflows: list[str] | None = None
    tags: dict[str, str] = {}
    content: bool = False


class FailedMessageResponse(ApiResponse):
    """A message that was not delivered and is not sent any more."""

    id: str
    channel: str
    event: str
    title: str
    count: int
    created_at: datetime
    failed_at: datetime
    attempts: int
    error: str


class NotificationsResponse(ApiResponse):
    """The channels and rules of notifications, and the newest failures."""

    channels: list[ChannelResponse] = []
    rules: list[NotifyRuleResponse] = []
    pending: int = 0
    """Messages that are not sent yet."""
    failures: list[FailedMessageResponse] = []
    public_url: str | None = None
    """The address of the page in links; without it, messages have no links."""


class ChatMessageRequest(CommandRequest):
    """A message of a person in a chat, or a button that they have pressed."""

    chat: Name
    thread: Name
    account: Name
    text: Text = ""
    addressed: bool = True
    gate: Name | None = None
    choice: int | None = None
    hash: Name | None = None


class ChatResponse(ApiResponse):
    """A chat whose threads are conversations, and what was received and sent there."""

    name: str
    kind: str
    target: str
    """The account that writes there, and the places, without secrets."""
    delivery: Literal["webhook", "polling"]
    """How messages of people arrive."""
    content: bool
    problem: str | None = None
    """Why messages cannot be sent or received, such as a missing secret."""
    received: int = 0
    """Messages of people that have no reply yet."""
    sent: int = 0
    last_sent: datetime | None = None
    pending: int = 0
    """Messages that are not sent yet."""
    error: str | None = None
    """Why the last attempt to send the next message failed."""


class FailedChatMessageResponse(ApiResponse):
    """A message that was not delivered to a thread and is not sent any more."""

    id: str
    chat: str
    thread: str
    event: str
    failed_at: datetime
    error: str


class ChatPage(ApiResponse):
    """The chats of a project, and the newest messages that were not delivered."""

    chats: list[ChatResponse] = []
    failures: list[FailedChatMessageResponse] = []
    public_url: str | None = None


class ReceivedChatResponse(ApiResponse):
    """Whether a message of a chat is stored to be replied to."""

    accepted: bool


class ChatRepliesResponse(ApiResponse):
    """The replies to a message of a chat."""

    replies: list[str]
