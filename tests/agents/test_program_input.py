"""The input of an agent's program: prompts are data, whatever they look like, and no variable leaks."""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agents.faults.engine import provider_of
from agents.faults.world import APIS
from agents.test_faults import AGENTS
from nerve.agents.claude import ClaudeProvider
from nerve.agents.codex import CodexProvider
from nerve.agents.command_provider import CommandProvider
from nerve.agents.provider import AssistantText, QueryOptions, TurnFinished
from nerve.errors import NerveError
from process.seen import TAG, eventually, read, stat, tagged

HOSTILE = (
    "-x",
    "--dangerously-skip-permissions",
    "--",
    "$(id) `id` ${HOME} $HOME",
    "first\n--second\r\nthird",
    "'; touch made.txt #\" && touch made.txt",
    "/clear @made.txt !touch made.txt",
    "%s %n {0} {{ input }} \\x1b[2J \u202e\u2028",
)
FOREIGN = (
    "NERVE_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "DATABASE_URL",
    "PYTHONPATH",
    "LD_PRELOAD_X",
)
OWN = {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "LOGNAME", "SHELL", "TZ", "NERVE_OWNER", TAG}
"""Variables that every child process may see."""
DECLARED = {
    "claude": {
        *("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_MAX_RETRIES"),
        *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"),
    },
    "codex": {"STUB_KEY"},
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


def options(place: Path, tag: str = "") -> QueryOptions:
    return QueryOptions(env={"HOME": str(place / "home"), TAG: tag or uuid.uuid4().hex})


@pytest.mark.parametrize("kind", AGENTS)
async def test_a_prompt_that_looks_like_an_option_is_passed_as_a_prompt(kind: str, place: Path) -> None:
    with APIS[kind].stub() as stub:
        provider = provider_of(kind, stub.url)
        alone = asyncio.Semaphore(2)

        async def answered(prompt: str) -> Any:
            async with alone:
                turn = provider.query(prompt, str(place / "work"), None, options(place))
                return [chunk async for chunk in turn][-1]

        ends = await asyncio.gather(*map(answered, HOSTILE))
    assert {end.outcome for end in ends} == {"completed"}
    heard = [
        text for request in stub.heard if isinstance(request.body, dict) for text in said(kind, request.body)
    ]
    assert not [prompt for prompt in HOSTILE if prompt.strip() not in heard]
    assert list((place / "work").iterdir()) == []


def said(kind: str, body: Any) -> list[str]:
    return [text.strip() for text in APIS[kind].said(body)] if {"messages", "input"} & body.keys() else []


@pytest.mark.parametrize("kind", AGENTS)
async def test_the_program_gets_only_allowed_and_declared_variables(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FOREIGN:
        monkeypatch.setenv(name, f"secret-{name}")
    tag = uuid.uuid4().hex
    with APIS[kind].stub() as stub:
        turn: Any = provider_of(kind, stub.url).query(
            "[[hold]]", str(place / "work"), None, options(place, tag)
        )
        async with aclosing(turn):
            listening = asyncio.create_task(until_said(turn))
            await eventually(lambda: stub.holding or listening.done())
            every = {pid: names_of(pid) for pid in tagged(tag)}
            assert every
            first = [names for pid, names in every.items() if int(stat(pid)[1]) not in every]
            assert len(first) == 1
            assert {name for name in first[0] if not name.startswith("LC_")} <= OWN | DECLARED.get(
                kind, set()
            )
            assert not [name for names in every.values() for name in names if name in FOREIGN]
            assert not [pid for pid in every if b"secret-" in read(pid, "environ") + read(pid, "cmdline")]
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


@pytest.mark.parametrize(
    ("made", "own"),
    [
        (ClaudeProvider, ("ANTHROPIC_API_KEY", "HTTPS_PROXY")),
        (CodexProvider, ("OPENAI_API_KEY", "HTTPS_PROXY", "SSL_CERT_FILE")),
    ],
)
async def test_variables_passed_by_name_are_added_to_the_programs_own(
    made: Any, own: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*own, "HERON", "STORK"):
        monkeypatch.setenv(name, "set")
    script = place / "program"
    script.write_text(f"#!/bin/sh\nenv > {place}/seen\nexit 3\n")
    script.chmod(0o700)
    turn = made(program=str(script), pass_env=["HERON"]).query("x", None, None, options(place))
    with pytest.raises(NerveError):
        async for _ in turn:
            pass
    seen = {line.partition("=")[0] for line in (place / "seen").read_text().splitlines()}
    assert seen & {*own, "HERON", "STORK"} == {*own, "HERON"}


async def until_said(turn: Any) -> None:
    async for chunk in turn:
        if isinstance(chunk, AssistantText | TurnFinished):
            await asyncio.Event().wait()


def names_of(pid: int) -> set[str]:
    return {entry.partition(b"=")[0].decode() for entry in read(pid, "environ").split(b"\0") if entry}


@pytest.mark.parametrize("times", [200, pytest.param(1000, marks=pytest.mark.full)])
async def test_any_prompt_reaches_a_command_unchanged_and_only_through_stdin(times: int, place: Path) -> None:
    draw = random.Random(49)
    parts = [*HOSTILE, " ", "\n", "\t", "ü🐦", "-", "a" * 5000, "\\", "'", '"', "$", "*", "~"]
    program = "cat; printf '|%s' \"$#\" \"$(tr '\\0' ' ' </proc/$$/cmdline | wc -c)\""
    provider = CommandProvider(["bash", "-c", program])
    length = len(f"bash -c {program} ")
    slots = asyncio.Semaphore(8)

    async def answered(prompt: str) -> str:
        async with slots:
            turn = provider.query(prompt, str(place / "work"), None, options(place))
            chunks = [chunk async for chunk in turn]
        return [chunk.content for chunk in chunks if isinstance(chunk, AssistantText)][-1]

    prompts = ["".join(draw.choices(parts, k=draw.randint(1, 6))) for _ in range(times)]
    answers = await asyncio.gather(*map(answered, prompts))
    assert [
        answer for answer, prompt in zip(answers, prompts, strict=True) if answer != f"{prompt}|0|{length}"
    ] == []
    assert list((place / "work").iterdir()) == []
