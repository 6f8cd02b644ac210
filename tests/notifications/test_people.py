"""Messages to people and roles: only who is asked gets them, at the address in their contacts."""

import asyncio
import email
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nerve import Session
from nerve.api import Api
from nerve.api.callers import Caller
from nerve.notifications.person_channel import find_person_channel
from nerve.project.config import read_config
from notifications.receiver import MailServer, Receiver, write_config

GATE_EVENTS = ["gate_opened", "gate_reminded", "gate_escalated", "gate_delegated"]
CHOICES = ["approve", "reject"]


def write_people_rules(project: Path, receiver: Receiver, to: list[str], **options: Any) -> None:
    channels = {"phone": {"kind": "ntfy", "topic": "nobody", "url": receiver.url}, **options}
    rules = [{"events": [*GATE_EVENTS, "run_failed"], "to": to}]
    write_config(project, notify={"channels": channels, "rules": rules})


def register(session: Session) -> None:
    @session.workflow
    async def ship(ctx: Any, settings: dict[str, Any]) -> Any:
        return await ctx.gate("Ship?", choices=CHOICES, **settings)

    @session.workflow
    async def fail(ctx: Any) -> None:
        raise ValueError("no")


@asynccontextmanager
async def open_api(project: Path) -> AsyncIterator[Api]:
    async with Session(store=project / "nerve.db", project=project) as session:
        register(session)
        api = Api(session)
        if not session.people.current():
            for name, roles in (("ann", ["lead"]), ("ben", ["lead"]), ("cay", ["boss"]), ("dan", [])):
                await api.add_person(person=name, roles=roles, contacts={"ntfy": f"topic-{name}"})
        yield api


def as_person(api: Api, name: str) -> Api:
    return api.as_caller(Caller(f"person:{name}", "http", "member"))


async def start(api: Api, by: str | None = None, **settings: Any) -> Any:
    starter = api if by is None else as_person(api, by)
    return await starter.start(workflow="ship", input=settings, wait=True)


async def received(receiver: Receiver, count: int) -> list[tuple[str, str]]:
    """Return the topics and titles of the messages as soon as there are so many."""
    requests = await asyncio.to_thread(receiver.wait_for, count)
    return sorted((request.json["topic"], request.json["title"]) for request in requests)


OPENED = "ship waits for an answer"


async def test_a_role_reaches_each_of_its_people_once_with_an_id_of_their_own(
    tmp_path: Path, receiver: Receiver
) -> None:
    write_people_rules(tmp_path, receiver, ["@lead", "@ann"])
    async with open_api(tmp_path) as api:
        await start(api, approvers=["lead", "boss"])
        assert await received(receiver, 2) == [("topic-ann", OPENED), ("topic-ben", OPENED)]
    ids = {request.headers["nerve-message-id"] for request in receiver.requests}
    assert (len(ids), len(receiver.requests)) == (2, 2)


async def test_only_people_who_may_answer_are_asked(tmp_path: Path, receiver: Receiver) -> None:
    """Not who started the run, is disabled, may only read, or is not one of the approvers."""
    write_people_rules(tmp_path, receiver, ["@everyone"])
    async with open_api(tmp_path) as api:
        await api.add_person(person="eve", roles=["lead"], contacts={"ntfy": "topic-eve"})
        await api.change_person(person="eve", disabled=True)
        await api.add_person(person="fay", roles=["lead"], scope="read", contacts={"ntfy": "topic-fay"})
        await start(api, by="ann", approvers=["lead"])
        assert await received(receiver, 1) == [("topic-ben", OPENED)]
        await start(api, approvers=["boss"])
        await received(receiver, 2)
    assert sorted(request.json["topic"] for request in receiver.requests) == ["topic-ben", "topic-cay"]


async def wait_for_title(receiver: Receiver, title: str) -> None:
    async with asyncio.timeout(20):
        while not find_topics(receiver, title):  # noqa: ASYNC110 - the receiver reports nothing
            await asyncio.sleep(0.01)


def find_topics(receiver: Receiver, title: str) -> list[str]:
    return sorted(request.json["topic"] for request in receiver.requests if request.json["title"] == title)


