"""Read the recorded events of a run and its child runs through a client."""

from __future__ import annotations

from collections.abc import AsyncIterator

from nerve.api.errors import ApiError
from nerve.client import Client
from nerve.core.events import STEP_START_EVENTS, WorkflowEvent
from nerve.ui.event_lines import to_workflow_event


async def read_run_events(
    client: Client, run_id: str, prefix: str = ""
) -> AsyncIterator[tuple[str, WorkflowEvent]]:
    """Yield the events of a run and of the child runs that it called, each with the prefix of its run.

    The prefix is the path of the call that started the run, and empty for the run itself. The events of a
    child run follow the event of its call. A child run that was deleted, or does not exist yet, has none.
    """
    async for response in client.history(run_id):
        event = to_workflow_event(response)
        yield prefix, event
        child = event.data.get("child") if event.event_type in STEP_START_EVENTS else None
        if isinstance(child, str):
            try:
                async for child_event in read_run_events(client, child, prefix + event.path):
                    yield child_event
            except ApiError as error:
                if error.code != "not_found":
                    raise
