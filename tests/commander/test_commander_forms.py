"""Gates with forms, and gates of runs outside the conversation, with a real in-process API."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from commander.scene import Scene, scene
from nerve import WorkflowContext

FORM = {
    "type": "object",
    "properties": {
        "version": {"type": "string", "description": "What is shipped"},
        "dry": {"type": "boolean"},
    },
    "required": ["version"],
}


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as found:
        assert found.api is not None

        @found.api.session.workflow
        async def release(ctx: Any) -> Any:
            return await ctx.gate("Which one?", form=FORM)

        await found.controller.event_sync.reload_workflows()
        await found.enter("%release")
        await found.until(lambda: found.state.gates)
        yield found


async def test_a_form_is_listed_with_its_fields_and_an_example_answer(at: Scene) -> None:
    await at.enter("/gates")
    for text in ("version  text, required: What is shipped", '`/answer 1 {"version": "…"}`', "gate `"):
        assert text in at.last.text


async def test_a_form_accepts_json_and_an_invalid_answer_is_explained(at: Scene) -> None:
    await at.enter("/approve")
    assert '{"version": "…"}' in at.errors[-1]
    await at.enter("/gates 1", "3")
    assert "3 is not of type 'object'" in at.errors[-1]
    await at.enter("the third")
    assert "it must be a JSON object with version, dry (optional)" in at.errors[-1]
    await at.enter('/answer {"dry": true}')
    assert "'version' is a required property" in at.errors[-1]
    await at.enter('{"version": "3"}')
    await at.ended()
    assert at.runs[0].value == {"version": "3"}


async def test_an_answer_to_a_run_outside_the_conversation_is_noted(tmp_path: Path) -> None:
    async with scene(tmp_path) as first:
        await first.enter("%ask")
        await first.until(lambda: first.state.gates)
        run_id = first.runs[0].run_id
        assert run_id is not None
    async with scene(tmp_path) as again:
        await again.enter("/gates")
        assert f"of ask `{run_id[-6:]}`" in again.last.text
        await again.enter("/answer yes")
        assert again.last.text == f"'gate' of ask ({run_id[-6:]}): yes"


async def test_a_run_command_reports_the_new_state_and_the_next_command(at: Scene) -> None:
    await at.enter("/pause")
    assert at.last.text.endswith("is paused; /resume continues it.")
    await at.enter("/resume")
    assert at.last.text.endswith("continues and is waiting.")
    await at.enter("/stop")
    assert at.last.text.endswith("has been stopped.")


async def test_a_question_of_the_router_suggests_the_command_to_start(at: Scene) -> None:
    at.state.defer_gate()
    await at.enter("hello?")
    assert at.last.text.endswith("Start it with `%hello hello?`")
    await at.enter("hello" + " you" * 20 + "?")
    assert at.last.text.endswith("Start it with `%hello …`")


@dataclass
class Decision:
    price: Decimal
    due: date | None = None


async def test_a_typed_workflow_and_its_typed_gates_take_typed_text() -> None:
    async with scene() as at:
        assert at.api is not None

        @at.api.session.workflow
        async def sell(ctx: WorkflowContext, item: str, *, count: int = 1) -> str:
            if await ctx.gate("Sell?", type=bool):
                decision = await ctx.gate("For how much?", type=Decision)
                return f"{count} {item} for {decision.price * count} on {decision.due}"
            return "kept"

        await at.controller.event_sync.reload_workflows()
        await at.enter("%sell --cont=3 tea")
        assert "'sell' has no option 'cont'. Did you mean 'count'?" in at.errors[-1]
        await at.enter("%sell --item=tea --count=3")
        await at.until(lambda: at.state.gates)
        await at.enter("/approve")
        await at.until(lambda: at.state.gates and at.state.gates[0].form)
        await at.enter("/gates")
        assert "price  decimal, required" in at.last.text
        await at.enter('/answer {"price": "1.50", "due": "soon"}')
        assert "'soon' is not a 'date'" in at.errors[-1]
        await at.enter('/answer {"price": "1.50", "due": "2026-01-31"}')
        await at.ended()
        assert at.runs[0].value == "3 tea for 4.50 on 2026-01-31"
