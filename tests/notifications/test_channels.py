"""What each service gets, as its documentation says, and how its replies are understood."""

import email
import email.policy
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nerve.notifications.channel_table import make_channel
from nerve.notifications.delivery import (
    Channel,
    DeliveryFailed,
    HttpSender,
    Reply,
    SecretReader,
    check_status,
    parse_retry_after,
)
from nerve.notifications.desktop_channel import DesktopChannel
from nerve.notifications.messages import MessageWriter, NotifiedEvent, NotifyMessage
from nerve.project.notify_settings import ChannelSettings, SecretSource
from notifications.receiver import MailServer, PlannedReply, Receiver

WRITER = MessageWriter("https://nerve.example.com")
TOKEN = SecretSource(env="CHAT_TOKEN")
RUN = "01a1f502-512c-7f59-903c-2fe8902c2a94"
LINK = f"https://nerve.example.com/inbox/{RUN}/5c92aec6"


def gate_message(**values: Any) -> NotifyMessage:
    fields = {"workflow": "a <b> & c", "gate": "5c92aec6", "name": "approve", "label": "v3", **values}
    event = NotifiedEvent("gate_opened", RUN, 4, at=1763570495.0, **fields)
    return NotifyMessage("chat", "gate_opened", [event], created_at=1763570496.0)


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_TOKEN", "12345:very-secret")


def channel(kind: str, **values: Any) -> Channel:
    return make_channel(ChannelSettings(kind, values), SecretReader(Path()), WRITER, "default", HttpSender())


async def test_ntfy_gets_a_message_that_opens_the_gate(receiver: Receiver) -> None:
    ntfy = channel("ntfy", url=receiver.url, topic="nerve-ada", token=TOKEN, priority="high")
    message = gate_message()
    await ntfy.send(message)
    await ntfy.close()
    [request] = receiver.requests
    assert (request.path, request.headers["authorization"]) == ("/", "Bearer 12345:very-secret")
    assert request.headers["nerve-message-id"] == message.id
    assert request.json == {
        "topic": "nerve-ada",
        "title": "a <b> & c waits for an answer: approve",
        "message": "Run 01a1f502 (v3)",
        "click": LINK,
        "tags": ["raising_hand"],
        "priority": 4,
        "sequence_id": message.id,
    }


async def test_an_incoming_webhook_of_slack_gets_an_escaped_text(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_WEBHOOK", f"{receiver.url}/services/T0/B0/secret")
    receiver.replies = [PlannedReply(200, "ok")]
    slack = channel("slack", webhook=SecretSource(env="SLACK_WEBHOOK"))
    await slack.send(gate_message())
    await slack.close()
    [request] = receiver.requests
    assert request.path == "/services/T0/B0/secret"
    title = "*a &lt;b&gt; &amp; c waits for an answer: approve*"
    assert request.json["text"] == f"{title}\nRun 01a1f502 (v3)\n{LINK}"


async def test_a_bot_of_slack_writes_into_its_channel_with_the_id_as_metadata(receiver: Receiver) -> None:
    slack = channel("slack", token=TOKEN, channel="C012", url=receiver.url)
    message = gate_message()
    await slack.send(message)
    receiver.replies = [
        PlannedReply(200, {"ok": False, "error": "channel_not_found"}),
        PlannedReply(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "30"}),
    ]
    with pytest.raises(DeliveryFailed, match="Slack answered: channel_not_found") as refused:
        await slack.send(message)
    with pytest.raises(DeliveryFailed, match="Slack answered 429") as limited:
        await slack.send(message)
    await slack.close()
    assert (refused.value.is_final, limited.value.is_final, limited.value.retry_after) == (True, False, 30.0)
    request = receiver.requests[0]
    assert (request.path, request.headers["authorization"]) == (
        "/chat.postMessage",
        "Bearer 12345:very-secret",
    )
    assert request.json["channel"] == "C012"
    assert request.json["metadata"] == {"event_type": "nerve_message", "event_payload": {"id": message.id}}


async def test_telegram_gets_a_text_and_its_token_is_in_no_error(receiver: Receiver) -> None:
    telegram = channel("telegram", token=TOKEN, chat="-100200", url=receiver.url)
    await telegram.send(gate_message())
    receiver.replies = [
        PlannedReply(429, {"ok": False, "error_code": 429, "parameters": {"retry_after": 7}}),
        PlannedReply(403, {"ok": False, "error_code": 403, "description": "bot was kicked"}),
        PlannedReply(502, "<html>"),
    ]
    failures = []
    for _ in range(3):
        with pytest.raises(DeliveryFailed) as failed:
            await telegram.send(gate_message())
        failures.append(failed.value)
    await telegram.close()
    assert [(failure.is_final, failure.retry_after) for failure in failures] == [
        (False, 7.0),
        (True, None),
        (False, None),
    ]
    assert not any("very-secret" in str(failure) for failure in failures)
    request = receiver.requests[0]
    assert request.path == "/bot12345:very-secret/sendMessage"
    assert request.json == {
        "chat_id": "-100200",
        "text": f"a <b> & c waits for an answer: approve\nRun 01a1f502 (v3)\n{LINK}",
        "link_preview_options": {"is_disabled": True},
    }


