"""The full screen of the Commander with 200 runs, while an agent streams; how the event loop fared."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nerve.api.models import EventResponse, RunResponse
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.app import CommanderApp
from nerve.commander.workflow_controller import WorkflowController

TURNS, CHUNKS, RUNS = 20, 200, 200
PAUSE = 0.002
"""Seconds between two chunks: about 450 in a second."""
LOOK = 0.005
TEXT = [
    "The **answer** grows ",
    "word by word, with `code` ",
    "and [links](http://localhost) in it. ",
    "A list follows:\n\n- first\n- second\n\n",
    "```python\nfor chunk in chunks:\n    show(chunk)\n```\n\n",
]


class Fed(WorkflowController):
    """A controller whose events come from here."""

    def __init__(self) -> None:
        super().__init__(None, state=CommanderState(project=".", is_connected=True))  # type: ignore[arg-type]

    async def open(self) -> None:
        pass


class Feed:
    def __init__(self, desk: CommanderState) -> None:
        self.desk, self.seq, self.began = desk, 0, datetime.now(UTC)
        self.desk.merge_runs(self.told(index) for index in range(RUNS))

    def told(self, index: int) -> RunResponse:
        state = "running" if index % 4 == 0 else "completed"
        at = self.began - timedelta(minutes=index + 1)
        return RunResponse(run_id=f"old_{index:03}", workflow=f"flow_{index % 7}", state=state, started_at=at)

    def say(self, run_id: str, type: str, path: str = "", **data: Any) -> None:
        self.seq += 1
        at = datetime.now(UTC)
        told: dict[str, Any] = {"run_id": run_id, "workflow_id": "stream", "event_type": type}
        self.desk.apply_event(EventResponse(seq=self.seq, path=path, timestamp=at, data=data, **told))

    async def turn(self, number: int) -> None:
        run_id, self.seq = f"run_{number:03}", 0
        self.desk.merge_runs(
            [RunResponse(run_id=run_id, workflow="stream", state="running", started_at=datetime.now(UTC))]
        )
        self.desk.show_run(run_id)
        self.desk.focus_run(run_id)
        self.say(run_id, "workflow_started", steps=["think", "write"])
        self.say(run_id, "node_started", "/write", node_id="write")
        for index in range(CHUNKS):
            self.say(run_id, "output_chunk", "/write", stream="partial", text=TEXT[index // 3 % len(TEXT)])
            await asyncio.sleep(PAUSE)
        result = {"success": True, "output": "done", "attributes": {"usage": {"tokens": 900, "cost": 0.01}}}
        self.say(run_id, "node_completed", "/write", node_id="write", success=True, result=result)
        self.say(run_id, "workflow_completed", result="done")


class Measured(CommanderApp):
    def on_mount(self) -> None:
        super().on_mount()
        self.lags: list[float] = []
        self.run_worker(self.measure(), group="measure")

    async def look(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(LOOK)
            self.lags.append(time.perf_counter() - began - LOOK)

    async def measure(self) -> None:
        feed = Feed(self.state)
        await feed.turn(0)  # imports what is imported at the first text
        looking = asyncio.create_task(self.look())
        began, cpu = time.perf_counter(), spent()
        for number in range(1, TURNS + 1):
            await feed.turn(number)
        self.told = {"wall": time.perf_counter() - began, "cpu": spent() - cpu, "lags": self.lags}
        self.told["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        looking.cancel()
        self.exit("quit")


def spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    app = Measured(Fed())
    app.run()
    Path(sys.argv[1]).write_text(json.dumps(app.told))


if __name__ == "__main__":
    main()
