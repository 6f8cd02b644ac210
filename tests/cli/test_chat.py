"""`nerve chat`: what it prints; `nerve doctor` names missing secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chat.stand_ins import TOKEN, GithubStandIn, github
from cli.conftest import Said
from nerve import Session
from nerve.core.workflow.context import WorkflowContext
from nerve.notifications import notifier
from nerve.project.paths import ProjectPaths
from notifications.receiver import PlannedReply, write_config

if TYPE_CHECKING:
    import pytest


def write_project(project: Path, service: GithubStandIn) -> None:
    base = {"kind": "github", "bot": "nerve-bot", "repositories": ["ada/tools"], "url": service.url}
    secrets = {"token": {"env": "CHAT_ACCESS"}, "secret": {"env": "CHAT_SIGNING"}}
    write_config(project, chat={"code": {**base, **secrets}})


async def say_hello(project: Path, issue: int) -> None:
    """Complete a run of the conversation of an issue."""
    async with Session(store=ProjectPaths.of(project).store, project=project) as session:

        @session.workflow
        async def hello(ctx: WorkflowContext) -> str:
            return "hello"

        await (await session.start("hello", conversation=f"code:ada/tools#{issue}")).wait()


def test_a_project_without_chats_says_how_to_get_them(do: Callable[..., Said]) -> None:
    assert do("chat").out == 'No chats. Add "chat" to .nerve/config.json: docs/guides/chat.md\n'
    assert do("chat", "--json").json["chats"] == []


def test_chats_are_listed_with_what_was_sent_and_what_was_refused(
    do: Callable[..., Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_ACCESS", TOKEN)
    monkeypatch.setattr(notifier, "CLOSE_TIMEOUT_S", 30.0)  # importing the client may take long
    with github() as service:
        write_project(project, service)
        asyncio.run(say_hello(project, 1))
        service.refusals = [PlannedReply(410)]
        asyncio.run(say_hello(project, 2))
        lines = do("chat").out.splitlines()
        assert lines[0].split() == ["chat", "kind", "as", "by", "sent", "last", "waiting"]
        assert lines[1].startswith("code  github  GitHub, as @nerve-bot in ada/tools  webhook  1")
        assert lines[1].endswith("The environment variable CHAT_SIGNING is not set")
        assert lines[-1].endswith("to code, thread ada/tools#2: run_completed. GitHub answered 410")


def test_doctor_names_the_secrets_that_are_missing(
    do: Callable[..., Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHAT_ACCESS", raising=False)
    with github() as service:
        write_project(project, service)
    [line] = [line for line in do("doctor").out.splitlines() if "chat code" in line]
    assert "The environment variable CHAT_ACCESS is not set" in line
