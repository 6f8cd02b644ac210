"""The detail of a step."""

from __future__ import annotations

from nerve.client import Client
from nerve.ui.event_lines import to_workflow_event
from nerve.ui.run_loader import read_run_events
from nerve.ui.step_detail import StepDetail

from .conftest import ship


async def detail_of(client: Client, run_id: str, path: str) -> StepDetail:
    detail = StepDetail(run_id, path)
    async for prefix, event in read_run_events(client, run_id):
        if not prefix:
            detail.apply_event(event)
    return detail


async def test_the_detail_of_an_agent_has_its_prompt_text_tools_and_cost(client: Client) -> None:
    detail = await detail_of(client, await ship(client), "/claude")
    assert (detail.kind, detail.state, detail.node_id) == ("agent", "completed", "claude")
    assert [entry.kind for entry in detail.transcript.entries] == ["prompt", "reasoning", "tool", "text"]
    [tool] = [entry for entry in detail.transcript.entries if entry.kind == "tool"]
    assert (tool.name, tool.input, tool.status, tool.text) == (
        "Bash",
        {"command": "ls"},
        "completed",
        "flow.py",
    )
    assert detail.transcript.text == "# Done\n\nPlan tea"
    assert detail.output.kind == "markdown"
    assert detail.usage["input_tokens"] == 5
    assert detail.usage["reported_cost"] == 0.25
    assert detail.models["opus"]["turns"] == 1


async def test_the_detail_of_a_retried_step_has_its_attempts_with_tracebacks_and_logs(
    client: Client,
) -> None:
    detail = await detail_of(client, await ship(client), "/flaky")
    first, second = detail.attempts
    assert (first.state, first.error, first.error_type) == ("failed", "offline", "LookupError")
    assert "raise LookupError" in (first.traceback or "")
    assert (second.state, second.error) == ("completed", None)
    logged = [(entry.text, entry.status) for entry in detail.transcript.entries if entry.kind == "log"]
    assert logged == [("try 1", "warning"), ("try 2", "warning")]
    assert detail.input.kind == "json"
    assert (detail.output.kind, detail.output.columns) == ("table", ["name", "size"])
    assert detail.raw_input == {"deep": {"x": 1}}


async def test_the_detail_of_a_child_run_names_the_run(client: Client) -> None:
    detail = await detail_of(client, await ship(client), "/check")
    assert detail.kind == "child"
    assert detail.child_run_id is not None
    assert (await client.run(run=detail.child_run_id)).workflow == "check"


async def test_the_detail_of_a_gate_has_its_question_and_answer(client: Client) -> None:
    run_id = (await client.start(workflow="ship", input="tea", wait=True)).run_id
    waiting = await detail_of(client, run_id, "/gate")
    assert (waiting.kind, waiting.state) == ("gate", "waiting")
    gate_id = waiting.waits[0].data["gate_id"]
    assert f"nerve answer {gate_id} ANSWER" in [command.text for command in waiting.commands]
    await client.answer(run=run_id, answer="no", reason="too early")
    answered = await detail_of(client, run_id, "/gate")
    assert (answered.state, answered.raw_output) == ("completed", "no")
    assert (answered.waits[0].outcome or {})["reason"] == "too early"


async def test_the_detail_of_the_run_has_its_input_and_result(client: Client) -> None:
    run_id = await ship(client)
    detail = await detail_of(client, run_id, "")
    assert (detail.kind, detail.state, detail.raw_input) == ("run", "completed", "tea")
    assert detail.raw_output == "# Done\n\nPlan tea"
    assert detail.usage["cost"] == 0.25


async def test_commands_name_the_run_and_the_quoted_path(client: Client) -> None:
    run_id = await ship(client)
    detail = await detail_of(client, run_id, "/flaky")
    texts = [command.text for command in detail.commands]
    assert f"nerve logs {run_id} --path /flaky" in texts
    assert f"nerve fork {run_id} --at /flaky --wait" in texts
    indexed = StepDetail(run_id, "/flaky[2]")
    assert f"nerve events {run_id} --path '/flaky[2]'" in [command.text for command in indexed.commands]


async def test_the_events_of_the_path_alone_give_the_same_detail(client: Client) -> None:
    run_id = await ship(client)
    whole = await detail_of(client, run_id, "/flaky")
    alone = StepDetail(run_id, "/flaky")
    async for event in client.history(run_id, path="/flaky"):
        alone.apply_event(to_workflow_event(event))
    assert alone.attempts == whole.attempts
    assert (alone.state, alone.raw_output) == (whole.state, whole.raw_output)
    assert list(alone.events) == list(whole.events)
    assert alone.event_count == whole.event_count == 5
