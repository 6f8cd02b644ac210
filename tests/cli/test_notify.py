"""`nerve notify`: what it prints, and what it refuses; and what `nerve run` sends and rings for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.conftest import Said
from nerve.notifications import notifier
from notifications.conftest import SECRET, write_rules
from notifications.receiver import PlannedReply, Receiver, receiving, write_config

CODE = """
def register(session):
    @session.workflow
    async def hello(ctx) -> str:
        return "hello"
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as received:
        yield received


@pytest.fixture
def hooked(project: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setattr(notifier, "CLOSE_TIMEOUT_S", 30.0)  # importing the client may take long
    write_rules(project, receiver)
    (project / "flow.py").write_text(CODE)
    return project


def test_a_project_without_channels_says_how_to_get_them(do: Callable[..., Said]) -> None:
    assert (
        do("notify").out == 'No channels. Add "notify" to .nerve/config.json: docs/guides/notifications.md\n'
    )
    assert do("notify", "--json").json["channels"] == []
    assert "Channel 'phone' not found" in do("notify", "test", "phone").err


def test_a_wrong_action_and_a_missing_name_are_refused(do: Callable[..., Said]) -> None:
    assert "Unknown action 'tst'. Did you mean 'test'?" in do("notify", "tst").err
    assert "The name of the channel is missing: nerve notify test CHANNEL." in do("notify", "test").err


def test_channels_are_listed_with_what_was_sent_and_what_was_refused(
    do: Callable[..., Said], hooked: Path, receiver: Receiver
) -> None:
    assert do("run", "flow.py:hello").code == 0
    assert [request.json["title"] for request in receiver.requests] == ["hello completed"]
    receiver.replies = [PlannedReply(410)]
    assert do("run", "flow.py:hello").code == 0
    lines = do("notify").out.splitlines()
    assert lines[0].split() == ["channel", "kind", "to", "sent", "last", "waiting"]
    assert lines[1].split()[:4] == ["hook", "webhook", receiver.url, "1"]
    assert lines[3] == "1 message not delivered:"
    assert lines[4].endswith(" ago to hook: hello completed. The receiver answered 410")
    state = do("notify", "--json").json
    assert [(each["name"], each["sent"], each["pending"]) for each in state["channels"]] == [("hook", 1, 0)]
    assert [failure["error"] for failure in state["failures"]] == ["The receiver answered 410"]


def test_a_channel_is_tried_with_a_message(
    do: Callable[..., Said], hooked: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert do("notify", "test", "hook").out == f"Sent a test message to hook: {receiver.url}.\n"
    assert receiver.requests[0].json["title"] == "Test message from Nerve"
    receiver.replies = [PlannedReply(401)]
    said = do("notify", "test", "hook")
    assert said.code != 0
    assert "The message to 'hook' was not delivered. The receiver answered 401." in said.err
    assert "Channel 'hok' not found. Did you mean 'hook'?" in do("notify", "test", "hok").err
    monkeypatch.delenv("HOOK_SECRET")
    assert "The environment variable HOOK_SECRET is not set" in do("notify").out


def test_messages_without_links_are_mentioned(do: Callable[..., Said], project: Path) -> None:
    rules = [{"events": ["run_failed"], "to": ["bell"]}]
    write_config(project, notify={"rules": rules})
    lines = do("notify").out.splitlines()
    assert lines[1].split()[:2] == ["bell", "bell"]
    assert lines[3].startswith("Messages have no links.")
    assert json.loads(do("notify", "--json").out)["public_url"] is None


def test_doctor_reports_channels_with_what_is_missing(
    do: Callable[..., Said], hooked: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"✓ channel hook: {receiver.url}" in do("doctor").out
    monkeypatch.delenv("HOOK_SECRET")
    assert "○ channel hook: The environment variable HOOK_SECRET is not set" in do("doctor").out
