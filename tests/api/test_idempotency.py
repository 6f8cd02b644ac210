"""A command with a key runs once: repeated concurrently, later, or after a restart."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.test_steering import Working
from api.support import refusal, with_workflows
from core.workflow.support import until
from nerve import Queue, Session
from nerve.agents import AgentNode
from nerve.api import OPERATIONS, Api, idempotency
from nerve.api.callers import Caller
from nerve.project.config import read_config
from notifications.receiver import receiving

COMMANDS = [each for each in OPERATIONS.values() if each.is_command]
SOURCE = '{"name": "small", "body": {"kind": "transform", "expression": "1"}}'
WITH_DEFAULT = (
    '{"name": "small", "inputs": {"n": {"default": "x"}}, "body": {"kind": "transform", "expression": "1"}}'
)


@pytest.fixture
def channel(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A channel `hook` for messages."""
    monkeypatch.setenv("HOOK_SECRET", "a secret of the tests")
    with receiving() as receiver:
        channels = {"hook": {"kind": "webhook", "url": receiver.url, "secret": {"env": "HOOK_SECRET"}}}
        api.session.config = read_config(json.dumps({"notify": {"channels": channels}}))
        yield


def seen(api: Api) -> list[str]:
    """Return the facts and runs with their progress."""
    facts = [f"{fact.id} {fact.version}" for fact in api.session.engine.dataspace.space.facts()]
    return facts + [f"{row.run} {row.state}" for row in api.session.engine.store.runs()]


@pytest.mark.parametrize("operation", COMMANDS, ids=lambda operation: operation.name)
def test_every_command_takes_a_key(operation: Any) -> None:
    assert operation.request_model.model_fields[operation.request_model.key_field].default is None


async def asked(api: Api, name: str) -> dict[str, Any]:
    """Return the arguments of a command that has an effect."""
    key = {"key": "k"} if name != "signal" else {"idempotency_key": "k"}
    match name:
        case "define":
            return {"source": SOURCE, **key}
        case "start":
            return {"workflow": "ask", **key}
        case "signal":
            return {"label": "go", "value": 1, **key}
        case "assert_fact":
            return {"fact": "(note 1)", **key}
        case "retract":
            await api.assert_fact(fact="(note 1)")
            return {"fact": "(note _)", **key}
        case "route":
            return {"text": "hello", "start": True, **key}
        case "reload" | "collect":
            return key
        case "delete":
            run = await api.start(workflow="broken", input="bad", wait=True)
            return {"run": run.run_id, **key}
        case "add_person":
            return {"person": "ann", "roles": ["lead"], **key}
        case "change_person" | "remove_person":
            person = name.replace("_", "-")
            if person not in api.session.people.current():
                await api.add_person(person=person)
            return {"person": person, **({"roles": ["lead"]} if name == "change_person" else {}), **key}
        case "test_channel":
            return {"channel": "hook", **key}
        case "pause_queue" | "resume_queue":
            api.session.add_queue(Queue("emails"))
            return {"queue": "emails", **key}
        case "define_trigger":
            definition = {"workflow": "hello", "schedule": "0 3 * * *"}
            return {"trigger": "nightly", "definition": definition, **key}
        case "remove_trigger" | "pause_trigger" | "resume_trigger" | "fire_trigger" | "backfill_trigger":
            definition = {"workflow": "hello", "schedule": "0 3 * * *", "input": "you"}
            await api.define_trigger(trigger="nightly", definition=definition)
            is_backfill = name == "backfill_trigger"
            times = {"since": "2026-01-01", "until": "2026-01-02"} if is_backfill else {}
            return {"trigger": "nightly", **times, **key}
        case "answer":
            run = await api.start(workflow="ask", wait=True)
            return {"run": run.run_id, "answer": "yes", **key}
        case "send":
            run = await api.start(workflow="basket", wait=True)
            return {"run": run.run_id, "channel": "orders", "value": 1, **key}
        case "update":
            run = await api.start(workflow="basket", wait=True)
            return {"run": run.run_id, "update": "add", "value": 1, **key}
        case "retry":
            run = await api.start(workflow="broken", input="bad", wait=True)
            return {"run": run.run_id, **key}
    run = await api.start(workflow="ask", wait=True)
    if name in ("resume", "skip"):
        await api.pause(run=run.run_id)
    return {"run": run.run_id, **key}


