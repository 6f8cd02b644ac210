"""Hand-made events as the server sends them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from nerve.api.models import EventResponse, RunResponse

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Journal:
    """The numbered events of one run."""

    def __init__(self, run_id: str = "run-1", workflow: str = "ship", **start: Any) -> None:
        self.run_id, self.workflow, self.events = run_id, workflow, list[EventResponse]()
        self.add("workflow_started", "", workflow_id=workflow, steps=start.pop("steps", []), **start)

    def add(self, type: str, path: str, **data: Any) -> EventResponse:
        seq = len(self.events) + 1
        at = BEGAN + timedelta(seconds=seq)
        event = EventResponse(
            seq=seq,
            run_id=self.run_id,
            workflow_id=self.workflow,
            event_type=type,
            path=path,
            timestamp=at,
            data=data,
        )
        self.events.append(event)
        return event

    def step(self, path: str, output: Any = "done", **attributes: Any) -> None:
        self.add("node_started", path, node_id=path[1:])
        result = {"success": True, "output": output, "attributes": attributes}
        self.add("node_completed", path, node_id=path[1:], success=True, result=result, duration_ms=10)

    def gate(self, path: str = "/approve/answer", gate_id: str = "g1", **data: Any) -> EventResponse:
        gate = {"gate_id": gate_id, "prompt": "Ship it?", "choices": ["yes", "no"], "options": None, **data}
        return self.add("gate_waiting", path, **gate)

    def answer(
        self, path: str = "/approve/answer", gate_id: str = "g1", answer: Any = "yes"
    ) -> EventResponse:
        return self.add("gate_answered", path, gate_id=gate_id, answer=answer)

    def end(self, result: Any = "shipped") -> EventResponse:
        return self.add("workflow_completed", "", result=result)


def make_run(run_id: str, state: str = "running", **more: Any) -> RunResponse:
    return RunResponse(run_id=run_id, workflow=more.pop("workflow", "ship"), state=state, **more)
