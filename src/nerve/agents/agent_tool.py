"""Python functions as tools of agents: their schema, their call, and the record of it in the step."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nerve.agents.permissions import Permissions
from nerve.agents.provider import (
    Chunk,
    HostTool,
    PermissionDecision,
    PermissionRequest,
    ToolCall,
    ToolFailed,
    ToolUpdate,
)
from nerve.agents.redaction import Redactor
from nerve.core.input_fields import object_schema, parameter_schema
from nerve.core.json_codec import encode_json, replace_invalid_text
from nerve.core.nodes.attempt import must_propagate
from nerve.core.nodes.daemon_threads import DAEMON_THREADS
from nerve.core.validation import require_callable
from nerve.core.value_codec import FunctionSignature
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_settings import SERVER_NAME

ASK_HUMAN = "ask_human"
"""The tool of Nerve that asks a person."""


class AgentTool:
    """A function that agents can call: its annotations are the schema, its docstring the description.

    Without annotations an argument can be any JSON value. `timeout` is in seconds.
    """

    def __init__(self, fn: Callable[..., Any], id: str | None = None, timeout: float | None = None) -> None:
        self.fn = require_callable("The function of a tool", fn)
        name: str | None = id or getattr(fn, "__name__", None)
        self.name = name or ""
        if not SERVER_NAME.fullmatch(self.name) or self.name == ASK_HUMAN:
            expected = f"a name of letters, digits, '_' and '-', other than '{ASK_HUMAN}'"
            raise ValueError(f"A tool needs {expected}, got {self.name!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout of tool '{self.name}' must be a positive number, got {timeout!r}")
        self.timeout = timeout
        self.signature = FunctionSignature(fn, f"tool '{self.name}'")
        self.description = inspect.getdoc(fn) or self.name
        self._is_async = inspect.iscoroutinefunction(fn)

    @classmethod
    def of(cls, tool: AgentTool | Callable[..., Any]) -> AgentTool:
        """Return the tool of a function."""
        return tool if isinstance(tool, AgentTool) else cls(tool)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        parameters = self.signature.parameters
        required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
        schemas = {name: parameter_schema(self.signature, name, each) for name, each in parameters.items()}
        return object_schema(schemas, required)

    async def call(self, arguments: Mapping[str, Any]) -> str:
        """Return the result as text: a string as it is, any other value as JSON.

        ToolFailed says what the agent can do about wrong arguments, an exception or a timeout. A sync
        function runs in a thread, which is not ended if the call is cancelled.
        """
        try:
            bound = self.signature.decode_arguments(arguments)
        except (ValueError, TypeError) as error:
            raise ToolFailed(str(error)) from None
        try:
            async with asyncio.timeout(self.timeout):
                value = await self._run(bound)
            result = self.signature.result.encode(value)
        except TimeoutError:
            raise ToolFailed(f"The tool '{self.name}' took longer than {self.timeout} seconds") from None
        except Exception as error:
            raise ToolFailed(f"{type(error).__name__}: {error}") from error
        return result if isinstance(result, str) else encode_json(result)

    async def _run(self, bound: inspect.BoundArguments) -> Any:
        if self._is_async:
            return await self.fn(*bound.args, **bound.kwargs)

        def run(_: None) -> Any:
            try:
                return self.fn(*bound.args, **bound.kwargs)
            except BaseException as error:
                if must_propagate(error) or isinstance(error, Exception):
                    raise
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        value = await DAEMON_THREADS.run(run, None, lambda: None)
        return await value if inspect.isawaitable(value) else value


@dataclass(frozen=True, slots=True)
class ToolRecorder:
    """Executes the calls of tools in a step, by its permissions, and records each of them."""

    begin: Callable[[ToolCall], Awaitable[None]]
    """Records a call as an event of the step, and returns when it is on disk."""
    report: Callable[[Chunk], None]
    """Records the outcome of a call."""
    decide: Callable[[PermissionRequest], Awaitable[PermissionDecision]]
    """Asks a person, or decides by the permissions."""
    permissions: Permissions
    allowed: Sequence[str]
    """The tools that need no permission."""
    redactor: Redactor

    def offer(
        self, name: str, description: str, schema: Mapping[str, Any], call: Callable[..., Awaitable[str]]
    ) -> HostTool:
        """Return a tool whose calls are recorded."""

        async def execute(arguments: Mapping[str, Any]) -> str:
            return await self._execute(name, call, replace_invalid_text(arguments))

        return HostTool(description, schema, execute, is_recorded=True)

    async def _execute(self, name: str, call: Callable[..., Awaitable[str]], arguments: Any) -> str:
        id = f"tool-{uuid.uuid4().hex[:12]}"
        given = arguments if isinstance(arguments, Mapping) else {"arguments": arguments}
        await self.begin(ToolCall(name, given, id))
        try:
            decision = await self._decide(PermissionRequest(name, given, is_editable=True))
            if not decision.allow:
                raise ToolFailed(
                    f"Not allowed: {decision.message or 'the permissions do not allow this call'}"
                )
            output = await call(given if decision.edited_input is None else decision.edited_input)
        except ToolFailed as error:
            self.report(ToolUpdate(id, "failed", str(error)))
            raise ToolFailed(self.redactor.redact_text(str(error))) from None
        except asyncio.CancelledError:
            self.report(ToolUpdate(id, "failed", "cancelled"))
            raise
        self.report(ToolUpdate(id, "completed", output))
        return output

    async def _decide(self, request: PermissionRequest) -> PermissionDecision:
        rule = self.permissions.find_rule(*request.tool_uses(), tools=self.allowed)
        if rule.verdict == "allow" and not rule.pattern:
            return PermissionDecision(True)
        return await self.decide(request)
