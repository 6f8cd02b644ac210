"""Conversations: messages start runs and answer gates, and runs are read as messages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.support import refusal
from nerve import Session
from nerve.api import Api
from nerve.api.conversation import conversation_messages, receive_message
from nerve.router.chat_commands import HELP_TEXT, NO_WORKFLOWS_TEXT, USAGE_TEXT
from nerve.testing.scripted import ScriptedProvider

CHAIN = "name: feature-work\ndescription: Builds a feature\nsteps:\n  - step: plan\n  - step: build\n"
ASKS = "name: ship\ndescription: Ships\nbody: {kind: gate, id: g, prompt: 'Ship it?', choices: [yes, no]}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "workflows/feature.yaml": CHAIN,
        "workflows/ship.yaml": ASKS,
        "steps/plan.md": "Plan: $USER_MESSAGE",
        "steps/build.md": "Build it",
    }.items():
        file = tmp_path / ".archon" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def session_of(project: Path) -> Session:
    return Session(store=project / "nerve.db", project=project, providers={"claude": provider()})


def provider() -> ScriptedProvider:
    return ScriptedProvider(["planned", "built"])


@pytest.fixture
async def api(project: Path) -> AsyncIterator[Api]:
    async with session_of(project) as session:
        api = Api(session)
        await api.reload()
        yield api


def texts(said: list[Any]) -> list[str]:
    return [each.text for each in said]


@pytest.mark.requirement("S3-30")
@pytest.mark.parametrize("mode", ["stream", "batch"])
async def test_a_message_starts_a_run_whose_messages_can_be_read(api: Api, mode: Any) -> None:
    answered = await receive_message(api, "c", "feature work: dark mode")
    assert [each.role for each in answered] == ["user", "assistant"]
    assert answered[1].text.startswith("**Starting workflow**: feature-work")
    run = api.session.get_workflow_run(answered[1].run or "")
    assert run is not None
    await run.wait()
    assert texts(conversation_messages(api, "c", mode))[2:] == [
        "**Step 1/2**: plan",
        "planned",
        "**Step 2/2**: build",
        "built",
        "**Workflow complete**: feature-work",
    ]
    assert conversation_messages(api, "other") == []


@pytest.mark.requirement("S3-30")
async def test_messages_of_runs_survive_a_restart(project: Path) -> None:
    async with session_of(project) as session:
        api = Api(session)
        await api.reload()
        run = (await receive_message(api, "c", "ship"))[1].run
        before = conversation_messages(api, "c")
    async with session_of(project) as session:
        api = Api(session)
        await api.reload()
        await session.recover()
        assert conversation_messages(api, "c")[: len(before)] == before
        await api.answer(run=run, answer="yes")
        await session.get_workflow_run(run).wait()  # type: ignore[arg-type,union-attr]
        assert texts(conversation_messages(api, "c"))[2:] == [
            "**Waiting for an answer**: Ship it?\n\nAnswers: yes, no\n\nAnswer with: /answer g yes",
            "**Workflow complete**: ship",
        ]


async def test_free_text_never_answers_a_gate(api: Api) -> None:
    run = (await receive_message(api, "c", "ship"))[1].run
    await receive_message(api, "c", "yes")
    assert (await api.run(run=run)).state == "waiting"


@pytest.mark.parametrize("command", ["/answer yes", " /answer  g  yes", "/answer {id} yes"])
async def test_a_command_answers_the_gate_of_a_run_of_the_conversation(api: Api, command: str) -> None:
    run = (await receive_message(api, "c", "ship"))[1].run
    [gate] = (await api.gates()).gates
    assert texts(await receive_message(api, "other", "/answer yes"))[1].startswith(
        "No run of this conversation"
    )
    assert texts(await receive_message(api, "c", command.format(id=gate.gate_id)))[1] == "Answered: yes"
    assert (await api.session.get_workflow_run(run or "").wait()) == "yes"  # type: ignore[union-attr]


async def test_an_invalid_or_ambiguous_answer_is_refused(api: Api) -> None:
    await receive_message(api, "c", "ship")
    assert "Invalid choice 'perhaps'" in texts(await receive_message(api, "c", "/answer perhaps"))[1]
    assert "Usage: /answer [GATE] TEXT" in texts(await receive_message(api, "c", "/answer"))[1]
    await receive_message(api, "c", "%ship")
    reply = texts(await receive_message(api, "c", "/answer yes"))[1]
    gates = (await api.gates()).gates
    assert len(gates) == 2
    assert all(f"{gate.gate_id} (g): Ship it?" in reply for gate in gates)


async def test_a_workflow_named_by_its_prefix_starts_although_a_gate_waits(api: Api) -> None:
    await receive_message(api, "c", "ship")
    refused = texts(await receive_message(api, "c", "ship again"))[1]
    assert "To start another run, write `%ship …`." in refused
    started = await receive_message(api, "c", "%ship again")
    assert started[1].text.startswith("**Starting workflow**: ship")
    assert (await api.run(run=started[1].run)).input == "again"


async def test_a_gate_of_another_conversation_does_not_block_a_start(api: Api) -> None:
    await receive_message(api, "c", "ship")
    assert (await receive_message(api, "other", "ship"))[1].run is not None
    assert len((await api.gates()).gates) == 2


async def test_a_message_that_matches_no_workflow_is_answered(api: Api) -> None:
    requests, answered = await receive_message(api, "c", "good morning")
    assert (requests.role, answered.role, answered.run) == ("user", "assistant", None)
    assert (await api.runs()).runs == []


@pytest.mark.requirement("S3-24")
@pytest.mark.requirement("S3-26")
async def test_commands_are_answered_without_an_agent(api: Api, project: Path) -> None:
    for name in ("list", "ls"):
        listed = (await receive_message(api, "c", f"/workflow {name}"))[1].text
        assert "**feature-work**\n  Builds a feature\n  Steps: plan → build" in listed
    (project / ".archon/workflows/more.yaml").write_text(ASKS.replace("ship", "more"))
    assert (await receive_message(api, "c", "/workflow reload"))[1].text == "Reloaded 3 workflow(s)."
    assert "more" in api.session.list_workflows()
    assert (await receive_message(api, "c", "/workflow dance"))[1].text == USAGE_TEXT
    assert (await receive_message(api, "c", "/help"))[1].text.startswith(HELP_TEXT)
    assert api.session.providers["claude"].calls == []  # type: ignore[attr-defined]
    assert [each.role for each in conversation_messages(api, "c")] == ["user", "assistant"] * 5


@pytest.mark.requirement("S3-27")
async def test_other_commands_start_nothing(api: Api) -> None:
    answered = await receive_message(api, "c", "/ship it")
    assert "Unknown command" in answered[1].text
    assert (await api.runs()).runs == []


@pytest.mark.requirement("S3-25")
async def test_a_missing_project_is_reported_first(tmp_path: Path) -> None:
    async with Session(project=tmp_path / "gone") as session:
        assert (await receive_message(Api(session), "c", "/workflow list"))[1].text == "Codebase not found."
    async with Session(project=tmp_path) as session:
        api = Api(session)
        reply = (await receive_message(api, "c", "/workflow reload"))[1].text
        assert reply == "No codebase configured. Use `nerve init` first."
        (tmp_path / ".archon").mkdir()
        assert (await receive_message(api, "c", "/workflow list"))[1].text == NO_WORKFLOWS_TEXT


async def test_a_run_that_cannot_start_says_why_in_the_conversation(api: Api) -> None:
    await api.define(source="name: call\ndescription: Calls\nbody: {kind: call, id: g, target: nobody}\n")
    answered = await receive_message(api, "c", "call")
    assert "Could not start" in answered[1].text


async def test_invalid_text_is_refused_and_not_stored(api: Api) -> None:
    assert (await refusal(receive_message(api, "c", "\ud800"))).code == "refused"
    assert (await refusal(receive_message(api, "c", "x" * 1_000_001))).code == "too_large"
    assert (await refusal(receive_message(api, "", "hello"))).code == "bad_request"
    assert conversation_messages(api, "c") == []
