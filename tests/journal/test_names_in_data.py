"""Names that users choose are never taken for keys of an event."""

from __future__ import annotations

from typing import Any

from core.workflow.support import at_gate, within
from nerve import FunctionNode, Session, WorkflowContext
from nerve.store.memory import MemoryStore


def open_session(store: MemoryStore, factor: int) -> Session:
    """Return a session whose workflow calls a step with an input that depends on the code."""
    session = Session(store=store)
    FunctionNode("with_changes", session, lambda context: context.input)

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        await ctx.run("with_changes", factor)
        return await ctx.gate("Ship?")

    return session


async def test_a_raised_budget_of_a_step_named_with_changes_does_not_accept_changed_code() -> None:
    store = MemoryStore()
    first = open_session(store, 1)
    run = await first.start("w")
    await at_gate(run)
    await run.pause()
    await run.resume(limits={"/with_changes": {"tokens": 100}})
    await first.close()
    second = open_session(store, 2)
    (again,) = await second.recover()
    gate = again.pending_gate
    assert gate is not None
    await again.answer("yes")
    await within(again.next_gate())
    assert again.held is not None
    assert again.held["reason"] == "mismatch"
    assert "path_reset" not in [event.event_type for event in again.events]
    await second.close()


async def test_a_form_with_a_field_named_guard_is_a_gate_and_no_timer() -> None:
    session = Session()

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Ship?", form={"type": "object", "properties": {"guard": True}})

    session.dataspace.facts()  # from now on, runs are projected
    run = await session.start("w")
    await at_gate(run)
    (fact,) = session.dataspace.facts(["workflow/state", {"run": run.run_id}])
    assert fact.record.get("awaits") == [
        {"gate": run.pending_gates[0].gate_id, "path": "/gate", "prompt": "Ship?"}
    ]
    assert run.state.value == "waiting"
    await session.close()


async def test_an_emitted_event_with_a_name_of_the_engine_and_other_data_changes_nothing() -> None:
    session = Session()

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        for name in (
            "state_entered",
            "loop_iteration",
            "usage",
            "agent_thread",
            "steered",
            "provider_limited",
        ):
            ctx.emit(name, {"state": 3, "iteration": "x", "usage": [1], "text": None, "until": "soon"})
        return {"usage": {"attributes": [1]}}

    session.dataspace.facts()
    run = await session.start("w")
    assert await within(run.wait()) == {"usage": {"attributes": [1]}}
    (fact,) = session.dataspace.facts(["workflow/state", {"run": run.run_id}])
    assert "completed" in str(fact.record)
    assert run.view.state == "completed"
    await session.close()


async def test_a_result_of_a_run_that_looks_like_usage_is_not_counted() -> None:
    session = Session()

    @session.workflow
    async def w(ctx: WorkflowContext) -> Any:
        return [{"usage": 1}, {"attributes": {"usage": {"tokens": 7}}}]

    run = await session.start("w")
    await within(run.wait())
    assert session.engine.usage_today().tokens == 0
    await session.close()
