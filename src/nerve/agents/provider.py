"""The provider port: how to query an agent, and the chunks it returns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, Protocol

from nerve.agents.permissions import PermissionRule, Permissions
from nerve.agents.tool_patterns import ToolUse
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass

NO_PERMISSIONS = Permissions()

# -- chunks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ThreadStarted:
    """The conversation has an id and can be resumed after a crash. The first chunk of every turn."""

    thread: str


@dataclass(frozen=True, slots=True)
class AssistantText:
    """A message of the agent; a `partial` one is a part of a message that follows in full."""

    content: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning of the agent before its answer."""

    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The agent calls a tool."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolUpdate:
    """Progress or outcome of a tool call."""

    id: str
    status: Literal["running", "completed", "failed"]
    output: str = ""


@dataclass(frozen=True, slots=True)
class PlanUpdate:
    """The agent's plan: entries with `content` and `status`."""

    entries: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """The usage of one turn; None means unknown, not zero."""

    input_tokens: int | None = None
    """Excludes tokens read from or written to a cache."""
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    """In US dollars, as the provider reported it."""
    model: str | None = None
    inferred: bool = False
    """Whether the cost is derived from ambiguous totals instead of reported for the turn."""
    parts: Sequence[TurnUsage] = ()
    """The usage of each model, the main one first, if there were several."""


TurnOutcome = Literal["completed", "interrupted", "failed", "limited"]


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The end of a turn, with its outcome; a turn without this chunk crashed."""

    thread: str
    usage: TurnUsage | Mapping[str, Any] | None = None
    outcome: TurnOutcome = "completed"
    error: str = ""
    structured: Any = None
    """The answer as structured data, if the provider supplies it."""
    resets_at: float | None = None
    """When the rate limit ends, as a Unix timestamp; with the outcome `limited`."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    """Counters over the whole conversation; the next turn receives them."""


Chunk = (
    ThreadStarted | AssistantText | Reasoning | ToolCall | ToolUpdate | PlanUpdate | TurnUsage | TurnFinished
)


# -- requests of an agent --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A request of the agent to use a tool that needs permission."""

    tool: str
    input: Mapping[str, Any]
    reason: str = ""
    cwd: str = ""
    """The working directory of the call, if the agent reports it."""
    names: Sequence[str] = ()
    """Other names of the tool."""
    is_editable: bool = False
    """Whether the agent's program can run the tool with another input than it has requested."""

    def with_cwd_in(self, folder: str) -> PermissionRequest:
        """Return the request with an absolute working directory."""
        return replace(self, cwd=os.path.abspath(os.path.join(folder, self.cwd)))

    def tool_uses(self) -> list[ToolUse]:
        """The tool call under each name that a pattern may use."""
        return [ToolUse(name, self.input, self.cwd) for name in (self.tool, *self.names)]


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """Whether the call is allowed; `message` tells the agent why it is not."""

    allow: bool
    message: str = ""
    edited_input: Mapping[str, Any] | None = None
    """The input to run the tool with; None for that of the request."""


AskPermission = Callable[[PermissionRequest], Awaitable[PermissionDecision]]


async def deny_permission(permission: PermissionRequest) -> PermissionDecision:
    return PermissionDecision(False, "no one is available to allow it")


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool that Nerve offers to the agent; `call` may wait for a person's answer."""

    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str]]
    """Returns the output; `ToolFailed` is an error for the agent, any other exception ends the turn."""
    is_recorded: bool = False
    """Whether the call records itself, so that the provider must not report it."""


