"""A run as messages."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve import Session
from nerve.core.events import WorkflowEvent
from nerve.router import messages_of
from nerve.testing.scripted import ScriptedProvider

CHAIN = """
name: Feature Work
description: Builds a feature
steps:
  - step: plan
  - step: build
"""
STARTING = "**Starting workflow**: Feature Work\n\nBuilds a feature\n\nSteps: plan → build"


async def run_of(
    session: Session, workflow: str, answer: str | None = None
) -> tuple[list[WorkflowEvent], Any]:
    events: list[WorkflowEvent] = []
    run = await session.start(workflow, "dark mode", event_sink=events.append)
    if answer is not None:
        await run.next_gate()
        await run.answer(answer)
    try:
        await run.wait()
    except Exception:
        pass
    return events, session.get_workflow(workflow)


async def chain(tmp_path: Path, answers: list[Any], text: str = CHAIN) -> tuple[list[WorkflowEvent], Any]:
    for name, content in {
        "workflows/f.yaml": text,
        "steps/plan.md": "Plan",
        "steps/build.md": "Build",
    }.items():
        file = tmp_path / ".archon" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    session = Session(providers={"claude": ScriptedProvider(answers)}, project=tmp_path)
    return await run_of(session, session.load(tmp_path / ".archon/workflows/f.yaml").name)


ANSWERS = [["Looking.", {"tool": "Bash", "input": {"command": "ls"}}, "Planned."], "Built."]


@pytest.mark.requirement("S3-17")
@pytest.mark.requirement("S3-18")
async def test_a_stream_has_every_message_and_tool_call_at_once(tmp_path: Path) -> None:
    events, workflow = await chain(tmp_path, ANSWERS)
    assert list(messages_of(events, workflow, "stream")) == [
        STARTING,
        "**Step 1/2**: plan",
        "Looking.",
        '**Tool**: Bash {"command":"ls"}',
        "Planned.",
        "**Step 2/2**: build",
        "Built.",
        "**Workflow complete**: Feature Work",
    ]


@pytest.mark.requirement("S3-17")
@pytest.mark.requirement("S3-18")
async def test_a_batch_has_the_messages_of_a_step_together_and_no_tool_calls(tmp_path: Path) -> None:
    events, workflow = await chain(tmp_path, ANSWERS)
    assert list(messages_of(events, workflow, "batch")) == [
        STARTING,
        "**Step 1/2**: plan",
        "Looking.\n\nPlanned.",
        "**Step 2/2**: build",
        "Built.",
        "**Workflow complete**: Feature Work",
    ]


@pytest.mark.requirement("S3-17")
async def test_a_failure_names_the_step_and_the_error(tmp_path: Path) -> None:
    events, workflow = await chain(tmp_path, ["Planned.", ["Half", RuntimeError("boom")]])
    told = list(messages_of(events, workflow, "batch"))
    assert told[-3:] == ["**Step 2/2**: build", "Half", "**Workflow failed** at step: build\n\nError: boom"]


async def test_the_steps_of_a_graph_are_told_by_their_place(tmp_path: Path) -> None:
    nodes = (
        "name: both\ndescription: Both\nnodes:\n"
        "  - {id: one, bash: echo 1}\n  - {id: two, bash: echo 2, depends_on: [one]}\n"
    )
    events, workflow = await chain(tmp_path, [], nodes)
    assert list(messages_of(events, workflow))[1:3] == ["**Step 1/2**: one", "**Step 2/2**: two"]


async def test_a_function_tells_its_steps_in_the_order_they_come_and_its_gates() -> None:
    session = Session()

    @session.node
    def fetch(context: Any) -> str:
        return "fetched"

    @session.workflow
    async def publish(ctx: Any) -> str:
        """Publishes."""
        await ctx.run("fetch")
        answer: str = await ctx.gate("Publish?", choices=["yes", "no"])
        await ctx.run("fetch")
        return answer

    events, workflow = await run_of(session, "publish", "yes")
    [gate] = [event.data["gate_id"] for event in events if event.event_type == "gate_waiting"]
    assert list(messages_of(events, workflow)) == [
        "**Starting workflow**: publish\n\nPublishes.",
        "**Step 1**: fetch",
        f"**Waiting for an answer**: Publish?\n\nAnswers: yes, no\n\nAnswer with: /answer {gate} yes",
        "**Step 2**: fetch",
        "**Workflow complete**: publish",
    ]


async def test_the_states_of_a_machine_are_steps_whether_or_not_they_do_anything() -> None:
    steps = [
        {"id": "look", "type": "agent", "agent": "claude", "next": "ok"},
        {"id": "ok", "type": "approval", "message": "Fine?", "on_approve": "end", "on_reject": "look"},
        {"id": "end", "type": "transform", "transform": "1 + 1"},
    ]
    session = Session(providers={"claude": ScriptedProvider(["A.", "B."])})
    workflow = session.load(json.dumps({"id": "checked", "steps": steps}), "json")
    events: list[WorkflowEvent] = []
    run = await session.start("checked", event_sink=events.append)
    for answer in ("reject", "approve"):
        await run.next_gate()
        await run.answer(answer)
    await run.wait()
    how = "Answers: approve, reject\n\nAnswer with: /answer ok approve"
    asked = ["**Step 2/3**: ok", f"**Waiting for an answer**: Fine?\n\n{how}"]
    assert list(messages_of(events, workflow, "batch"))[1:] == [
        *("**Step 1/3**: look", "A.", *asked),
        *("**Step 1/3**: look", "B.", *asked),
        *("**Step 3/3**: end", "**Workflow complete**: checked"),
    ]


class Plain:
    name, description, steps = "plain", "", ("a", "b")


def event(kind: str, path: str = "", **data: Any) -> WorkflowEvent:
    return WorkflowEvent("run-1", "plain", kind, data, path=path)


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ([event("workflow_failed", error="no input")], "**Workflow failed**: plain\n\nError: no input"),
        ([event("workflow_cancelled", reason="enough")], "**Workflow cancelled**: plain\n\nenough"),
        ([event("workflow_held", message="Raise it.")], "**Workflow held**: plain\n\nRaise it."),
        (
            [event("node_started", "/a"), event("node_error", "/a/x"), event("node_completed", "/a"),
             event("node_started", "/b"), event("workflow_failed", error="limit")],
            "**Workflow failed** at step: b\n\nError: limit",
        ),
        ([event("tool_call", "/a", name="Write", input={"text": "x" * 999})],
         '**Tool**: Write {"text":"' + "x" * 291 + "…"),
    ],
)  # fmt: skip
def test_other_ends_and_long_tool_calls(events: list[WorkflowEvent], last: str) -> None:
    assert list(messages_of(events, Plain()))[-1] == last


def test_a_piece_of_a_message_that_follows_as_a_whole_is_not_sent_twice() -> None:
    said = [event("output_chunk", "/a", stream="assistant", text="He", partial=True),
            event("output_chunk", "/a", stream="assistant", text="Hello"),
            event("output_chunk", "/a", stream="stdout", text="noise")]  # fmt: skip
    assert list(messages_of(said, Plain())) == ["Hello"]


kinds = st.sampled_from(["node_started", "node_completed", "node_error", "output_chunk", "tool_call", "log"])
paths = st.sampled_from(["/a", "/b", "/a/x", "/b[2]", "/c", ""])
chunks = st.builds(lambda kind, path, text: event(kind, path, stream="assistant", text=text, name="T"),
                   kinds, paths, st.text("xy", max_size=3))  # fmt: skip


@given(st.lists(chunks))
def test_both_modes_say_the_same_words(events: list[WorkflowEvent]) -> None:
    whole = [*events, event("workflow_completed")]
    streamed, batched = ([*messages_of(whole, Plain(), mode)] for mode in ("stream", "batch"))
    said = [each for each in streamed if not each.startswith("**")]
    together = [part for each in batched if not each.startswith("**") for part in each.split("\n\n")]
    assert sorted(said) == sorted(together)
    marks = [each for each in streamed if each.startswith("**") and not each.startswith("**Tool")]
    assert marks == [each for each in batched if each.startswith("**")]