async def test_a_reminder_reaches_those_who_have_not_answered(tmp_path: Path, receiver: Receiver) -> None:
    title = "ship still waits for an answer"
    write_people_rules(tmp_path, receiver, ["@everyone"])
    async with open_api(tmp_path) as api:
        run = await start(api, approvers=["lead"], quorum=2, remind=[3])
        await as_person(api, "ann").answer(run=run.run_id, answer="approve", hash=run.gates[0].hash)
        await wait_for_title(receiver, title)
    assert find_topics(receiver, title) == ["topic-ben"]


async def test_an_escalation_reaches_those_to_whom_it_goes(tmp_path: Path, receiver: Receiver) -> None:
    title = "ship has waited for long, and further people may answer"
    write_people_rules(tmp_path, receiver, ["@everyone"])
    async with open_api(tmp_path) as api:
        await start(api, approvers=["ann"], escalate=[{"after": 0.5, "to": ["boss"]}])
        await wait_for_title(receiver, title)
    assert find_topics(receiver, title) == ["topic-cay"]


async def test_a_delegation_reaches_the_delegate(tmp_path: Path, receiver: Receiver) -> None:
    write_people_rules(tmp_path, receiver, ["@everyone"])
    async with open_api(tmp_path) as api:
        run = await start(api, approvers=["ann"])
        shown = {"run": run.run_id, "hash": run.gates[0].hash}
        await received(receiver, 1)
        await as_person(api, "ann").answer(answer="dan", action="delegate", **shown)
        found = await received(receiver, 2)
    assert found == [("topic-ann", OPENED), ("topic-dan", "ship waits for a delegated answer")]


async def test_other_events_reach_all_of_a_role(tmp_path: Path, receiver: Receiver) -> None:
    write_people_rules(tmp_path, receiver, ["@lead"])
    async with open_api(tmp_path) as api:
        await api.start(workflow="fail")
        assert await received(receiver, 2) == [("topic-ann", "fail failed"), ("topic-ben", "fail failed")]


async def test_a_message_that_a_process_did_not_send_is_sent_by_the_next_to_the_new_address(
    tmp_path: Path, receiver: Receiver
) -> None:
    write_people_rules(tmp_path, receiver, ["@ann"])
    settings = json.loads((tmp_path / ".nerve/config.json").read_text())
    settings["notify"]["channels"]["phone"]["url"] = "http://127.0.0.1:1"
    (tmp_path / ".nerve/config.json").write_text(json.dumps(settings))
    async with open_api(tmp_path) as api:
        await start(api, approvers=["lead"])
        await api.change_person(person="ann", contacts={"ntfy": "topic-new"})
    write_people_rules(tmp_path, receiver, ["@ann"])
    async with open_api(tmp_path) as api:
        await api.session.recover()
        assert await received(receiver, 1) == [("topic-new", OPENED)]


async def test_a_mail_goes_to_the_contact_and_not_to_the_address_of_the_channel(
    tmp_path: Path, receiver: Receiver, mail_server: MailServer
) -> None:
    mail = {"kind": "email", "host": "127.0.0.1", "port": mail_server.port, "security": "none"}
    mail |= {"from": "nerve@example.com", "to": "all@example.com"}
    write_people_rules(tmp_path, receiver, ["@boss"], mail=mail)
    async with open_api(tmp_path) as api:
        await api.change_person(person="cay", contacts={"ntfy": None, "email": "cay@example.com"})
        await start(api, approvers=["boss"])
        async with asyncio.timeout(20):
            while not mail_server.mails:  # noqa: ASYNC110 - the server reports nothing
                await asyncio.sleep(0.01)
    assert email.message_from_bytes(mail_server.mails[0])["To"] == "cay@example.com"


async def test_a_person_without_a_contact_for_a_channel_gets_nothing(
    tmp_path: Path, receiver: Receiver
) -> None:
    write_people_rules(tmp_path, receiver, ["@lead"])
    async with open_api(tmp_path) as api:
        await api.change_person(person="ann", contacts={"ntfy": None})
        await start(api, approvers=["lead"])
        assert await received(receiver, 1) == [("topic-ben", OPENED)]
        people = api.session.people.current()
    text = (
        '{"channels": {"s": {"kind": "slack", "webhook": {"env": "X"}}, "b": {"kind": "ntfy", "topic": "t"}}}'
    )
    notify = read_config(f'{{"notify": {text}}}').notify
    assert notify is not None
    assert [find_person_channel(notify, people[name]) for name in ("ann", "ben")] == [None, "b"]
