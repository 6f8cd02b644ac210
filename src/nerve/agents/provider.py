"""The provider port: how any kind of agent is asked, and what it says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from nerve.agents.permissions import Permissions, Verdict
from nerve.agents.tool_patterns import ToolUse, pattern_allows
from nerve.errors import NerveError

NO_PERMISSIONS = Permissions()

# -- what an agent says ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ThreadStarted:
    """The conversation has a name; with it, it can be gone on with after a crash. Nothing is asked before."""

    thread: str


@dataclass(frozen=True, slots=True)
class AssistantText:
    """A message of the agent; a `partial` one is a piece of a message that follows as a whole."""

    content: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the agent thinks before it answers."""

    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The agent calls a tool."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolUpdate:
    """What became of a tool call."""

    id: str
    status: Literal["running", "completed", "failed"]
    output: str = ""


@dataclass(frozen=True, slots=True)
class PlanUpdate:
    """What the agent means to do: entries with `content` and `status`."""

    entries: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """What a turn took, and nothing before it; None is unknown, and not nothing."""

    input_tokens: int | None = None
    """Without those that were read from a cache or written to it."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    """In US dollars, as the provider reported it."""
    model: str | None = None
    inferred: bool = False
    """Whether the cost is not told for the turn but follows from totals that can be read in two ways."""
    parts: Sequence[TurnUsage] = ()
    """What each model took, the main one first, where there were several."""


TurnOutcome = Literal["completed", "interrupted", "failed", "limited"]


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn is over. Only this says how; without it the agent crashed."""

    thread: str
    usage: TurnUsage | Mapping[str, Any] | None = None
    outcome: TurnOutcome = "completed"
    error: str = ""
    structured: Any = None
    """The answer in the form that was asked for, if the provider gives it."""
    resets_at: float | None = None
    """When a limit ends, in seconds since 1970; with the outcome `limited`."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    """What the provider counts over the whole conversation, to be handed in with the next turn."""


Chunk = (
    ThreadStarted | AssistantText | Reasoning | ToolCall | ToolUpdate | PlanUpdate | TurnUsage | TurnFinished
)


# -- what an agent may ask -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """The agent wants to use a tool and is not allowed to by itself."""

    tool: str
    input: Mapping[str, Any]
    reason: str = ""
    cwd: str = ""
    """Where, if the agent says so."""
    names: Sequence[str] = ()
    """What else the tool is called."""

    def with_cwd_in(self, folder: str) -> PermissionRequest:
        """The same, with the whole path of where it is to be done."""
        return replace(self, cwd=os.path.abspath(os.path.join(folder, self.cwd)))

    def tool_uses(self) -> list[ToolUse]:
        """The tool, under each name that a pattern may give it."""
        return [ToolUse(name, self.input, self.cwd) for name in (self.tool, *self.names)]


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """Whether it may; `message` tells the agent why not."""

    allow: bool
    message: str = ""


AskPermission = Callable[[PermissionRequest], Awaitable[PermissionDecision]]
"""Decides; with an attribute `permissions`, of what is to hold although the agent would not ask."""


async def deny_permission(permission: PermissionRequest) -> PermissionDecision:
    return PermissionDecision(False, "nobody is there to allow it")


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool of ours that the agent may call; `call` may take as long as a person takes to answer."""

    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How a prompt is to be answered. A provider leaves alone what it cannot do, as its capabilities say."""

    model: str | None = None
    system: str | None = None
    tools: Sequence[str] | None = None
    """The tools that may be used without asking; None leaves that to the agent program."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer."""
    thread: str | None = None
    """The name that a new conversation is to have, where the provider lets it be chosen."""
    fork: bool = False
    """Go on with a copy of the conversation, and leave the original as it is."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    ask: AskPermission = deny_permission
    host_tools: Mapping[str, HostTool] = field(default_factory=dict)
    max_turns: int | None = None
    steering: asyncio.Queue[str] | None = None
    """What people say while the turn goes on, for a provider that can `steer`."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the few variables that the agent's process gets."""

    @property
    def permissions(self) -> Permissions:
        """What is said of tools before anybody is asked; a provider that cannot keep to it must refuse."""
        policy: Permissions = getattr(self.ask, "permissions", NO_PERMISSIONS)
        return policy

    def settled(self, request: PermissionRequest) -> Verdict | None:
        """What is certain of a call before anybody is asked: None leaves it to the agent's program."""
        verdict, _ = self.permissions.matching_rule(*request.tool_uses())
        if verdict is not None:
            return verdict
        if any(pattern_allows(tool, use) for tool in self.tools or () for use in request.tool_uses()):
            return "allow"
        return self.permissions.otherwise

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        """Whether a call that the agent asks about may be made."""
        if (
            self.settled(request) == "allow"
            and self.permissions.matching_rule(*request.tool_uses())[0] is None
        ):
            return PermissionDecision(True)
        return await self.ask(request)

    def explicit_settings(self) -> dict[str, Any]:
        """The settings that were made."""
        fields = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("ask", "host_tools", "steering")
        }
        return {name: value for name, value in fields.items() if value not in (None, False, {})}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a provider can do."""

    resume: bool = False
    fork: bool = False
    names_threads: bool = False
    """Whether a new conversation gets the name that was chosen for it."""
    steer: bool = False
    """Whether it hears `Options.words` in the middle of a turn."""
    schema: bool = False
    cost: bool = False
    permissions: bool = False
    """Whether it asks before it uses a tool that is not allowed."""
    host_tools: bool = False
    """Whether it can call tools of ours."""


class Provider(Protocol):
    """Drives one kind of agent; it never knows that there is a workflow.

    One that needs a program may have a method `check()`, which raises `Unavailable` where that is missing.
    Every turn ends with `Done`; an iterator that ends or raises before it is an agent that crashed.
    Closing the iterator interrupts the agent, and leaves none of its processes behind.
    """

    name: str
    capabilities: Capabilities

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        """Ask in a new conversation, or go on with the one named `resume`."""
        ...


class Unavailable(NerveError):
    """The program or library that a provider needs is not there; the message says how to get it."""
