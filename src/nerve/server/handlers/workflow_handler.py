"""WorkflowHandler: workflow commands as methods, for the sessions of a registry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from nerve.api import Api, ApiError, command_protocol
from nerve.core.events import Sink
from nerve.session import Session


class SessionRegistry(Protocol):
    """Finds sessions by id; without an id, returns the default session."""

    def get_session(self, session_id: str | None = None) -> Session:
        """Return the session with this id, or raise ValueError."""


class WorkflowHandler:
    """Each method takes the parameters of a command and returns its reply, or raises ValueError.

    `event_sink` receives the events of all runs in the sessions used so far.
    """

    def __init__(self, session_registry: SessionRegistry, event_sink: Sink | None = None) -> None:
        self.session_registry, self.event_sink = session_registry, event_sink
        self._apis: WeakKeyDictionary[Session, Api] = WeakKeyDictionary()

    async def execute_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run of `workflow_id`; with `wait`, return when it ends or waits for an answer."""
        return await self._run_command(command_protocol.execute_workflow, params)

    async def list_workflows(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workflows of the session."""
        return await self._run_command(command_protocol.list_workflows, params)

    async def get_workflow_run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run `run_id` with its state, result or error, and open gates."""
        return await self._run_command(command_protocol.get_workflow_run, params)

    async def list_workflow_runs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the runs of the session, filtered by `workflow_id` and `state` if given."""
        return await self._run_command(command_protocol.list_workflow_runs, params)

    async def answer_gate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the open gate of `run_id`, or the gate `gate_id`, with `answer`."""
        return await self._run_command(command_protocol.answer_gate, params)

    async def workflow_input(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the gate `gate_id` of `run_id` with `input`."""
        return await self._run_command(command_protocol.workflow_input, params)

    async def cancel_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Stop the run `run_id`."""
        return await self._run_command(command_protocol.cancel_workflow, params)

    async def pause_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Pause the run `run_id`; running steps finish."""
        return await self._run_command(command_protocol.pause_workflow, params)

    async def resume_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Resume the paused run `run_id`."""
        return await self._run_command(command_protocol.resume_workflow, params)

    async def subscribe_workflow(self, params: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the past and new events of the run `run_id` until it ends."""
        try:
            async for event in command_protocol.subscribe_workflow(self._api_for(params), params):
                yield event
        except ApiError as error:
            raise ValueError(error.message) from error

    start_workflow = execute_workflow
    stop_workflow = cancel_workflow
    workflow_status = get_workflow_run

    async def _run_command(
        self,
        command: Callable[[Api, Mapping[str, Any]], Awaitable[dict[str, Any]]],
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        try:
            return await command(self._api_for(params), params)
        except ApiError as error:
            raise ValueError(error.message) from error

    def _api_for(self, params: Mapping[str, Any]) -> Api:
        session = self.session_registry.get_session(params.get("session_id"))
        if self.event_sink is not None and self.event_sink not in session.engine.sinks:
            session.engine.sinks.append(self.event_sink)
        return self._apis.setdefault(session, Api(session))
