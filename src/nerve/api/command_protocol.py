"""The command protocol of the seeds: both vocabularies, mapped to API operations."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from nerve.api import OPERATIONS, Api, ApiError, errors
from nerve.api.errors import InvalidRequest, RunNotFound
from nerve.api.models import GateResponse, RunResponse
from nerve.api.operations import Scope
from nerve.api.request_parsing import add_idempotency_key, parse_request
from nerve.core.suggest import did_you_mean_hint

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


async def execute_workflow(api: Api, params: Params) -> dict[str, Any]:
    """Start a run. With `wait`, return when it ends or waits at a gate."""
    arguments = pick_parameters(params, "input", "params", "key", "wait")
    run = await api.start(workflow=require_parameter(params, "workflow_id"), **arguments)
    reply: dict[str, Any] = {"run_id": run.run_id, "workflow_id": run.workflow, "state": run.state}
    if not arguments.get("wait"):
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


async def list_workflows(api: Api, params: Params) -> dict[str, Any]:
    return {"workflows": [workflow.model_dump(mode="json") for workflow in (await api.workflows()).workflows]}


async def get_workflow_run(api: Api, params: Params) -> dict[str, Any]:
    run = await api.run(run=require_parameter(params, "run_id"))
    return {"run": legacy_run_fields(run), "run_id": run.run_id, "state": run.state, "status": run.state}


async def list_workflow_runs(api: Api, params: Params) -> dict[str, Any]:
    """Return the runs, newest last."""
    page = await api.runs(**pick_parameters(params, "state", workflow="workflow_id"), limit=MAX_LISTED_RUNS)
    return {"runs": [legacy_run_fields(run) for run in reversed(page.runs)], "more": page.more}


async def answer_gate(api: Api, params: Params) -> dict[str, Any]:
    """Answer the open gate of a run, or the gate `gate_id`."""
    answer = params["input"] if "input" in params else require_parameter(params, "answer")
    arguments = pick_parameters(params, "key", "reason", gate="gate_id")
    response = await api.answer(run=require_parameter(params, "run_id"), answer=answer, **arguments)
    return {"success": True, "status": "input_sent", "run_id": response.run_id, "gate_id": response.gate_id}


async def workflow_input(api: Api, params: Params) -> dict[str, Any]:
    """Like answer_gate(), with the parameter name and the error message of the other vocabulary."""
    if "answer" not in params and "input" not in params:
        require_parameter(params, "input")
    try:
        return await answer_gate(api, params)
    except RunNotFound as error:
        raise ApiError(error.code, f"No active run: {params['run_id']}", error.fix) from error


async def cancel_workflow(api: Api, params: Params) -> dict[str, Any]:
    run = await api.stop(run=require_parameter(params, "run_id"), **pick_parameters(params, "reason", "key"))
    return run_status_reply(run, run.state if run.state in ("completed", "failed") else "stopped")


async def pause_workflow(api: Api, params: Params) -> dict[str, Any]:
    return run_status_reply(
        await api.pause(run=require_parameter(params, "run_id"), **pick_parameters(params, "key")), "paused"
    )


async def resume_workflow(api: Api, params: Params) -> dict[str, Any]:
    return run_status_reply(
        await api.resume(run=require_parameter(params, "run_id"), **pick_parameters(params, "key")), "resumed"
    )


async def subscribe_workflow(api: Api, params: Params) -> AsyncIterator[dict[str, Any]]:
    """Yield the recorded and then the new events of a run, until it ends."""
    request: Any = parse_request(
        OPERATIONS["events"], {"run": require_parameter(params, "run_id"), **pick_parameters(params, "after")}
    )
    async for event in api.hub.watch(request.run, request.after):
        yield event.model_dump(mode="json")


async def reject_subscription(api: Api, params: Params) -> dict[str, Any]:
    fix = "Use the Unix socket, or GET /events/workflow/{run_id}."
    raise ApiError("bad_request", "subscribe_workflow requires a streaming connection", fix)


class CommandRule(NamedTuple):
    """The handler of a command, the API operation that defines its scope, and its parameters."""

    handler: Callable[[Api, Params], Awaitable[dict[str, Any]]]
    operation: str
    parameter_names: tuple[str, ...]


START_RULE = CommandRule(execute_workflow, "start", ("workflow_id", "input", "params", "wait", "key"))
SHOW_RUN_RULE = CommandRule(get_workflow_run, "run", ("run_id",))
ANSWER_RULE = CommandRule(answer_gate, "answer", ("run_id", "gate_id", "answer", "input", "reason", "key"))
STOP_RULE = CommandRule(cancel_workflow, "stop", ("run_id", "reason", "key"))

COMMAND_RULES = {
    CommandType.EXECUTE_WORKFLOW: START_RULE,
    CommandType.START_WORKFLOW: START_RULE,
    CommandType.LIST_WORKFLOWS: CommandRule(list_workflows, "workflows", ()),
    CommandType.GET_WORKFLOW_RUN: SHOW_RUN_RULE,
    CommandType.WORKFLOW_STATUS: SHOW_RUN_RULE,
    CommandType.LIST_WORKFLOW_RUNS: CommandRule(list_workflow_runs, "runs", ("workflow_id", "state")),
    CommandType.ANSWER_GATE: ANSWER_RULE,
    CommandType.WORKFLOW_INPUT: ANSWER_RULE._replace(handler=workflow_input),
    CommandType.CANCEL_WORKFLOW: STOP_RULE,
    CommandType.STOP_WORKFLOW: STOP_RULE,
    CommandType.PAUSE_WORKFLOW: CommandRule(pause_workflow, "pause", ("run_id", "key")),
    CommandType.RESUME_WORKFLOW: CommandRule(resume_workflow, "resume", ("run_id", "key")),
    CommandType.SUBSCRIBE_WORKFLOW: CommandRule(reject_subscription, "events", ("run_id", "after")),
}


async def handle_command(api: Api, command: Mapping[str, Any]) -> dict[str, Any]:
    """Execute `{"type": …, "params": {…}}`; return `success` with `data`, or with `error` and `code`."""
    try:
        kind, params = parse_command(api, command)
        reply = {"success": True, "data": await COMMAND_RULES[kind].handler(api, params)}
    except ApiError as error:
        reply = error_reply(with_command_names(error, command))
    return with_request_id(command, reply)


async def stream_replies(api: Api, command: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Like handle_command(), for a streaming connection: a subscription yields a reply for each event."""
    if not is_subscription_command(command):
        yield await handle_command(api, command)
        return
    try:
        async for event in subscribe_workflow(api, parse_command(api, command)[1]):
            yield with_request_id(command, {"success": True, "event": event})
        yield with_request_id(command, {"success": True, "data": {"status": "ended"}})
    except Exception as error:
        yield with_request_id(command, error_reply(with_command_names(convert_and_log_error(error), command)))


def is_subscription_command(command: Mapping[str, Any]) -> bool:
    return str(command.get("type")).upper() == CommandType.SUBSCRIBE_WORKFLOW.name


def required_command_scope(command: Mapping[str, Any]) -> Scope:
    """Return the scope that a command requires. An unknown command requires "read", to get its error."""
    try:
        return OPERATIONS[COMMAND_RULES[CommandType(str(command.get("type")))].operation].scope
    except ValueError:
        return "read"


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


def require_parameter(params: Params, name: str) -> Any:
    if params.get(name) is None and not (name == "answer" and name in params):
        raise ApiError("bad_request", f"Missing required parameter: {name}")
    return params[name]


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


def pick_parameters(params: Params, *names: str, **others: str) -> dict[str, Any]:
    """Return the given parameters under their API names (`others`: API name to parameter), without nulls."""
    api_names = {name: name for name in names} | others
    return {
        name: params[parameter] for name, parameter in api_names.items() if params.get(parameter) is not None
    }


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


def run_status_reply(run: RunResponse, status: str) -> dict[str, Any]:
    return {"success": True, "status": status, "run_id": run.run_id, "state": run.state}


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
