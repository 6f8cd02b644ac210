"""The full screen of the Commander with 200 runs, while an agent streams; measures the event loop."""

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
from nerve.commander.controller import CommanderController
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.app import CommanderApp

TURNS, CHUNKS, RUNS = 20, 200, 200
CHUNK_INTERVAL_S = 0.002
"""Seconds between two chunks: about 450 chunks per second."""
LAG_INTERVAL_S = 0.005
TEXT = [
    "The **answer** grows ",
    "word by word, with `code` ",
    "and [links](http://localhost) in it. ",
    "A list follows:\n\n- first\n- second\n\n",
    "```python\nfor chunk in chunks:\n    show(chunk)\n```\n\n",
]


class StubController(CommanderController):
    """A controller that receives its events from this script."""

    def __init__(self) -> None:
        super().__init__(None, state=CommanderState(project=".", is_connected=True))  # type: ignore[arg-type]

    async def open(self) -> None:
        pass


class EventFeed:
    def __init__(self, state: CommanderState) -> None:
        self.state, self.seq, self.began = state, 0, datetime.now(UTC)
        self.state.merge_runs(self.make_run(index) for index in range(RUNS))

    def make_run(self, index: int) -> RunResponse:
        run_state = "running" if index % 4 == 0 else "completed"
        at = self.began - timedelta(minutes=index + 1)
        return RunResponse(
            run_id=f"old_{index:03}", workflow=f"flow_{index % 7}", state=run_state, started_at=at
        )

    def publish(self, run_id: str, type: str, path: str = "", **data: Any) -> None:
        self.seq += 1
        at = datetime.now(UTC)
        fields: dict[str, Any] = {"run_id": run_id, "workflow_id": "stream", "event_type": type}
        self.state.apply_event(EventResponse(seq=self.seq, path=path, timestamp=at, data=data, **fields))

    async def run_turn(self, number: int) -> None:
        run_id, self.seq = f"run_{number:03}", 0
        self.state.merge_runs(
            [RunResponse(run_id=run_id, workflow="stream", state="running", started_at=datetime.now(UTC))]
        )
        self.state.show_run(run_id)
        self.state.focus_run(run_id)
        self.publish(run_id, "workflow_started", steps=["think", "write"])
        self.publish(run_id, "node_started", "/write", node_id="write")
        for index in range(CHUNKS):
            self.publish(
                run_id, "output_chunk", "/write", stream="partial", text=TEXT[index // 3 % len(TEXT)]
            )
            await asyncio.sleep(CHUNK_INTERVAL_S)
        result = {"success": True, "output": "done", "attributes": {"usage": {"tokens": 900, "cost": 0.01}}}
        self.publish(run_id, "node_completed", "/write", node_id="write", success=True, result=result)
        self.publish(run_id, "workflow_completed", result="done")


class MeasuredApp(CommanderApp):
    def on_mount(self) -> None:
        super().on_mount()
        self.lags: list[float] = []
        self.run_worker(self.measure(), group="measure")

    async def record_lags(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(LAG_INTERVAL_S)
            self.lags.append(time.perf_counter() - began - LAG_INTERVAL_S)

    async def measure(self) -> None:
        feed = EventFeed(self.state)
        await feed.run_turn(0)  # imports what the first text needs
        lag_task = asyncio.create_task(self.record_lags())
        began, cpu = time.perf_counter(), cpu_seconds()
        for number in range(1, TURNS + 1):
            await feed.run_turn(number)
        self.report = {"wall": time.perf_counter() - began, "cpu": cpu_seconds() - cpu, "lags": self.lags}
        self.report["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lag_task.cancel()
        self.exit("quit")


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    app = MeasuredApp(StubController())
    app.run()
    Path(sys.argv[1]).write_text(json.dumps(app.report))


if __name__ == "__main__":
    main()