@pytest.mark.usefixtures("channel")
@pytest.mark.parametrize(
    "operation", [each for each in COMMANDS if each.name not in ("skip", "steer")], ids=lambda o: o.name
)
async def test_a_repeated_key_returns_the_same_reply_and_runs_the_command_once(
    api: Api, file: Path, operation: Any
) -> None:
    arguments = await asked(api, operation.name)
    replies = await asyncio.gather(*(api.perform(operation.name, arguments) for _ in range(5)))
    for run in api.session.engine.run_handles.values():
        await api.session.engine.wait_durable(run)
    after = seen(api)
    again = await api.perform(operation.name, arguments)
    assert seen(api) == after
    await api.session.close()
    async with Session(store=file) as session:
        restarted = with_workflows(session)
        later = await restarted.perform(operation.name, arguments)
        assert sorted(line.split()[0] for line in seen(restarted)) == sorted(
            line.split()[0] for line in after
        )
    same = {"run_id"} if operation.name == "start" else None  # the reply shows the current state of the run
    assert len({each.model_dump_json(include=same) for each in [*replies, again, later]}) == 1


async def test_a_repeated_signal_does_not_overwrite_a_newer_one(api: Api) -> None:
    first = {"label": "go", "value": 1, "idempotency_key": "a"}
    await api.signal(**first)
    await api.signal(label="go", value=2)
    await api.signal(**first)
    [fact] = (await api.facts(pattern="(signal go)")).facts
    assert fact.record[-1]["value"] == 2


async def test_a_repeated_assert_does_not_restore_a_retracted_fact(api: Api) -> None:
    reply = await api.assert_fact(fact="(note 1)", key="a")
    await api.retract(fact="(note _)", key="b")
    assert await api.assert_fact(fact="(note 1)", key="a") == reply
    assert (await api.facts(pattern="(note _)")).facts == []
    await api.assert_fact(fact="(note 1)")
    assert len((await api.retract(fact="(note _)", key="b")).facts) == 1
    assert len((await api.facts(pattern="(note _)")).facts) == 1