def unrecorded_tool(
    name: str, description: str, schema: Mapping[str, Any], call: Callable[..., Awaitable[str]]
) -> HostTool:
    return HostTool(description, schema, call)


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Settings of a query. A provider ignores those that its capabilities exclude."""

    model: str | None = None
    system: str | None = None
    tools: Sequence[str] | None = None
    """The tools that the agent may use without permission; None leaves that to the agent's program."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer."""
    thread: str | None = None
    """The id for a new conversation, if the provider supports choosing one."""
    fork: bool = False
    """Continue in a copy of the conversation and leave the original unchanged."""
    totals: Mapping[str, Any] = field(default_factory=dict)
    ask: AskPermission = deny_permission
    host_tools: Mapping[str, HostTool] = field(default_factory=dict)
    record_tool: Callable[..., HostTool] = unrecorded_tool
    """Returns a tool that obeys the permissions and records its calls, for a provider that executes tools."""
    max_turns: int | None = None
    steering: asyncio.Queue[str] | None = None
    """User messages during the turn, for a provider that can `steer`."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the minimal environment of the agent's process."""

    effort: str | None = None
    """How much the model thinks, by a name in `Capabilities.effort`."""
    mcp: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """MCP servers by name, each with `command`, `args` and `env`, or with `url` and `headers`."""
    skills: bool | Sequence[str] | None = None
    """Whether the agent uses the skills of the project, or which; None means all."""
    hooks: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """By event, hooks with `command`, `matcher` and `timeout`."""
    subagents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Agents that the agent can give tasks to, by name, with the keys of `SUBAGENT_KEYS`."""
    instructions: bool | None = None
    """Whether the agent reads the instruction files of the project; None means yes."""

    permissions: Permissions = NO_PERMISSIONS
    """The rules that apply before anyone is asked; a provider that cannot enforce them must refuse."""

    def find_rule(self, request: PermissionRequest) -> PermissionRule:
        """Return the rule known before anyone is asked."""
        return self.permissions.find_rule(*request.tool_uses(), tools=self.tools or ())

    async def decide(self, request: PermissionRequest) -> PermissionDecision:
        """Decide a call for which the agent requests permission."""
        rule = self.find_rule(request)
        if rule.verdict == "allow" and not rule.pattern:
            return PermissionDecision(True)
        return await self.ask(request)

    def explicit_settings(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults."""
        fields = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("ask", "host_tools", "permissions", "record_tool", "steering")
        }
        switches = ("skills", "instructions")  # False is one of their values
        return {
            name: value
            for name, value in fields.items()
            if value is not None and (name in switches or value not in (False, {}))
        }


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a provider."""

    resume: bool = False
    fork: bool = False
    names_threads: bool = False
    """Whether a new conversation gets the id in `QueryOptions.thread`."""
    steer: bool = False
    """Whether it reads `QueryOptions.steering` during a turn."""
    schema: bool = False
    cost: bool = False
    permissions: bool = False
    """Whether it asks before it uses a tool that is not allowed."""
    host_tools: bool = False
    """Whether it can call tools that Nerve offers."""
    has_tools: bool = True
    """Whether its agents have tools of their own, which `QueryOptions.tools` can name."""
    ask_human: bool = True
    """Whether agents with `host_tools` get the tool `ask_human` without naming it in `tools`."""
    mcp: bool = False
    """Whether it can use MCP servers."""
    skills: bool = False
    """Whether it can use the skills of a project."""
    subagents: bool = False
    """Whether the agent can give tasks to agents that a step defines."""
    effort: tuple[str, ...] = ()
    """The values of `QueryOptions.effort`."""
    hooks: tuple[str, ...] = ()
    """The events at which its program can run hooks."""
    instructions: tuple[str, ...] = ()
    """The instruction files of a project that it reads."""
    reads_on_its_own: bool = False
    """Whether its agent reads instruction files and skills in its own way, which Nerve cannot change."""
    modes: tuple[str, ...] = ()
    """The permission modes that it can enforce."""
    edit_tools: tuple[str, ...] = ()
    """The tools that edit files, which the mode `edits` allows in the folder of the agent."""
    read_tools: tuple[str, ...] = ()
    """The only tools that the mode `read` allows; a provider without them enforces that mode itself."""
    any_settings: bool = False
    """Whether it accepts every setting, as a provider for tests does."""


class Provider(Protocol):
    """Drives one kind of agent, independently of workflows.

    A provider that needs a program may have a method `check()`, which raises `Unavailable` if it is missing.
    Every turn ends with `TurnFinished`; an iterator that ends or raises without it means an agent crash.
    Closing the iterator interrupts the agent and ends all its processes.
    """

    name: str
    capabilities: Capabilities

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        """Query in a new conversation, or resume the one with the id `resume`."""
        ...


class AgentEnded(NerveError):
    """The program of the agent ended, or its output did, before the end of its turn."""


class ToolFailed(NerveError):
    """A call of a tool failed; the agent gets the message and can try something else."""


class Unavailable(NerveError):
    """A program or library that a provider needs is missing; the message says how to install it."""
