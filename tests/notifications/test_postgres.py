"""Messages about runs in PostgreSQL, sent by the process that owns the session."""

from pathlib import Path

from nerve import Session
from notifications.receiver import PlannedReply, Receiver
from notifications.test_notifier import received, register_workflows


async def test_the_next_owner_sends_what_the_previous_one_could_not(
    project: Path, receiver: Receiver, postgresql_url: str
) -> None:
    receiver.reply = lambda _: PlannedReply(503)
    async with Session(store=postgresql_url, project=project) as session:
        register_workflows(session)
        await (await session.start("hello")).wait()
        await received(receiver, 1)
    receiver.reply = lambda _: PlannedReply()
    attempts = len(receiver.requests)
    async with Session(store=postgresql_url, project=project) as session:
        await session.recover()
        messages = await received(receiver, attempts + 1)
    assert {message["id"] for message in messages} == {messages[0]["id"]}
    assert messages[-1]["title"] == "hello completed"