async def test_a_key_is_valid_for_one_command(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    await api.assert_fact(fact="(note 1)", key="k")
    for other in (
        api.assert_fact(fact="(note 2)", key="k"),
        api.retract(fact="(note 1)", key="k"),
        api.pause(run=run.run_id, key="k"),
        api.signal(label="go", idempotency_key="k"),
    ):
        error = await refusal(other)
        assert (error.code, "assert_fact" in error.message) == ("conflict", True)
    forked = await api.fork(run=run.run_id, key="f")
    assert (await refusal(api.start(workflow="ask", key="f"))).code == "conflict"
    started = await api.start(workflow="ask", key="s")
    assert (await refusal(api.fork(run=forked.run_id, key="s"))).message.startswith("Key 's' belongs to run")
    assert (await api.start(workflow="ask", key="s")).run_id == started.run_id


async def test_a_refused_command_may_be_repeated(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    assert (await refusal(api.resume(run=run.run_id, key="k"))).code == "conflict"
    await api.pause(run=run.run_id)
    assert (await api.resume(run=run.run_id, key="k")).run_id == run.run_id
    assert (await api.resume(run=run.run_id, key="k")).run_id == run.run_id


async def test_a_fork_whose_reply_was_lost_in_a_crash_is_not_repeated(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    forked = await api.fork(run=run.run_id, key="k")
    assert api.session.engine.store.forget_replies("default", float("inf")) == 1
    assert (await api.fork(run=run.run_id, key="k")).run_id == forked.run_id


async def test_a_command_completes_after_its_caller_disconnected(api: Api) -> None:
    asking = asyncio.ensure_future(api.assert_fact(fact="(note 1)", key="k"))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert (await api.assert_fact(fact="(note 1)", key="k")).record == ["note", 1]
    assert len((await api.facts(pattern="(note _)")).facts) == 1


async def test_the_caller_is_recorded_and_cannot_be_set_by_the_request(api: Api) -> None:
    ann = api.as_caller(Caller("token:answer", "http", "answer"))
    run = await api.start(workflow="ask", wait=True)
    assert (await refusal(ann.answer(run=run.run_id, answer="yes", by="ben"))).code == "bad_request"
    assert (await refusal(ann.answer(run=run.run_id, answer="yes", _caller="ben"))).code == "bad_request"
    reply = await ann.answer(run=run.run_id, answer="yes", reason="it is fine", key="k")
    assert (reply.by, reply.via, reply.scope, reply.reason) == (
        "token:answer",
        "http",
        "answer",
        "it is fine",
    )
    assert await api.answer(run=run.run_id, answer="yes", key="k") == reply
    [event] = [e for e in (await api.events(run=run.run_id)).events if e.event_type == "gate_answered"]
    assert {"by": "token:answer", "via": "http", "scope": "answer", "reason": "it is fine"}.items() <= (
        event.data.items()
    )
    late = await refusal(api.answer(run=run.run_id, answer="no"))
    assert late.details["winner"]["by"] == "token:answer"
    assert (await refusal(ann.assert_fact(fact="(note 1)"))).code == "forbidden"
    ben = api.as_caller(Caller("token:run", "http", "run"))
    assert (await ben.assert_fact(fact="(note 1)")).by == "token:run"


class Died(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize(
    ("name", "driven"),
    [("pause", True), ("resume", True), ("resume", False), ("retry", False), ("fork", True)],
)
async def test_a_command_completed_before_a_crash_is_not_refused_after_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, driven: bool
) -> None:
    async def dies(*_: Any) -> None:
        raise Died

    async with Session(store=file) as session:
        run = await with_workflows(session).start(workflow="ask", wait=True)
    async with Session(store=file) as session:
        api = with_workflows(session)
        if driven:
            await session.recover()
        if name == "resume":
            await api.pause(run=run.run_id)
        elif name == "retry":
            held = session.engine.run_handle(session.engine.store.run(run.run_id))
            await session.engine.commands.hold(held, "quarantine", "look")
        with monkeypatch.context() as crash:
            crash.setattr(idempotency, "store_reply", dies)
            with pytest.raises(Died):
                await api.perform(name, {"run": run.run_id, "key": "k"})
    async with Session(store=file) as session:
        api = with_workflows(session)
        await session.recover()
        before = seen(api)
        for _ in range(2):
            assert (await api.perform(name, {"run": run.run_id, "key": "k"})).run_id
        assert seen(api) == before
        error = await refusal(api.perform(name, {"run": run.run_id[:-1], "key": "k"}))
        assert error.code == "conflict"


async def test_a_steering_message_is_stored_together_with_its_key(api: Api) -> None:
    agent = Working(resume=True)
    AgentNode("dev", api.session, agent)

    @api.session.workflow
    async def build(ctx: Any) -> Any:
        return (await ctx.run("dev", "Build it"))["output"]

    run = await api.start(workflow="build")
    await until(lambda: agent.prompts)
    store, parts = api.session.engine.store, list[Any]()
    append = store.append

    def seen_by_the_store(batch: Any, patience: float = 30.0) -> Any:
        parts.extend(batch)
        return append(batch, patience)

    store.append = seen_by_the_store
    told = await api.steer(run=run.run_id, text="Use tabs", key="k")
    [part] = [part for part in parts if any(row.type == "steered" for row in part.rows)]
    assert [reply.key for reply in part.replies] == ["k"]
    assert await api.steer(run=run.run_id, text="Use tabs", key="k") == told
    agent.go.set()
    await api.session.get_workflow_run(run.run_id).wait()


async def test_a_key_is_valid_for_one_start_with_one_input(api: Api) -> None:
    for arguments in ({"input": {"a": [1], "b": 2}, "params": {"n": 1}}, {}):
        key = str(arguments)
        run = await api.start(workflow="hello", key=key, **arguments)
        assert (await api.start(workflow="hello", key=key, **arguments)).run_id == run.run_id
        for other in ({"input": "other"}, {**arguments, "params": {"n": 2}}):
            error = await refusal(api.start(workflow="hello", key=key, **other))
            assert (error.code, error.details) == ("conflict", {"run_id": run.run_id})
    await api.define(source=WITH_DEFAULT)
    run = await api.start(workflow="small", key="d")
    assert (await api.start(workflow="small", key="d")).run_id == run.run_id


async def test_one_of_two_different_concurrent_starts_with_one_key_is_refused(api: Api) -> None:
    starts = [api.start(workflow="hello", input=name, key="k") for name in ("a", "b")]
    replies = await asyncio.gather(*starts, return_exceptions=True)
    assert [getattr(each, "code", "started") for each in replies] == ["started", "conflict"]


FIRST = [each for each in COMMANDS if each.name not in ("skip", "steer")]


def there(api: Api) -> list[str]:
    """Return the runs and facts in the store."""
    store = api.session.engine.store
    return [row.run for row in store.runs()] + [row.id for row in store.facts("default")]


@pytest.mark.usefixtures("channel")
@pytest.mark.parametrize("operation", FIRST, ids=lambda operation: operation.name)
async def test_a_key_cannot_be_reused_for_another_command_even_after_a_restart(
    api: Api, file: Path, operation: Any
) -> None:
    arguments = await asked(api, operation.name)
    await api.perform(operation.name, arguments)
    others = {
        other.name: {
            **await asked(api, other.name),
            other.request_model.key_field: arguments[operation.request_model.key_field],
        }
        for other in FIRST
        if other is not operation
    }
    before = there(api)
    for _ in range(2):
        for name, other in others.items():
            error = await refusal(api.perform(name, other))
            assert (name, error.code) == (name, "conflict")
            assert "Key 'k'" in error.message
        assert there(api) == before
        await api.session.close()
        api = with_workflows(Session(store=file))
    await api.session.close()


async def test_the_key_of_a_start_in_progress_cannot_be_reused_for_another_command(api: Api) -> None:
    replies = await asyncio.gather(
        api.start(workflow="ask", key="k"),
        api.signal(label="go", idempotency_key="k"),
        api.answer(run="nobody", answer="yes", key="k"),
        return_exceptions=True,
    )
    assert [getattr(each, "code", "done") for each in replies] == ["done", "conflict", "conflict"]


async def test_one_key_does_not_answer_the_gates_of_two_runs(api: Api) -> None:
    first, second = [await api.start(workflow="ask", wait=True) for _ in range(2)]
    reply = await api.answer(run=first.run_id, answer="yes", key="k")
    error = await refusal(api.answer(run=second.run_id, answer="yes", key="k"))
    assert (error.code, error.details["winner"]["run_id"]) == ("conflict", first.run_id)
    assert (await api.run(run=second.run_id)).state == "waiting"
    assert await api.answer(run=first.run_id, answer="yes", key="k") == reply


async def test_an_answer_to_a_gate_prefix_can_be_repeated(api: Api) -> None:
    run = await api.start(workflow="ask", wait=True)
    arguments = {"run": run.run_id, "gate": run.gates[0].gate_id[:-1], "answer": "yes", "key": "k"}
    assert await api.answer(**arguments) == await api.answer(**arguments)


@pytest.mark.parametrize(
    "other",
    [{"label": "b"}, {"label": None}, {"conversation": "b"}, {"limits": {"steps": 7}}],
    ids=str,
)
async def test_a_key_is_valid_for_one_start_under_one_name(
    api: Api, file: Path, other: dict[str, Any]
) -> None:
    arguments = {"workflow": "ask", "label": "a", "limits": {"steps": 5}, "key": "k"}
    run = await api.start(**arguments)
    await api.session.close()
    async with Session(store=file) as session:
        restarted = with_workflows(session)
        error = await refusal(restarted.start(**{**arguments, **other}))
        assert (error.code, error.details) == ("conflict", {"run_id": run.run_id})
        assert (await restarted.start(**arguments, wait=True)).run_id == run.run_id


async def test_an_omitted_parameter_equals_its_default(api: Api) -> None:
    await api.define(source=WITH_DEFAULT)
    run = await api.start(workflow="small", params={"n": "y"}, key="k")
    assert (await refusal(api.start(workflow="small", key="k"))).details == {"run_id": run.run_id}
    run = await api.start(workflow="small", key="d")
    assert (await api.start(workflow="small", params={"n": "x"}, key="d")).run_id == run.run_id


async def test_a_fork_created_before_a_crash_is_not_reused_for_another_command(
    api: Api, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(*_: Any) -> None:
        raise Died

    run = await api.start(workflow="ask", wait=True)
    with monkeypatch.context() as crash:
        crash.setattr(idempotency, "store_reply", dies)
        with pytest.raises(Died):
            await api.fork(run=run.run_id, key="k")
    await api.session.close()
    async with Session(store=file) as session:
        restarted = with_workflows(session)
        assert (await refusal(restarted.fork(run=run.run_id, input="other", key="k"))).code == "conflict"
        forked = await restarted.fork(run=run.run_id, key="k")
        assert forked.run_id != run.run_id
        assert len((await restarted.runs()).runs) == 2
