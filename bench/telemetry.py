"""Telemetry: instructions and processor time of a step of W1, with telemetry off and on.

With it off, a step asks its session once. The subject to compare with is the same code without that question:
instructions of Python are counted, because other programs do not change their number.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.measure import Line, at_most, measure_pair, temporary_folder
from bench.workflows import steps
from nerve import ExecutionContext, FunctionNode, Session, Workflow
from nerve.core.nodes.attempt import is_task_cancelled, must_propagate
from nerve.core.result import Result
from nerve.core.step_output import StepOutput
from nerve.store.memory import MemoryStore
from nerve.store.port import Store
from nerve.store.sqlite import SqliteStore

STEPS = 500
FEW_STEPS, MORE_STEPS = 50, 150
"""Runs of so many steps are counted: their difference has no start and no end of a run."""


class NodeWithoutHook(FunctionNode):
    """The node of a function as it was before telemetry."""

    async def execute(self, context: ExecutionContext) -> Result:
        output = StepOutput(context)
        try:
            return Result.of(await (self.fn(context) if self._is_async else self._run_in_thread(context)))
        except asyncio.CancelledError as error:
            if is_task_cancelled():
                raise
            return Result.from_exception(error)
        except BaseException as error:
            if must_propagate(error):
                raise
            return Result.from_exception(error)
        finally:
            output.close()


async def echo(context: ExecutionContext) -> Any:
    return context.input


async def run_steps(store: Store, number: int, node: type[FunctionNode], telemetry: bool = False) -> None:
    async with Session("bench", store, telemetry=telemetry) as session:
        node("echo", session, echo)
        Workflow("steps", session, steps)
        await (await session.start("steps", number)).wait()


def count_instructions(node: type[FunctionNode]) -> tuple[float, float]:
    """Return the instructions of Python for one step in memory: of the whole step, and of its node.

    The number of the node is exact. That of the whole step is not: timers of a busy machine add iterations of
    the loop.
    """
    counters = []
    for number in (FEW_STEPS, FEW_STEPS, MORE_STEPS):  # the first run fills the caches
        counters.append(InstructionCounter(node))
        sys.settrace(counters[-1].enter)
        try:
            asyncio.run(run_steps(MemoryStore(), number, node))
        finally:
            sys.settrace(None)
    _, few, more = counters
    number = MORE_STEPS - FEW_STEPS
    return (more.instructions - few.instructions) / number, (more.in_node - few.in_node) / number


class InstructionCounter:
    """Counts the instructions that the interpreter executes in this thread, and those of a kind of node."""

    def __init__(self, node: type[FunctionNode]) -> None:
        self._code = node.execute.__code__
        self._is_in_node = False
        self.instructions = self.in_node = 0

    def enter(self, frame: Any, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._is_in_node = self._is_in_node or frame.f_code is self._code
        return self.count

    def count(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.instructions += 1
            self.in_node += self._is_in_node
        elif event == "return" and frame.f_code is self._code:
            self._is_in_node = False
        return self.count


def cpu_of_steps(directory: Path, telemetry: bool) -> float:
    """Return the seconds of processor time of this process for a step."""
    with temporary_folder(directory) as folder:
        began = time.process_time()
        asyncio.run(run_steps(SqliteStore(folder / "steps.db"), STEPS, FunctionNode, telemetry))
        return (time.process_time() - began) / STEPS


class SilentCollector(BaseHTTPRequestHandler):
    """Accepts everything and keeps nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve_collector() -> Iterator[None]:
    """Send telemetry to a collector of this process; its processor time counts too."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SilentCollector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        with patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": url}):
            yield
    finally:
        server.shutdown()
        server.server_close()


def measure(rounds: int, directory: Path) -> list[Line]:
    _, with_hook = count_instructions(FunctionNode)
    limit, without_hook = count_instructions(NodeWithoutHook)
    ours = limit + with_hook - without_hook
    what = "a step of W1 with telemetry off; without the hook"
    target = at_most([ours / limit] * 2, 1.01)
    lines = [Line("telemetry", what, "instructions", ours, limit, ours / limit, target)]
    with serve_collector():
        pair = measure_pair(
            rounds, lambda: cpu_of_steps(directory, True), lambda: cpu_of_steps(directory, False)
        )
    ours, limit = pair.medians
    what = "a step of W1 with telemetry on, a collector included; off"
    lines.append(Line("telemetry", what, "us CPU", ours * 1e6, limit * 1e6, pair.ratio))
    return lines
