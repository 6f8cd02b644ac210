"""What screens show of an open gate."""

from nerve import Session, WorkflowContext
from nerve.api import Api
from nerve.commander.core.run_cards import gate_from_event
from nerve.core.events import WorkflowEvent
from nerve.journal.run_view import fold_events


async def test_the_hash_that_screens_send_with_an_answer_is_the_one_of_the_open_gate() -> None:
    async with Session() as session:

        @session.workflow
        async def ship(ctx: WorkflowContext) -> str:
            return str(await ctx.gate("Ship it?", choices=["yes", "no"]))

        events: list[WorkflowEvent] = []
        run = await session.start("ship", event_sink=events.append)
        await run.next_gate()
        [listed] = (await Api(session).gates()).gates
        [asked] = [event for event in events if event.event_type == "gate_waiting"]
        assert gate_from_event(asked).hash == listed.hash
        assert fold_events(events).gates[asked.path]["hash"] == listed.hash
