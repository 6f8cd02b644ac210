"""The seeds' command protocol: both vocabularies, one meaning, replies with the keys of both."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.support import with_workflows
from nerve import Session
from nerve.api import OPERATIONS, Api, ApiError
from nerve.api.callers import Caller
from nerve.api.command_protocol import (
    COMMAND_RULES,
    CommandType,
    handle_command,
    with_command_names,
)
from nerve.server.handlers.workflow_handler import WorkflowHandler


class Registry:
    """Sessions by their names."""

    def __init__(self, *sessions: Session) -> None:
        self.sessions = {session.name: session for session in sessions}

    def get_session(self, session_id: str | None = None) -> Session:
        return self.sessions[session_id] if session_id else next(iter(self.sessions.values()))


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with Session() as session:
        yield with_workflows(session)


@pytest.fixture
def handler(api: Api) -> WorkflowHandler:
    return WorkflowHandler(Registry(api.session), None)


async def do(api: Api, type: str, **params: Any) -> dict[str, Any]:
    reply = await handle_command(api, {"type": type, "params": params})
    assert reply["success"], reply
    data: dict[str, Any] = reply["data"]
    return data


async def at_gate(api: Api, workflow: str = "ask") -> str:
    run_id: str = (await do(api, "EXECUTE_WORKFLOW", workflow_id=workflow, wait=True))["run_id"]
    return run_id


@pytest.mark.requirement("S0-60")
@pytest.mark.requirement("S1-34")
def test_the_command_names_match_the_seeds() -> None:
    upper = ["EXECUTE_WORKFLOW", "LIST_WORKFLOWS", "GET_WORKFLOW_RUN", "LIST_WORKFLOW_RUNS", "ANSWER_GATE",
             "CANCEL_WORKFLOW"]  # fmt: skip
    lower = ["start_workflow", "stop_workflow", "pause_workflow", "resume_workflow", "workflow_status",
             "workflow_input", "list_workflows", "subscribe_workflow"]  # fmt: skip
    assert [CommandType(name).value for name in upper] == upper
    assert all(CommandType(name).name == name.upper() for name in lower)
    assert set(COMMAND_RULES) == set(CommandType)


@pytest.mark.requirement("C-03")
@pytest.mark.requirement("S0-61")
async def test_every_command_is_case_insensitive(api: Api) -> None:
    for kind in CommandType:
        for name in (kind.value.upper(), kind.value.lower(), kind.value.title()):
            reply = await handle_command(api, {"type": name, "params": {"run_id": "nobody"}})
            assert "Unknown command" not in reply.get("error", "")


@pytest.mark.requirement("S0-57")
@pytest.mark.requirement("S1-35")
async def test_a_run_is_started_with_and_without_wait(api: Api) -> None:
    for name in ("EXECUTE_WORKFLOW", "start_workflow"):
        begun = await do(api, name, workflow_id="hello", input="you", session_id="default")
        assert begun["workflow_id"] == "hello"
        assert begun["status"] == "started"
        assert begun["state"] in ("running", "completed")
        ended = await do(api, name, workflow_id="hello", input="you", wait=True)
        assert (ended["state"], ended["result"]) == ("completed", "hello you")
        failed = await do(api, name, workflow_id="broken", input="bad", params={}, wait=True)
        assert (failed["state"], failed["error"]) == ("failed", "it is bad")


@pytest.mark.requirement("D0-15")
async def test_wait_returns_at_a_gate(api: Api) -> None:
    told = await do(api, "execute_workflow", workflow_id="ask", wait=True)
    assert told["state"] == "waiting"
    assert (told["gate"]["prompt"], told["gate"]["choices"]) == ("Go on?", ["yes", "no"])
    await do(api, "ANSWER_GATE", run_id=told["run_id"], answer="yes")


@pytest.mark.requirement("S0-59")
async def test_the_end_time_is_the_same_in_list_and_detail(api: Api) -> None:
    run_id = (await do(api, "EXECUTE_WORKFLOW", workflow_id="hello", wait=True))["run_id"]
    (listed,) = (await do(api, "LIST_WORKFLOW_RUNS"))["runs"]
    one = (await do(api, "GET_WORKFLOW_RUN", run_id=run_id))["run"]
    assert listed["completed_at"] == one["completed_at"] is not None


@pytest.mark.requirement("S0-59")
@pytest.mark.requirement("S1-36")
async def test_workflows_runs_and_one_run_are_returned(api: Api) -> None:
    listed = (await do(api, "LIST_WORKFLOWS"))["workflows"]
    assert listed == (await do(api, "list_workflows"))["workflows"]
    assert (listed[0]["id"], listed[0]["description"]) == ("hello", "Greets.")
    assert listed[0]["created_at"]
    first = await do(api, "EXECUTE_WORKFLOW", workflow_id="hello", wait=True)
    second = await at_gate(api)
    runs = (await do(api, "LIST_WORKFLOW_RUNS"))["runs"]
    assert [run["run_id"] for run in runs] == [first["run_id"], second]
    assert [run["run_id"] for run in (await do(api, "LIST_WORKFLOW_RUNS", state="waiting"))["runs"]] == [
        second
    ]
    assert (await do(api, "LIST_WORKFLOW_RUNS", workflow_id="nested"))["runs"] == []
    for name in ("GET_WORKFLOW_RUN", "workflow_status"):
        told = await do(api, name, run_id=second)
        assert (told["run_id"], told["state"], told["status"]) == (second, "waiting", "waiting")
        run = told["run"]
        assert (run["workflow_id"], run["completed_at"], run["result"], run["error"]) == (
            "ask",
            None,
            None,
            None,
        )
        assert run["pending_gate"] == {
            "gate_id": run["pending_gates"][0]["gate_id"],
            "prompt": "Go on?",
            "choices": ["yes", "no"],
        }


@pytest.mark.requirement("C-03")
async def test_a_gate_is_answered_in_either_vocabulary(api: Api) -> None:
    one, other = await at_gate(api), await at_gate(api)
    told = await do(api, "ANSWER_GATE", run_id=one, answer="yes")
    assert (told["success"], told["status"]) == (True, "input_sent")
    again = await do(api, "workflow_input", run_id=other, input="no")
    assert (again.keys(), again["status"], again["run_id"]) == (told.keys(), "input_sent", other)
    for run, answer in ((one, "yes"), (other, "no")):
        assert await api.session.get_workflow_run(run).wait() == answer


@pytest.mark.requirement("S1-37")
@pytest.mark.requirement("C-04")
async def test_a_run_is_paused_resumed_and_ended(api: Api) -> None:
    run = await at_gate(api)
    assert (await do(api, "pause_workflow", run_id=run))["status"] == "paused"
    assert (await do(api, "workflow_status", run_id=run))["state"] == "paused"
    assert (await do(api, "resume_workflow", run_id=run))["status"] == "resumed"
    assert await do(api, "stop_workflow", run_id=run) == {
        "success": True,
        "status": "stopped",
        "run_id": run,
        "state": "cancelled",
    }
    assert (await do(api, "CANCEL_WORKFLOW", run_id=await at_gate(api)))["success"]
    for name in ("stop_workflow", "CANCEL_WORKFLOW"):
        reply = await handle_command(api, {"type": name, "params": {"run_id": "nobody"}})
        assert (reply["success"], reply["error"]) == (False, "Workflow run 'nobody' not found")


@pytest.mark.requirement("S0-58")
@pytest.mark.requirement("S1-36")
async def test_errors_have_the_wording_of_the_seeds_and_a_code(api: Api) -> None:
    ended = (await do(api, "EXECUTE_WORKFLOW", workflow_id="hello", wait=True))["run_id"]
    cases = [
        ("EXECUTE_WORKFLOW", {"workflow_id": "nobody"}, "Workflow 'nobody' not found", "not_found"),
        ("GET_WORKFLOW_RUN", {"run_id": "nobody"}, "Workflow run 'nobody' not found", "not_found"),
        ("workflow_input", {"run_id": "nobody", "input": 1}, "No active run: nobody", "not_found"),
        ("ANSWER_GATE", {"run_id": ended, "answer": 1},
         "Run is not waiting for input (state: completed)", "gone"),
        ("ANSWER_GATE", {"run_id": ended}, "Missing required parameter: answer", "bad_request"),
        ("WORKFLOW_INPUT", {"run_id": ended}, "Missing required parameter: input", "bad_request"),
        ("EXECUTE_WORKFLOW", {}, "Missing required parameter: workflow_id", "bad_request"),
        ("LIST_WORKFLOW_RUNS", {"state": "asleep"}, "Unknown state 'asleep'", "bad_request"),
        ("EXECUTE_WORKFLOW", {"workflow": "x"},
         "Unknown parameter 'workflow' for EXECUTE_WORKFLOW. Did you mean 'workflow_id'?", "bad_request"),
        ("LIST_WORKFLOWS", {"session_id": "other"}, "Session 'other' not found", "not_found"),
        ("START_WORKFLO", {},
         "Unknown command 'START_WORKFLO'. Did you mean 'START_WORKFLOW'?", "bad_request"),
    ]  # fmt: skip
    for name, params, text, code in cases:
        reply = await handle_command(api, {"type": name, "params": params, "request_id": 7})
        assert (reply["success"], reply["error"], reply["code"]) == (False, text, code)
        assert reply["request_id"] == 7
    for command in ({}, {"type": None}, {"type": ["x"]}, {"type": "list_workflows", "params": [1]}):
        assert (await handle_command(api, command))["code"] == "bad_request"  # type: ignore[arg-type]


async def test_a_subscription_names_the_streams_to_use_instead_of_a_command(api: Api) -> None:
    command = {"type": "SUBSCRIBE_WORKFLOW", "params": {"run_id": await at_gate(api)}, "request_id": "s"}
    reply = await handle_command(api, command)
    assert (reply["code"], reply["request_id"]) == ("bad_request", "s")
    assert reply["fix"] == "Use GET /events/workflow/{run_id}, or subscribe on the WebSocket /ws."


async def test_the_handler_yields_the_events_of_a_run_until_it_ends(
    api: Api, handler: WorkflowHandler
) -> None:
    run = await at_gate(api)
    seen = []
    async for event in handler.subscribe_workflow({"run_id": run}):
        seen.append(event["event_type"])
        if seen[-1] == "gate_waiting":
            await do(api, "ANSWER_GATE", run_id=run, answer="yes")
    assert seen == ["workflow_started", "gate_waiting", "gate_answered", "workflow_completed"]


@pytest.mark.parametrize(
    "params",
    [
        {"run_id": 5},
        {"run_id": ["x"]},
        {"run_id": ""},
        {"after": "abc"},
        {"after": -1},
        {"after": [1]},
        {"after": 2**60},
        {"after": 1.5},
    ],
)
async def test_an_invalid_subscription_is_rejected(
    api: Api, handler: WorkflowHandler, params: dict[str, Any]
) -> None:
    run = await at_gate(api)
    with pytest.raises(ValueError):
        _ = [event async for event in handler.subscribe_workflow({"run_id": run} | params)]


@pytest.mark.parametrize(
    ("type", "params"),
    [
        ("start_workflow", {"workflow_id": "hello", "wait": "false"}),
        ("start_workflow", {"workflow_id": "hello", "wait": 0}),
        ("start_workflow", {"workflow_id": "hello", "wait": []}),
        ("start_workflow", {"workflow_id": "hello", "params": []}),
        ("start_workflow", {"workflow_id": "hello", "params": ""}),
        ("start_workflow", {"workflow_id": "hello", "key": ""}),
        ("stop_workflow", {"run_id": "x", "reason": 0}),
        ("ANSWER_GATE", {"run_id": "x", "answer": 1, "reason": []}),
    ],
)
async def test_command_parameters_are_validated_like_the_operation(
    api: Api, type: str, params: dict[str, Any]
) -> None:
    reply = await handle_command(api, {"type": type, "params": params})
    assert reply["code"] == "bad_request"
    assert reply["fix"] == f"Accepted fields: {', '.join(COMMAND_RULES[CommandType(type)].parameter_names)}."
    assert api.session.list_workflow_runs() == []


def test_an_error_with_a_similar_text_is_not_rewritten() -> None:
    error = ApiError("refused", "no", "It takes: patience.")
    assert with_command_names(error, {"type": "LIST_WORKFLOWS"}) is error


async def test_omitted_command_parameters_may_be_null(api: Api) -> None:
    nothing = dict.fromkeys(("input", "params", "wait", "key"))
    assert (await do(api, "start_workflow", workflow_id="hello", **nothing))["status"] == "started"
    reply = await handle_command(api, {"type": "LIST_WORKFLOWS", "params": None})
    assert reply["success"]
    assert (await handle_command(api, {"type": "LIST_WORKFLOWS", "params": []}))["code"] == "bad_request"


def test_a_command_requires_the_scope_of_its_operation() -> None:
    scopes = {
        name: OPERATIONS[COMMAND_RULES[CommandType(name)].operation].scope
        for name in ("execute_workflow", "ANSWER_GATE", "list_workflows")
    }
    assert list(scopes.values()) == ["run", "answer", "read"]


async def test_a_caller_without_the_scope_of_a_command_is_refused_before_its_parameters(api: Api) -> None:
    reader = api.as_caller(Caller("token:read", "http", "read"))
    for kind in CommandType:
        allowed = OPERATIONS[COMMAND_RULES[kind].operation].scope == "read"
        for params in ({}, {"run_id": "nobody", "workflow_id": "hello", "answer": "yes"}):
            given = {name: params[name] for name in COMMAND_RULES[kind].parameter_names if name in params}
            reply = await handle_command(reader, {"type": kind.value, "params": given})
            assert (reply.get("code") == "forbidden") is not allowed, (kind, reply)
    assert (await handle_command(reader, {"type": "?"}))["code"] == "bad_request"
    assert api.session.list_workflow_runs() == []


@pytest.mark.requirement("S0-56")
async def test_the_handler_has_a_method_for_every_command(handler: WorkflowHandler) -> None:
    begun = await handler.execute_workflow({"workflow_id": "ask", "wait": True})
    assert begun["state"] == "waiting"
    assert len((await handler.list_workflows({}))["workflows"]) == 6
    assert (await handler.get_workflow_run({"run_id": begun["run_id"]}))["run"]["state"] == "waiting"
    assert len((await handler.list_workflow_runs({"workflow_id": "ask", "state": "waiting"}))["runs"]) == 1
    assert (await handler.answer_gate({"run_id": begun["run_id"], "answer": "yes"}))["success"]
    other = await handler.start_workflow({"workflow_id": "ask"})
    assert (await handler.cancel_workflow({"run_id": other["run_id"]}))["success"]
    assert all(callable(getattr(handler, kind.value.lower())) for kind in CommandType)


@pytest.mark.requirement("S0-58")
async def test_the_handler_raises_value_errors(handler: WorkflowHandler) -> None:
    with pytest.raises(ValueError, match=r"^Workflow 'x' not found$"):
        await handler.execute_workflow({"workflow_id": "x"})
    with pytest.raises(ValueError, match=r"^Workflow run 'x' not found$"):
        await handler.get_workflow_run({"run_id": "x"})
    with pytest.raises(ValueError, match=r"^No active run: x$"):
        await handler.workflow_input({"run_id": "x", "input": "y"})
    run = await handler.execute_workflow({"workflow_id": "hello", "wait": True})
    with pytest.raises(ValueError, match=r"^Run is not waiting for input \(state: completed\)"):
        await handler.answer_gate({"run_id": run["run_id"], "answer": "yes"})
    with pytest.raises(ValueError, match="not found"):
        _ = [event async for event in handler.subscribe_workflow({"run_id": "x"})]


@pytest.mark.requirement("S0-56")
@pytest.mark.requirement("C-10")
async def test_the_event_sink_of_the_handler_receives_events_in_order(api: Api) -> None:
    seen: list[str] = []

    class Slow:
        async def emit(self, event: Any) -> None:
            await asyncio.sleep(0)
            seen.append(event.event_type)

    handler = WorkflowHandler(Registry(api.session), Slow())
    run = await handler.execute_workflow({"workflow_id": "hello"})
    await api.session.get_workflow_run(run["run_id"]).wait()
    assert seen == ["workflow_started", "workflow_completed"]


async def test_commands_use_the_named_session() -> None:
    async with Session("one") as one, Session("two") as two:
        with_workflows(one)
        handler = WorkflowHandler(Registry(one, two))
        assert (await handler.list_workflows({"session_id": "two"}))["workflows"] == []
        assert len((await handler.list_workflows({}))["workflows"]) == 6


async def test_a_finished_run_is_not_reported_as_stopped(api: Api) -> None:
    run = (await do(api, "EXECUTE_WORKFLOW", workflow_id="hello", wait=True))["run_id"]
    for name in ("CANCEL_WORKFLOW", "stop_workflow"):
        told = await do(api, name, run_id=run)
        assert (told["success"], told["status"], told["state"]) == (True, "completed", "completed")
