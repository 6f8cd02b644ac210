"""WorkflowHandler: workflow commands as methods, for the sessions of a registry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from nerve.api import Api, ApiError
from nerve.api.command_protocol import CommandType, execute_command, subscribe_workflow
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
        return await self._run_command(CommandType.EXECUTE_WORKFLOW, params)

    async def list_workflows(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workflows of the session."""
        return await self._run_command(CommandType.LIST_WORKFLOWS, params)

    async def get_workflow_run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run `run_id` with its state, result or error, and open gates."""
        return await self._run_command(CommandType.GET_WORKFLOW_RUN, params)

    async def list_workflow_runs(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the runs of the session, filtered by `workflow_id` and `state` if given."""
        return await self._run_command(CommandType.LIST_WORKFLOW_RUNS, params)

    async def answer_gate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the open gate of `run_id`, or the gate `gate_id`, with `answer`."""
        return await self._run_command(CommandType.ANSWER_GATE, params)

    async def workflow_input(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the gate `gate_id` of `run_id` with `input`."""
        return await self._run_command(CommandType.WORKFLOW_INPUT, params)

    async def cancel_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Stop the run `run_id`."""
        return await self._run_command(CommandType.CANCEL_WORKFLOW, params)

    async def pause_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Pause the run `run_id`; running steps finish."""
        return await self._run_command(CommandType.PAUSE_WORKFLOW, params)

    async def resume_workflow(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Resume the paused run `run_id`."""
        return await self._run_command(CommandType.RESUME_WORKFLOW, params)

    async def subscribe_workflow(self, params: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the past and new events of the run `run_id` until it ends."""
        try:
            async for frames in subscribe_workflow(self._api_for(params), params):
                for frame in frames:
                    yield frame.response.model_dump(mode="json")
        except ApiError as error:
            raise ValueError(error.message) from error

    start_workflow = execute_workflow
    stop_workflow = cancel_workflow
    workflow_status = get_workflow_run

    async def _run_command(self, kind: CommandType, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return await execute_command(self._api_for(params), kind, params)
        except ApiError as error:
            raise ValueError(error.message) from error

    def _api_for(self, params: Mapping[str, Any]) -> Api:
        session = self.session_registry.get_session(params.get("session_id"))
        if self.event_sink is not None and self.event_sink not in session.engine.sinks:
            session.engine.sinks.append(self.event_sink)
        return self._apis.setdefault(session, Api(session))
