"""The command protocol of the seeds: both vocabularies, mapped to API operations."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, NamedTuple

from nerve.api import OPERATIONS, Api, ApiError, errors
from nerve.api.errors import InvalidRequest, RunNotFound
from nerve.api.event_hub import EventFrame
from nerve.api.models import AnswerResponse, GateResponse, RunPage, RunResponse, WorkflowPage
from nerve.api.permissions import check_permission
from nerve.api.request_parsing import add_idempotency_key, parse_request
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass

log = logging.getLogger("nerve")


class CommandType(StrEnum):
    """The type of a command, case-insensitive."""

    EXECUTE_WORKFLOW = "EXECUTE_WORKFLOW"
    LIST_WORKFLOWS = "LIST_WORKFLOWS"
    GET_WORKFLOW_RUN = "GET_WORKFLOW_RUN"
    LIST_WORKFLOW_RUNS = "LIST_WORKFLOW_RUNS"
    ANSWER_GATE = "ANSWER_GATE"
    CANCEL_WORKFLOW = "CANCEL_WORKFLOW"

    START_WORKFLOW = "start_workflow"
    STOP_WORKFLOW = "stop_workflow"
    PAUSE_WORKFLOW = "pause_workflow"
    RESUME_WORKFLOW = "resume_workflow"
    WORKFLOW_STATUS = "workflow_status"
    WORKFLOW_INPUT = "workflow_input"
    SUBSCRIBE_WORKFLOW = "subscribe_workflow"

    @classmethod
    def _missing_(cls, value: object) -> CommandType | None:
        member_name = str(value).upper()
        return cls.__members__.get(member_name)


@dataclass(frozen=True)
class Command:
    """A command and its parameters, for `Client.send_command`."""

    type: CommandType | str
    params: Mapping[str, Any] = field(default_factory=dict)


Params = Mapping[str, Any]
MAX_LISTED_RUNS = 1000
"""Maximum number of runs in a list."""


class CommandRule(NamedTuple):
    """The operation of a command, the field of the operation that each parameter sets, and the reply."""

    operation: str
    fields: Mapping[str, str]
    required: tuple[str, ...]
    make_reply: Callable[[Any, Params], dict[str, Any]] | None
    """None for a command that needs a streaming connection."""
    fixed_fields: Mapping[str, Any] = {}

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    def arguments(self, params: Params) -> dict[str, Any]:
        """Return the fields of the operation; null means omitted, except for an answer."""
        return dict(self.fixed_fields) | {
            field: params[name]
            for name, field in self.fields.items()
            if params.get(name) is not None or (name in params and field == "answer")
        }

    def find_missing(self, arguments: Mapping[str, Any]) -> str | None:
        return next((name for name in self.required if self.fields[name] not in arguments), None)


def started_reply(run: RunResponse, params: Params) -> dict[str, Any]:
    """Return the reply to a start; with `wait`, it has the outcome or the open gates."""
    reply: dict[str, Any] = {"run_id": run.run_id, "workflow_id": run.workflow, "state": run.state}
    if not params.get("wait"):
        return reply | {"status": "started"}
    if run.state == "completed":
        reply["result"] = run.result
    elif run.state in ("failed", "cancelled"):
        reply["error"] = run.error or run.state
    if run.gates:
        reply |= {
            "gate": legacy_gate_fields(run.gates[0]),
            "gates": [legacy_gate_fields(gate) for gate in run.gates],
        }
    return reply | {"status": run.state} | ({"held": run.held} if run.held else {})


def workflows_reply(page: WorkflowPage, params: Params) -> dict[str, Any]:
    return {"workflows": [workflow.model_dump(mode="json") for workflow in page.workflows]}


def run_reply(run: RunResponse, params: Params) -> dict[str, Any]:
    return {"run": legacy_run_fields(run), "run_id": run.run_id, "state": run.state, "status": run.state}


def runs_reply(page: RunPage, params: Params) -> dict[str, Any]:
    """Return the runs, newest last."""
    return {"runs": [legacy_run_fields(run) for run in reversed(page.runs)], "more": page.more}


def answered_reply(answer: AnswerResponse, params: Params) -> dict[str, Any]:
    return {"success": True, "status": "input_sent", "run_id": answer.run_id, "gate_id": answer.gate_id}


def run_status_reply(run: RunResponse, status: str) -> dict[str, Any]:
    return {"success": True, "status": status, "run_id": run.run_id, "state": run.state}


def stopped_reply(run: RunResponse, params: Params) -> dict[str, Any]:
    return run_status_reply(run, run.state if run.state in ("completed", "failed") else "stopped")


START_RULE = CommandRule(
    "start",
    {"workflow_id": "workflow", "input": "input", "params": "params", "wait": "wait", "key": "key"},
    ("workflow_id",),
    started_reply,
)
ANSWER_RULE = CommandRule(
    "answer",
    {
        "run_id": "run",
        "gate_id": "gate",
        "answer": "answer",
        "input": "answer",
        "reason": "reason",
        "key": "key",
    },
    ("answer", "run_id"),
    answered_reply,
)
SHOW_RUN_RULE = CommandRule("run", {"run_id": "run"}, ("run_id",), run_reply)
STOP_RULE = CommandRule(
    "stop", {"run_id": "run", "reason": "reason", "key": "key"}, ("run_id",), stopped_reply
)
PAUSE_RULE = CommandRule(
    "pause", {"run_id": "run", "key": "key"}, ("run_id",), lambda run, _: run_status_reply(run, "paused")
)

COMMAND_RULES = {
    CommandType.EXECUTE_WORKFLOW: START_RULE,
    CommandType.START_WORKFLOW: START_RULE,
    CommandType.LIST_WORKFLOWS: CommandRule("workflows", {}, (), workflows_reply),
    CommandType.GET_WORKFLOW_RUN: SHOW_RUN_RULE,
    CommandType.WORKFLOW_STATUS: SHOW_RUN_RULE,
    CommandType.LIST_WORKFLOW_RUNS: CommandRule(
        "runs", {"workflow_id": "workflow", "state": "state"}, (), runs_reply, {"limit": MAX_LISTED_RUNS}
    ),
    CommandType.ANSWER_GATE: ANSWER_RULE,
    CommandType.WORKFLOW_INPUT: ANSWER_RULE._replace(required=("input", "run_id")),
    CommandType.CANCEL_WORKFLOW: STOP_RULE,
    CommandType.STOP_WORKFLOW: STOP_RULE,
    CommandType.PAUSE_WORKFLOW: PAUSE_RULE,
    CommandType.RESUME_WORKFLOW: PAUSE_RULE._replace(
        operation="resume", make_reply=lambda run, _: run_status_reply(run, "resumed")
    ),
    CommandType.SUBSCRIBE_WORKFLOW: CommandRule(
        "events", {"run_id": "run", "after": "after"}, ("run_id",), None
    ),
}


async def execute_command(api: Api, kind: CommandType, params: Params) -> dict[str, Any]:
    """Execute a command and return its reply; raise ApiError if it fails."""
    rule = COMMAND_RULES[kind]
    arguments = rule.arguments(params)
    if (missing := rule.find_missing(arguments)) is not None:
        check_permission(api.caller, OPERATIONS[rule.operation], arguments)
        raise ApiError("bad_request", f"Missing required parameter: {missing}")
    if rule.make_reply is None:
        fix = "Use GET /events/workflow/{run_id}, or subscribe on the WebSocket /ws."
        raise ApiError("bad_request", f"{kind.value} requires a streaming connection", fix)
    try:
        return rule.make_reply(await api.perform(rule.operation, arguments), params)
    except RunNotFound as error:
        if kind is not CommandType.WORKFLOW_INPUT:
            raise
        raise ApiError(error.code, f"No active run: {params['run_id']}", error.fix) from error


def subscribe_workflow(api: Api, params: Params) -> AsyncGenerator[list[EventFrame], None]:
    """Return the recorded and then the new events of a run in batches, until it ends."""
    rule = COMMAND_RULES[CommandType.SUBSCRIBE_WORKFLOW]
    arguments = rule.arguments(params)
    if (missing := rule.find_missing(arguments)) is not None:
        raise ApiError("bad_request", f"Missing required parameter: {missing}")
    request: Any = parse_request(OPERATIONS[rule.operation], arguments)
    return api.hub.watch_run(request.run, request.after)


async def handle_command(api: Api, command: Mapping[str, Any]) -> dict[str, Any]:
    """Execute `{"type": …, "params": {…}}`; return `success` with `data`, or with `error` and `code`."""
    try:
        kind, params = parse_command(api, command)
        reply = {"success": True, "data": await execute_command(api, kind, params)}
    except ApiError as error:
        reply = error_reply(with_command_names(error, command))
    return with_request_id(command, reply)


def parse_command(api: Api, command: Mapping[str, Any]) -> tuple[CommandType, Params]:
    """Return the type and parameters of a command, or raise ApiError."""
    try:
        kind = CommandType(str(command.get("type")))
    except ValueError:
        known = [command_type.value for command_type in CommandType]
        hint = did_you_mean_hint(str(command.get("type")).upper(), [name.upper() for name in known])
        message = f"Unknown command '{command.get('type')}'{hint}"
        raise ApiError("bad_request", message, f"Commands: {', '.join(known)}.") from None
    params = {} if command.get("params") is None else command["params"]
    if not isinstance(params, Mapping):
        raise ApiError("bad_request", f"{kind}: params must be an object")
    accepted = COMMAND_RULES[kind].parameter_names
    if unknown := [name for name in params if name not in (*accepted, "session_id")]:
        message = f"Unknown parameter '{unknown[0]}' for {kind}{did_you_mean_hint(unknown[0], accepted)}"
        raise InvalidRequest("bad_request", message, accepted)
    session = params.get("session_id") or command.get("session_id")
    if session not in (None, "default", api.session.name):
        raise ApiError("not_found", f"Session '{session}' not found", f"Available: {api.session.name}.")
    return kind, params


def with_command_names(error: ApiError, command: Mapping[str, Any]) -> ApiError:
    """Return an error about parameters with the parameter names of the command."""
    if not isinstance(error, InvalidRequest):
        return error
    return InvalidRequest(
        error.code, error.message, COMMAND_RULES[CommandType(str(command["type"]))].parameter_names
    )


def with_idempotency_key(command: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Return the command with the key of the Idempotency-Key header, if it accepts one."""
    try:
        accepted = COMMAND_RULES[CommandType(str(command.get("type")))].parameter_names
    except ValueError:
        accepted = ()
    params = {} if command.get("params") is None else command["params"]
    if "key" in accepted and isinstance(params, dict):
        add_idempotency_key(params, "key", key)
        return command | {"params": params}
    return command


def convert_and_log_error(error: Exception) -> ApiError:
    """Convert an exception to an ApiError, and log unexpected ones."""
    api_error = errors.to_api_error(error)
    if api_error.code == "internal":
        log.error("command failed", exc_info=error)
    return api_error


def error_reply(error: ApiError) -> dict[str, Any]:
    return {"success": False, "error": error.message, **error.to_dict()}


def with_request_id(command: Mapping[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """Return the reply with the `request_id` of the command, if it has one."""
    return reply | ({"request_id": command["request_id"]} if "request_id" in command else {})


def legacy_gate_fields(gate: GateResponse) -> dict[str, Any]:
    return gate.model_dump(mode="json", exclude_none=True) | {"choices": gate.choices}


def legacy_run_fields(run: RunResponse) -> dict[str, Any]:
    """Return a run with the field names of the seeds."""
    fields = run.model_dump(mode="json")
    gates = [legacy_gate_fields(gate) for gate in run.gates]
    pending = {name: gates[0][name] for name in ("gate_id", "prompt", "choices")} if gates else None
    return fields | {
        "workflow_id": run.workflow,
        "completed_at": fields["ended_at"],
        "status": run.state,
        "pending_gate": pending,
        "pending_gates": gates,
    }
