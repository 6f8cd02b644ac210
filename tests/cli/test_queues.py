"""`nerve queues`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from cli.conftest import Said

CODE = """
from nerve import Queue


def register(session):
    session.add_queue(Queue("emails", concurrency=5, rate="100/min", per="tenant"))

    @session.step(queue="emails")
    async def send(tenant: str) -> str:
        return tenant

    @session.workflow
    async def mail(ctx, tenant: str) -> str:
        return await send(tenant)
"""


def test_a_project_without_queues_says_so(do: Callable[..., Said]) -> None:
    assert do("queues").out == "No queues.\n"
    assert json.loads(do("queues", "--json").out) == []


def test_a_wrong_action_and_a_missing_name_are_refused(do: Callable[..., Said]) -> None:
    assert "Unknown action 'paus'. Did you mean 'pause'?" in do("queues", "paus").err
    assert "The name of the queue is missing: nerve queues pause NAME." in do("queues", "pause").err
    assert "Queue 'emails' not found. The session has no queues" in do("queues", "pause", "emails").err


def test_queues_are_listed_and_stay_paused_until_they_are_resumed(
    do: Callable[..., Said], project: Path
) -> None:
    (project / "mail.py").write_text(CODE)
    assert do("queues", "pause", "emails", "--with", "mail.py").out == "Queue emails is paused.\n"
    lines = do("queues", "--with", "mail.py").out.splitlines()
    assert lines[0].split() == ["queue", "limits", "running", "waiting", "oldest"]
    assert " ".join(lines[1].split()) == "emails 5 at a time, 100/min, per tenant 0 0 paused"
    assert do("queues", "resume", "emails", "--with", "mail.py").out == "Queue emails is resumed.\n"
    (queue,) = json.loads(do("queues", "--json", "--with", "mail.py").out)
    assert (queue["name"], queue["paused"], queue["running"]) == ("emails", False, 0)
    assert do("run", "mail.py:mail", "acme").out.splitlines()[-1] == "acme"


def test_a_run_is_started_in_a_queue_by_an_option(do: Callable[..., Said], project: Path) -> None:
    (project / "mail.py").write_text(CODE)
    started = do("start", "mail.py:mail", "acme", "--queue", "emails", "--wait", "--json")
    assert json.loads(started.out)["state"] == "failed"
    assert "is in queue 'emails' until it ends" in json.loads(started.out)["error"]
    refused = do("run", "mail.py:mail", "acme", "--queue", "email")
    assert "Queue 'email' not found. Did you mean 'emails'?" in refused.err