def mail_channel(server: MailServer, **values: Any) -> Channel:
    people = ("ada@example.com", "bob@example.com")
    settings = {"host": "127.0.0.1", "port": server.port, "security": "none", "from": "nerve@example.com"}
    return channel("email", **settings, to=people, **values)


async def test_a_mail_has_the_same_id_in_every_attempt(mail_server: MailServer) -> None:
    message = gate_message(workflow="größe")
    for _ in range(2):
        await mail_channel(mail_server).send(message)
    first, second = (
        email.message_from_bytes(each, policy=email.policy.default) for each in mail_server.mails
    )
    assert first["Message-ID"] == second["Message-ID"] == f"<{message.id}@example.com>"
    assert first["Subject"] == "größe waits for an answer: approve"
    assert first["To"] == "ada@example.com, bob@example.com"
    assert first["Auto-Submitted"] == "auto-generated"
    assert first.get_content().splitlines() == ["Run 01a1f502 (v3)", LINK]
    assert len(mail_server.recipients) == 4


@pytest.mark.parametrize(("reply", "is_final"), [(b"550 unknown\r\n", True), (b"451 later\r\n", False)])
async def test_a_mail_that_is_refused_for_good_is_not_sent_again(
    mail_server: MailServer, reply: bytes, is_final: bool
) -> None:
    mail_server.refusals = [reply, reply]
    with pytest.raises(DeliveryFailed, match=r"127\.0\.0\.1 refused all recipients") as failed:
        await mail_channel(mail_server).send(gate_message())
    assert failed.value.is_final is is_final


async def test_a_mail_server_that_is_down_is_a_temporary_problem() -> None:
    with pytest.raises(DeliveryFailed, match=r"The connection to 127\.0\.0\.1:1 failed") as failed:
        await mail_channel(MailServer(1)).send(gate_message())
    assert not failed.value.is_final


@pytest.mark.skipif(sys.platform == "darwin", reason="uses notify-send")
async def test_the_desktop_gets_a_text_as_arguments_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/shown\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    await DesktopChannel(WRITER).send(gate_message(workflow="--help `id`"))
    assert (tmp_path / "shown").read_text().splitlines() == [
        "--app-name=Nerve",
        "--",
        "--help `id` waits for an answer: approve",
        "Run 01a1f502 (v3)",
        LINK,
    ]


async def test_a_machine_without_a_desktop_is_a_final_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DeliveryFailed, match="is not installed") as failed:
        await DesktopChannel(WRITER).send(gate_message())
    assert failed.value.is_final


async def test_a_redirect_is_not_followed_because_it_would_forward_the_token(receiver: Receiver) -> None:
    receiver.replies = [PlannedReply(302, headers={"location": receiver.url})]
    ntfy = channel("ntfy", url=receiver.url, topic="t", token=TOKEN)
    with pytest.raises(DeliveryFailed, match="ntfy answered 302") as failed:
        await ntfy.send(gate_message())
    await ntfy.close()
    assert failed.value.is_final
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    ("status", "is_final"), [(400, True), (401, True), (404, True), (408, False), (500, False), (503, False)]
)
def test_a_status_says_whether_another_attempt_can_succeed(status: int, is_final: bool) -> None:
    with pytest.raises(DeliveryFailed) as failed:
        check_status(Reply(status, {}, "the prompt of the user"), "ntfy")
    assert (failed.value.is_final, str(failed.value)) == (is_final, f"ntfy answered {status}")


def test_a_service_names_the_time_of_the_next_attempt_as_seconds_or_as_a_date() -> None:
    from email.utils import formatdate

    assert parse_retry_after("2.5") == 2.5
    assert parse_retry_after(7) == 7.0
    later = parse_retry_after(formatdate(time.time() + 100, usegmt=True))
    assert later is not None
    assert 90 < later <= 101
    assert [parse_retry_after(text) for text in (None, "soon", True, "")] == [None] * 4


async def test_a_host_that_does_not_answer_is_named_without_its_url() -> None:
    http = HttpSender()
    with pytest.raises(DeliveryFailed) as failed:
        await http.post("http://127.0.0.1:1/secret", b"", {})
    await http.close()
    assert str(failed.value) == "The connection failed: ConnectError"


def test_a_secret_is_read_from_a_variable_or_a_file(tmp_path: Path) -> None:
    reader = SecretReader(tmp_path, {"KEY": " k \n", "EMPTY": ""})
    (tmp_path / "token").write_text("from a file\n")
    assert reader.read(SecretSource(env="KEY")) == "k"
    assert reader.read(SecretSource(file="token")) == "from a file"
    assert reader.find_problem(None, SecretSource(env="KEY")) == ""
    for source, problem in (
        (SecretSource(env="EMPTY"), "The environment variable EMPTY is not set"),
        (SecretSource(file="none"), "The file none cannot be read: No such file or directory"),
    ):
        assert reader.find_problem(source) == problem


def test_names_stay_in_one_line_and_are_short() -> None:
    text = WRITER.write(gate_message(workflow="a\nb\x1b[31m" + "x" * 500))
    assert "\n" not in text.title
    assert "\x1b" not in text.title
    assert len(text.title) < 200
