"""Which messages people get, what is in them, and that a run never waits for them."""

import asyncio
import hmac
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.crypto import AesGcmCodec
from nerve.notifications import notifier
from nerve.notifications.outbox import MessageOutbox, property_name
from notifications.conftest import SECRET, write_rules
from notifications.receiver import PATIENCE_S, PlannedReply, Receiver


def open_session(project: Path, **options: Any) -> Session:
    session = Session(store=project / "nerve.db", project=project, **options)
    register_workflows(session)
    return session


def register_workflows(session: Session) -> None:
    @session.workflow
    async def ship(ctx: Any, number: Any = None) -> Any:
        return await ctx.gate(f"Ship the secret plan {number}?", choices=["yes", "no"])

    @session.workflow
    async def many(ctx: Any, count: int) -> Any:
        return await asyncio.gather(*(ctx.gate(f"Continue with {n}?") for n in range(count)))

    @session.workflow
    async def fail(ctx: Any) -> None:
        raise ValueError("the secret plan failed")

    @session.workflow
    async def hello(ctx: Any) -> str:
        return "the secret answer"

    @session.workflow
    async def parent(ctx: Any) -> Any:
        return await ctx.run_workflow("ship", 1)


async def received(receiver: Receiver, count: int) -> list[dict[str, Any]]:
    requests = await asyncio.to_thread(receiver.wait_for, count)
    return [request.json for request in requests]


async def start_failing(session: Session, **options: Any) -> None:
    run = await session.start("fail", **options)
    with pytest.raises(ValueError, match="secret plan"):
        await run.wait()


async def wait_until(find: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := find()):  # noqa: ASYNC110 - what is looked at reports nothing
            await asyncio.sleep(0.01)
    return found


async def test_an_open_gate_is_reported_with_names_ids_and_a_link_only(
    project: Path, receiver: Receiver
) -> None:
    async with open_session(project) as session:
        run = await session.start("ship", 7, label="v3")
        [message] = await received(receiver, 1)
        [gate] = run.pending_gates
        url = f"https://nerve.example.com/inbox/{run.run_id}/{gate.gate_id}"
        [event] = message["events"]
        assert message["title"] == "ship waits for an answer"
        assert (message["event"], message["count"], message["session"]) == ("gate_opened", 1, "default")
        assert (event["workflow"], event["run"], event["label"]) == ("ship", run.run_id, "v3")
        assert (event["gate"], event["url"]) == (gate.gate_id, url)
        assert message["url"] == url
        assert b"secret plan" not in receiver.requests[0].body
        await run.answer("yes")
        await run.wait()
        messages = await received(receiver, 2)
        assert messages[1]["title"] == "ship completed"
        assert messages[1]["url"] == f"https://nerve.example.com/runs/{run.run_id}"


async def test_a_message_is_signed_as_standard_webhooks_says(project: Path, receiver: Receiver) -> None:
    async with open_session(project) as session:
        await (await session.start("hello")).wait()
        await received(receiver, 1)
    [request] = receiver.requests
    id, timestamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    key = b64decode(SECRET.removeprefix("whsec_"))
    expected = b64encode(hmac.digest(key, f"{id}.{timestamp}.".encode() + request.body, sha256)).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(timestamp) - time.time()) < 60
    assert id == request.json["id"] == request.headers["nerve-message-id"]


