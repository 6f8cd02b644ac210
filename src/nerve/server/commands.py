"""The seeds' command protocol: both vocabularies, each operation once, on top of the api."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from nerve.api import OPERATIONS, Api, ApiError, errors
from nerve.api.errors import NotTaken, RunAbsent
from nerve.api.models import GateTold, RunTold
from nerve.api.operations import Scope
from nerve.api.reading import read as read_asked
from nerve.core.suggest import suggest
from nerve.server.body import add_key

log = logging.getLogger("nerve")


class CommandType(StrEnum):
    """What a command may be; upper and lower case are the same."""

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
        named = str(value).upper()
        return cls.__members__.get(named)


@dataclass(frozen=True)
class Command:
    """A command and its parameters, as `Client.send_command` takes it."""

    type: CommandType | str
    params: Mapping[str, Any] = field(default_factory=dict)


Params = Mapping[str, Any]
RUNS = 1000
"""How many runs are listed."""


async def execute_workflow(api: Api, params: Params) -> dict[str, Any]:
    """Start a run. With `wait`, return when it has ended, or has a gate that somebody must answer."""
    asked = taken(params, "input", "params", "key", "wait")
    run = await api.start(workflow=needed(params, "workflow_id"), **asked)
    told: dict[str, Any] = {"run_id": run.run_id, "workflow_id": run.workflow, "state": run.state}
    if not asked.get("wait"):
        return told | {"status": "started"}
    if run.state == "completed":
        told["result"] = run.result
    elif run.state in ("failed", "cancelled"):
        told["error"] = run.error or run.state
    if run.gates:
        told |= {"gate": gate_told(run.gates[0]), "gates": [gate_told(gate) for gate in run.gates]}
    return told | {"status": run.state} | ({"held": run.held} if run.held else {})


async def list_workflows(api: Api, params: Params) -> dict[str, Any]:
    return {"workflows": [each.model_dump(mode="json") for each in (await api.workflows()).workflows]}


async def get_workflow_run(api: Api, params: Params) -> dict[str, Any]:
    run = await api.run(run=needed(params, "run_id"))
    return {"run": run_told(run), "run_id": run.run_id, "state": run.state, "status": run.state}


async def list_workflow_runs(api: Api, params: Params) -> dict[str, Any]:
    """The runs, the last one last."""
    found = await api.runs(**taken(params, "state", workflow="workflow_id"), limit=RUNS)
    return {"runs": [run_told(run) for run in reversed(found.runs)], "more": found.more}


async def answer_gate(api: Api, params: Params) -> dict[str, Any]:
    """Answer the open gate of a run, or the one that is named."""
    answer = params["input"] if "input" in params else needed(params, "answer")
    asked = taken(params, "key", "reason", gate="gate_id")
    given = await api.answer(run=needed(params, "run_id"), answer=answer, **asked)
    return {"success": True, "status": "input_sent", "run_id": given.run_id, "gate_id": given.gate_id}


async def workflow_input(api: Api, params: Params) -> dict[str, Any]:
    """The same in the other vocabulary, which has other words for the answer and a run that is not there."""
    if "answer" not in params and "input" not in params:
        needed(params, "input")
    try:
        return await answer_gate(api, params)
    except RunAbsent as error:
        raise ApiError(error.code, f"No active run: {params['run_id']}", error.fix) from error


async def cancel_workflow(api: Api, params: Params) -> dict[str, Any]:
    run = await api.stop(run=needed(params, "run_id"), **taken(params, "reason", "key"))
    return done(run, run.state if run.state in ("completed", "failed") else "stopped")


async def pause_workflow(api: Api, params: Params) -> dict[str, Any]:
    return done(await api.pause(run=needed(params, "run_id"), **taken(params, "key")), "paused")


async def resume_workflow(api: Api, params: Params) -> dict[str, Any]:
    return done(await api.resume(run=needed(params, "run_id"), **taken(params, "key")), "resumed")


async def subscribe_workflow(api: Api, params: Params) -> AsyncIterator[dict[str, Any]]:
    """The events of a run, and then as they come, until it has ended."""
    asked: Any = read_asked(OPERATIONS["events"], {"run": needed(params, "run_id"), **taken(params, "after")})
    async for event in api.hub.watch(asked.run, asked.after):
        yield event.model_dump(mode="json")


async def not_a_stream(api: Api, params: Params) -> dict[str, Any]:
    fix = "Use a connection that stays open, or GET /events/workflow/{run_id}."
    raise ApiError("bad_request", "subscribe_workflow has more than one reply", fix)


class CommandRule(NamedTuple):
    """What a command does, the operation of the api that says who may, and what it takes."""

    does: Callable[[Api, Params], Awaitable[dict[str, Any]]]
    operation: str
    takes: tuple[str, ...]


START = CommandRule(execute_workflow, "start", ("workflow_id", "input", "params", "wait", "key"))
SHOW = CommandRule(get_workflow_run, "run", ("run_id",))
ANSWER = CommandRule(answer_gate, "answer", ("run_id", "gate_id", "answer", "input", "reason", "key"))
STOP = CommandRule(cancel_workflow, "stop", ("run_id", "reason", "key"))

COMMANDS = {
    CommandType.EXECUTE_WORKFLOW: START,
    CommandType.START_WORKFLOW: START,
    CommandType.LIST_WORKFLOWS: CommandRule(list_workflows, "workflows", ()),
    CommandType.GET_WORKFLOW_RUN: SHOW,
    CommandType.WORKFLOW_STATUS: SHOW,
    CommandType.LIST_WORKFLOW_RUNS: CommandRule(list_workflow_runs, "runs", ("workflow_id", "state")),
    CommandType.ANSWER_GATE: ANSWER,
    CommandType.WORKFLOW_INPUT: ANSWER._replace(does=workflow_input),
    CommandType.CANCEL_WORKFLOW: STOP,
    CommandType.STOP_WORKFLOW: STOP,
    CommandType.PAUSE_WORKFLOW: CommandRule(pause_workflow, "pause", ("run_id", "key")),
    CommandType.RESUME_WORKFLOW: CommandRule(resume_workflow, "resume", ("run_id", "key")),
    CommandType.SUBSCRIBE_WORKFLOW: CommandRule(not_a_stream, "events", ("run_id", "after")),
}


async def handle(api: Api, command: Mapping[str, Any]) -> dict[str, Any]:
    """Do `{"type": …, "params": {…}}`; the reply has `success`, and `data`, or `error` with its `code`."""
    try:
        kind, params = read(api, command)
        reply = {"success": True, "data": await COMMANDS[kind].does(api, params)}
    except ApiError as error:
        reply = failed(renamed(error, command))
    return same_request(command, reply)


async def replies(api: Api, command: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The same for a connection that stays open: a subscription has a reply for every event, too."""
    if not is_subscription(command):
        yield await handle(api, command)
        return
    try:
        async for event in subscribe_workflow(api, read(api, command)[1]):
            yield same_request(command, {"success": True, "event": event})
        yield same_request(command, {"success": True, "data": {"status": "ended"}})
    except Exception as error:
        yield same_request(command, failed(renamed(foreseen(error), command)))


