"""The agent that a project names for routing: it is asked as any other agent is, by every front end."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.agents import Unavailable
from nerve.agents.provider import TurnFinished
from nerve.api import Api, ApiError
from nerve.api.conversation import receive_message
from nerve.router import project_router, session_router
from nerve.testing.scripted import ScriptedProvider

SHIP = "name: ship\ndescription: Ships a version\nbody: {kind: transform, expression: input}\n"
CHOSEN = "WORKFLOW: ship\nShip the third version."


class Unreachable(ScriptedProvider):
    """Its program is not there."""

    def check(self) -> None:
        raise Unavailable("it is not installed")


def session_of(folder: Path, agent: Any = None, router: str | None = "robot", **options: Any) -> Session:
    (folder / ".nerve").mkdir(exist_ok=True)
    config = {} if router is None else {"router": router}
    (folder / ".nerve/config.json").write_text(json.dumps(config))
    providers = {} if agent is None else {"robot": agent}
    session = Session(providers=providers, project=folder, **options)
    session.load(SHIP, "yaml")
    return session


def robot(*answers: Any) -> ScriptedProvider:
    return ScriptedProvider(list(answers), name="robot")


async def test_the_agent_of_the_configuration_decides_for_the_api_and_for_conversations(tmp_path) -> None:
    agent = robot(CHOSEN, CHOSEN)
    async with session_of(tmp_path, agent) as session:
        api = Api(session)
        told = await api.route(text="get the thing out", start=True)
        assert (told.kind, told.workflow, told.by) == ("workflow", "ship", "agent")
        assert told.run.workflow == "ship"
        said = await receive_message(api, "c", "get the thing out")
        assert said[1].text.startswith("**Starting workflow**: ship")
        assert [call.cwd for call in agent.calls] == [str(tmp_path)] * 2


async def test_without_an_agent_keywords_decide_and_the_result_says_so(tmp_path) -> None:
    async with session_of(tmp_path, robot(), router=None) as session:
        told = await Api(session).route(text="ship version 3")
        assert (told.workflow, told.by) == ("ship", "words")
        assert told.reason.startswith("decided offline, by words:")


async def test_an_agent_file_can_be_the_router(tmp_path) -> None:
    agent = robot(CHOSEN)
    session = session_of(tmp_path, agent, router="guide")
    (tmp_path / ".nerve/agents").mkdir()
    (tmp_path / ".nerve/agents/guide.md").write_text(
        "---\nname: guide\nprovider: robot\nmodel: small\ntools: [Bash]\n---\nYou are brief.\n"
    )
    assert (await project_router(session).route("x")).by == "agent"
    [call] = agent.calls
    assert call.options == {"model": "small", "system": "You are brief.\n", "tools": ()}


async def test_a_name_that_there_is_not_is_an_error_with_its_place(tmp_path) -> None:
    async with session_of(tmp_path, robot(), router="robt") as session:
        with pytest.raises(ApiError) as caught:
            await Api(session).route(text="ship")
    told = "Unknown agent or provider 'robt'. Did you mean 'robot'?"
    assert caught.value.message.startswith(f".nerve/config.json:1:12: {told}")


async def test_an_agent_that_is_not_installed_leaves_it_to_the_words_with_a_warning(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("nerve.agents.registry.installed_provider_names", lambda: ["robot"])
    monkeypatch.setattr("nerve.agents.registry.create_provider", lambda name, settings: Unreachable([]))
    async with session_of(tmp_path) as session:
        told = await Api(session).route(text="ship version 3")
        assert (told.workflow, told.by) == ("ship", "words")
        why = "The agent 'robot' could not decide: Unavailable: it is not installed"
        assert told.model_extra["warnings"] == (why,)
        said = await receive_message(Api(session), "c", "ship version 3")
        assert said[1].text == why


async def test_a_limited_provider_is_not_asked_and_the_words_decide(tmp_path) -> None:
    agent = robot()
    session = session_of(tmp_path, agent)
    session.provider_slots.rate_limits.limited["robot"] = time.time() + 600
    decision = await project_router(session).route("ship version 3")
    assert (decision.by, agent.calls) == ("words", [])
    assert "The agent 'robot' could not decide: limited: until " in decision.warnings[0]


async def test_a_limit_that_routing_runs_into_holds_all_who_ask_the_provider(tmp_path) -> None:
    until = time.time() + 600
    session = session_of(tmp_path, robot(TurnFinished("t", outcome="limited", error="429", resets_at=until)))
    assert (await project_router(session).route("ship version 3")).by == "words"
    assert session.provider_slots.rate_limits.limited == {"robot": until}


async def test_routing_takes_a_slot_of_the_provider(tmp_path) -> None:
    session = session_of(tmp_path, robot(CHOSEN), slots={"robot": 1})
    async with session.provider_slots.acquire("robot", None):
        routing = asyncio.create_task(session_router(session, "robot").route("ship version 3"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not routing.done()
    assert (await asyncio.wait_for(routing, 10)).by == "agent"
    assert session.provider_slots.snapshot()["robot"]["busy"] == 0