async def test_content_is_sent_only_if_a_rule_allows_it_and_without_secrets(
    project: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")
    write_rules(project, receiver, content=True)
    async with open_session(project) as session:
        await session.start("ship", "with hunter2-hunter2")
        [message] = await received(receiver, 1)
    assert message["events"][0]["content"] == "Ship the secret plan with [DEPLOY_TOKEN]?"


async def test_an_encrypted_store_gives_no_content_to_messages(project: Path, receiver: Receiver) -> None:
    write_rules(project, receiver, content=True)
    codec = AesGcmCodec({"k": bytes(32)}, "k")
    async with open_session(project, codec=codec) as session:
        await start_failing(session)
        [message] = await received(receiver, 1)
    assert message["title"] == "fail failed"
    assert "content" not in message["events"][0]


async def test_a_failed_run_a_stopped_run_and_a_run_without_budget_are_reported(
    project: Path, receiver: Receiver
) -> None:
    async with open_session(project) as session:
        await start_failing(session)
        await received(receiver, 1)
        waiting = await session.start("ship")
        await received(receiver, 2)
        await waiting.stop("not needed")
        messages = await received(receiver, 3)
    assert [message["event"] for message in messages] == ["run_failed", "gate_opened", "run_cancelled"]


async def test_300_gates_of_one_run_are_one_message_with_a_count(project: Path, receiver: Receiver) -> None:
    async with open_session(project) as session:
        await session.start("many", 300)
        [message] = await received(receiver, 1)
        await asyncio.sleep(0)
    assert message["title"] == "300 gates wait for an answer"
    assert (message["count"], len(message["events"])) == (300, 10)
    assert message["url"] == "https://nerve.example.com/inbox"
    assert len(receiver.requests) == 1


async def test_a_child_run_reports_its_gates_and_not_its_end(project: Path, receiver: Receiver) -> None:
    write_rules(project, receiver, workflows=["parent"])
    async with open_session(project) as session:
        run = await session.start("parent")
        [message] = await received(receiver, 1)
        assert message["events"][0]["workflow"] == "ship"
        await run.answer("yes")
        await run.wait()
        messages = await received(receiver, 2)
    assert [message["title"] for message in messages] == [
        "ship waits for an answer",
        "parent completed",
    ]


async def test_rules_select_by_workflow_and_by_tag(project: Path, receiver: Receiver) -> None:
    write_rules(project, receiver, workflows=["hello"], tags={"team": "core"})
    async with open_session(project) as session:
        await start_failing(session, tags={"team": "core"})
        await (await session.start("hello", tags={"team": "web"})).wait()
        last = await session.start("hello", tags={"team": "core"})
        await last.wait()
        [message] = await received(receiver, 1)
    assert [event["run"] for event in message["events"]] == [last.run_id]


async def test_a_gate_that_was_answered_at_once_disturbs_nobody(
    project: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "GATHER_S", 3.0)
    write_rules(project, receiver, events=["gate_opened", "run_completed"])
    async with open_session(project) as session:
        run = await session.start("ship")
        await wait_until(lambda: run.pending_gates)
        await run.answer("yes")
        await run.wait()
        messages = await received(receiver, 1)
    assert [message["event"] for message in messages] == ["run_completed"]


async def test_the_events_that_a_fork_copies_are_not_reported_again(
    project: Path, receiver: Receiver
) -> None:
    async with open_session(project) as session:
        run = await session.start("ship")
        await received(receiver, 1)
        await run.answer("yes")
        await run.wait()
        await received(receiver, 2)
        copy = await session.fork(run.run_id, at="/gate")
        messages = await received(receiver, 3)
        assert messages[2]["events"][0]["run"] == copy.run_id
    assert [message["event"] for message in messages] == ["gate_opened", "run_completed", "gate_opened"]


@pytest.mark.parametrize("reply", [PlannedReply(503), PlannedReply(429, headers={"retry-after": "0"})])
async def test_a_message_is_sent_again_with_the_same_id(
    project: Path, receiver: Receiver, reply: PlannedReply
) -> None:
    receiver.replies = [reply]
    async with open_session(project) as session:
        await (await session.start("hello")).wait()
        first, second = await received(receiver, 2)
    assert first == second
    assert receiver.requests[0].headers["webhook-id"] == receiver.requests[1].headers["webhook-id"]


async def test_a_session_closes_while_a_message_waits_for_its_next_attempt(
    project: Path, receiver: Receiver
) -> None:
    receiver.replies = [PlannedReply(429, headers={"retry-after": "3600"})]
    session, name = open_session(project), property_name("default")
    await (await session.start("hello")).wait()
    await received(receiver, 1)
    async with asyncio.timeout(PATIENCE_S):
        while not MessageOutbox.from_json(session.engine.store.read_property(name)).messages[0].attempts:  # noqa: ASYNC110 - the row is read
            await asyncio.sleep(0.01)
        await session.close()


async def test_a_service_says_when_it_may_be_asked_again(project: Path, receiver: Receiver) -> None:
    receiver.replies = [PlannedReply(429, headers={"retry-after": "2"})]
    async with open_session(project) as session:
        await (await session.start("hello")).wait()
        await received(receiver, 1)
        since = time.monotonic()
        await received(receiver, 2)
    assert time.monotonic() - since > 1.8


async def test_what_a_receiver_refuses_is_kept_among_the_failures(project: Path, receiver: Receiver) -> None:
    receiver.replies = [PlannedReply(404, "no_service")]
    async with open_session(project) as session:
        await (await session.start("hello")).wait()
        await received(receiver, 1)
        store = session.engine.store
        outbox = await wait_until(
            lambda: (
                (box := MessageOutbox.from_json(store.read_property(property_name("default")))).failures
                and box
            )
        )
        await (await session.start("hello")).wait()
        await received(receiver, 2)
    [failure] = outbox.failures
    assert failure.message.error == "The receiver answered 404 (no_service)"
    assert outbox.messages == []


async def test_a_receiver_that_hangs_delays_neither_runs_nor_the_end_of_the_session(
    project: Path, receiver: Receiver
) -> None:
    receiver.reply = lambda _: PlannedReply(delay_s=30)
    session = open_session(project)
    async with session:
        await (await session.start("hello")).wait()
        await received(receiver, 1)
        since = time.monotonic()
        for _ in range(20):
            await (await session.start("hello")).wait()
        assert time.monotonic() - since < 15
    assert time.monotonic() - since < 25
    receiver.reply = lambda _: PlannedReply()
    async with open_session(project) as again:
        await again.recover()
        messages = await received(receiver, 3)
    # The message that was under way, again, and one about all others.
    assert messages[1] == messages[0]
    assert messages[2]["title"] == "20 runs completed"


async def test_closing_a_session_sends_what_is_due(project: Path, receiver: Receiver) -> None:
    async with open_session(project) as session:
        await (await session.start("hello")).wait()
    assert [request.json["event"] for request in receiver.requests] == ["run_completed"]


async def test_the_first_process_begins_with_what_happens_from_now_on(
    project: Path, receiver: Receiver
) -> None:
    config = project / ".nerve" / "config.json"
    text = config.read_text()
    config.unlink()
    async with open_session(project) as session:
        await start_failing(session)
    config.write_text(text)
    async with open_session(project) as session:
        await session.recover()
        await (await session.start("hello")).wait()
        [message] = await received(receiver, 1)
    assert message["event"] == "run_completed"


async def test_a_missing_secret_delays_messages_until_it_is_there(
    project: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_SECRET")
    async with open_session(project) as session:
        await (await session.start("hello")).wait()
    [message] = MessageOutbox.from_json(read_outbox(project)).messages
    assert message.error == "The environment variable HOOK_SECRET is not set"
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    async with open_session(project) as session:
        await session.recover()
        [received_message] = await received(receiver, 1)
    assert received_message["id"] == message.id


def read_outbox(project: Path) -> str | None:
    from nerve.store.sqlite import SqliteStore

    store = SqliteStore(project / "nerve.db")
    try:
        return store.read_property(property_name("default"))
    finally:
        store.close()


async def test_an_event_that_the_stream_has_before_the_engine_reports_it_is_sent_once(
    project: Path, receiver: Receiver
) -> None:
    async with open_session(project) as session:
        own = session._notifier
        assert own is not None
        rows: list[Any] = []
        session.engine.watchers.append(lambda run, events: rows.append((run, events)))
        await (await session.start("hello")).wait()
        await received(receiver, 1)
        for run, events in rows:
            own.on_events(run, events)
        await own.read_events()
        await start_failing(session)
        messages = await received(receiver, 2)
    assert [message["event"] for message in messages] == ["run_completed", "run_failed"]