def is_subscription(command: Mapping[str, Any]) -> bool:
    return str(command.get("type")).upper() == CommandType.SUBSCRIBE_WORKFLOW.name


def scope_of(command: Mapping[str, Any]) -> Scope:
    """Who may give a command; one that is not known may be read about by whoever may read."""
    try:
        return OPERATIONS[COMMANDS[CommandType(str(command.get("type")))].operation].scope
    except ValueError:
        return "read"


def read(api: Api, command: Mapping[str, Any]) -> tuple[CommandType, Params]:
    """The command and its parameters, if they can be understood."""
    try:
        kind = CommandType(str(command.get("type")))
    except ValueError:
        known = [each.value for each in CommandType]
        hint = suggest(str(command.get("type")).upper(), [name.upper() for name in known])
        told = f"there is no command '{command.get('type')}'{hint}"
        raise ApiError("bad_request", told, f"There are: {', '.join(known)}.") from None
    params = {} if command.get("params") is None else command["params"]
    if not isinstance(params, Mapping):
        raise ApiError("bad_request", f"{kind}: params must be an object")
    takes = COMMANDS[kind].takes
    if wrong := [name for name in params if name not in (*takes, "session_id")]:
        told = f"{kind} does not take '{wrong[0]}'{suggest(wrong[0], takes)}"
        raise NotTaken("bad_request", told, takes)
    session = params.get("session_id") or command.get("session_id")
    if session not in (None, "default", api.session.name):
        raise ApiError("not_found", f"Session '{session}' not found", f"There is: {api.session.name}.")
    return kind, params


def renamed(error: ApiError, command: Mapping[str, Any]) -> ApiError:
    """An error about what an operation takes, with the names under which a command takes it."""
    if not isinstance(error, NotTaken):
        return error
    return NotTaken(error.code, error.message, COMMANDS[CommandType(str(command["type"]))].takes)


def needed(params: Params, name: str) -> Any:
    if params.get(name) is None and not (name == "answer" and name in params):
        raise ApiError("bad_request", f"Missing required parameter: {name}")
    return params[name]


def keyed(command: dict[str, Any], key: str | None) -> dict[str, Any]:
    """A command with the key that came beside it, if it takes one."""
    try:
        takes = COMMANDS[CommandType(str(command.get("type")))].takes
    except ValueError:
        takes = ()
    params = {} if command.get("params") is None else command["params"]
    if "key" in takes and isinstance(params, dict):
        add_key(params, "key", key)
        return command | {"params": params}
    return command


def taken(params: Params, *names: str, **others: str) -> dict[str, Any]:
    """What is given of these, and of others under the names that the api has for them; null is nothing."""
    given = {name: name for name in names} | others
    return {name: params[said] for name, said in given.items() if params.get(said) is not None}


def foreseen(error: Exception) -> ApiError:
    """Why something was not done; what nobody foresaw is in the log."""
    why = errors.told(error)
    if why.code == "internal":
        log.error("a command failed", exc_info=error)
    return why


def failed(error: ApiError) -> dict[str, Any]:
    return {"success": False, "error": error.message, **error.to_dict()}


def same_request(command: Mapping[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """Whoever numbers commands finds the number in the reply."""
    return reply | ({"request_id": command["request_id"]} if "request_id" in command else {})


def done(run: RunTold, status: str) -> dict[str, Any]:
    return {"success": True, "status": status, "run_id": run.run_id, "state": run.state}


def gate_told(gate: GateTold) -> dict[str, Any]:
    return gate.model_dump(mode="json", exclude_none=True) | {"choices": gate.choices}


def run_told(run: RunTold) -> dict[str, Any]:
    """A run with the names that the seeds give to what is told of it."""
    told = run.model_dump(mode="json")
    gates = [gate_told(gate) for gate in run.gates]
    pending = {name: gates[0][name] for name in ("gate_id", "prompt", "choices")} if gates else None
    return told | {
        "workflow_id": run.workflow,
        "completed_at": told["ended_at"],
        "status": run.state,
        "pending_gate": pending,
        "pending_gates": gates,
    }
