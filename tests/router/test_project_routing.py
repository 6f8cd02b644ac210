"""The router of a project, and the runs that come of it."""

from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.notations.workflow_files import discover
from nerve.router import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
    candidates_of,
    offers_in,
    route,
    session_router,
    start,
)
from nerve.testing.scripted import ScriptedProvider

CHAIN = "name: Feature Work\ndescription: Builds a feature\nsteps:\n  - step: plan\n  - step: build\n"
SHIP = """
name: ship
description: Ships a version
inputs:
  number: {type: integer, required: true}
body: {kind: transform, expression: "input + ' ' + inputs.number"}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "workflows/feature.yaml": CHAIN,
        "workflows/ship.yaml": SHIP,
        "workflows/broken.yaml": "name: broken\nsteps: 3\n",
        "workflows/wrong.yaml": "name: wrong\nbody: {kind: nothing}\n",
        "steps/plan.md": "Plan: $USER_MESSAGE",
        "steps/build.md": "Build it",
    }.items():
        file = tmp_path / ".archon" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def session_of(project: Path, answers: Any = (), **options: Any) -> Session:
    session = Session(providers={"claude": ScriptedProvider(answers)}, project=project, **options)
    session.load(project / ".archon/workflows/feature.yaml")
    session.load(project / ".archon/workflows/ship.yaml")
    return session


def test_a_session_offers_its_workflows_with_descriptions_inputs_and_steps(project: Path) -> None:
    session = session_of(project)

    @session.workflow
    async def tidy(ctx: Any) -> None:
        """Tidies up."""

    offered = {each.name: each for each in candidates_of(session)}
    assert list(offered) == ["feature-work", "ship", "tidy"]
    assert offered["feature-work"] == Candidate("feature-work", "Builds a feature", {}, ("plan", "build"))
    assert offered["ship"].inputs["number"].required
    assert offered["tidy"] == Candidate("tidy", "Tidies up.")


def test_the_files_of_a_project_are_offered_without_those_that_cannot_be_loaded(project: Path) -> None:
    offered = {each.name: each for each in offers_in(discover(project))}
    assert list(offered) == ["feature-work", "ship"]
    assert offered["ship"].inputs["number"].type == "integer"
    assert offered["feature-work"].steps == ("plan", "build")


@pytest.mark.requirement("D3-2")
async def test_two_projects_know_nothing_of_each_other(project: Path) -> None:
    one, other = session_router(session_of(project)), session_router(Session())
    assert isinstance(await one.route("feature work: dark mode"), WorkflowDecision)
    assert isinstance(await other.route("feature work: dark mode"), ConversationDecision)


async def test_a_router_sees_workflows_that_come_later_and_asks_the_named_provider(project: Path) -> None:
    session = Session(providers={"claude": ScriptedProvider(["WORKFLOW: ship"] * 2)}, project=project)
    router = session_router(session, "claude")
    assert isinstance(await router.route("ship"), ConversationDecision)
    session.load(project / ".archon/workflows/ship.yaml")
    assert isinstance([part async for part in router.stream("ship")][-1], QuestionDecision)
    assert session.providers["claude"].calls[0].cwd == str(project)  # type: ignore[attr-defined]


def test_a_provider_that_is_not_there_is_named(project: Path) -> None:
    with pytest.raises(ValueError, match=r"Unknown provider 'claud'\. Did you mean 'claude'\?"):
        session_router(session_of(project), "claud")


@pytest.mark.requirement("S3-14")
async def test_the_summary_is_the_intent_of_the_run(project: Path) -> None:
    session = session_of(project, ["planned", "built"])
    agent = ScriptedProvider(["WORKFLOW: feature-work\nThe user wants dark mode."])
    decision = await route("make it dark", candidates_of(session), agent)
    run = await start(session, decision)
    assert run is not None
    await run.wait()
    assert run.input == "The user wants dark mode."
    asked = session.providers["claude"].calls  # type: ignore[attr-defined]
    assert asked[0].prompt == "Plan: The user wants dark mode."


@pytest.mark.requirement("S3-14")
@pytest.mark.parametrize("file", [False, True])
async def test_the_exchange_is_kept_as_messages_of_the_conversation(project: Path, file: bool) -> None:
    store = project / "nerve.db" if file else None
    async with session_of(project, ["planned", "built"], store=store) as session:
        decision = WorkflowDecision("ship", "Ship it", {"number": 3}, text="ship 3")
        run = await start(session, decision, "chat-1")
        assert run is not None
        assert await run.wait() == "Ship it 3"
        said = session.engine.store.messages("chat-1")
        assert [(row.role, row.text, row.run) for row in said] == [
            ("user", "ship 3", None),
            ("assistant", "**Starting workflow**: ship\n\nShips a version", run.run_id),
        ]
        (row,) = session.engine.store.runs(conversation="chat-1")
        assert row.run == run.run_id


@pytest.mark.parametrize(
    ("decision", "reply"),
    [
        (ConversationDecision("Hello!", text="hi"), "Hello!"),
        (QuestionDecision("Which?", ("ship",), text="hi"), "Which?"),
    ],
)
async def test_what_starts_nothing_is_kept_too(project: Path, decision: Decision, reply: str) -> None:
    session = session_of(project)
    assert await start(session, decision, "chat-1") is None
    said = session.engine.store.messages("chat-1")
    assert [(row.role, row.text, row.run) for row in said] == [
        ("user", "hi", None),
        ("assistant", reply, None),
    ]
    assert session.engine.store.runs() == []


async def test_a_failed_start_is_added_to_the_conversation_and_raised(project: Path) -> None:
    session = session_of(project)
    with pytest.raises(ValueError, match="needs the input 'number'"):
        await start(session, WorkflowDecision("ship", "Ship it", text="ship"), "chat-1")
    assert "Could not start 'ship': Workflow 'ship' needs" in session.engine.store.messages("chat-1")[1].text


async def test_without_a_conversation_nothing_is_kept(project: Path) -> None:
    session = session_of(project)
    run = await start(session, WorkflowDecision("ship", "Ship", {"number": 1}, text="ship"), label="mine")
    assert run is not None
    assert run.label == "mine"
    await run.wait()
    assert session.engine.store.messages("chat-1") == []
