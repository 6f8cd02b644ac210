"""Declarative notations: a step of a workflow file beside the same step in Python."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from bench.measure import Line, at_most, measure_in_turns, temporary_folder
from bench.workflows import echo
from nerve import FunctionNode, Session, WorkflowContext

STEP_COUNTS = (5, 20)
"""Steps of a workflow."""
TIMED_STEPS = 200
"""Steps that are timed, in as many runs as necessary."""
TIMEOUT_S = 60
"""Default timeout of an agent step in JSON; the Python function sets the same."""


def python_workflow(steps: int, timeout: float | None) -> Callable[[WorkflowContext], Awaitable[None]]:
    async def body(ctx: WorkflowContext) -> None:
        for _ in range(steps):
            await ctx.run("echo", {"input": ctx.input, "context": {}}, timeout=timeout)

    return body


def json_workflow(steps: int) -> str:
    step_list = [{"id": f"s{n}", "type": "agent", "agent": "echo", "input": []} for n in range(steps)]
    for n, step in enumerate(step_list[:-1]):
        step["next"] = f"s{n + 1}"
    return json.dumps({"id": "json", "steps": step_list})


def yaml_workflow(steps: int) -> str:
    call_input = 'input: {input: "{{ input }}", context: {}}'
    calls = [f"    - {{kind: call, id: s{n}, target: echo, {call_input}}}" for n in range(steps)]
    return "\n".join(["name: yaml", "body:", "  kind: sequence", "  steps:", *calls])


def lisp_workflow(steps: int) -> str:
    call = "(call echo :input {:input (input) :context {}})"
    return f"(workflow lisp {' '.join(f'(state s{n} {call})' for n in range(steps))})"


MATCHES = {"json": "bounded", "yaml": "python", "lisp": "python"}
"""Each notation and the Python function with the same calls."""


def measure(rounds: int, directory: Path) -> list[Line]:
    return [line for steps in STEP_COUNTS for line in compare_notations(rounds, directory, steps)]


def compare_notations(rounds: int, directory: Path, steps: int) -> list[Line]:
    names = ("python", "bounded", *MATCHES)
    durations = measure_in_turns(
        rounds, *(lambda name=name: seconds_per_step(name, steps, directory) for name in names)
    )
    figures = dict(zip(names, durations, strict=True))
    return [make_line(name, steps, figures[name], figures[match]) for name, match in MATCHES.items()]


def seconds_per_step(name: str, steps: int, directory: Path) -> float:
    """Return the seconds of a step in consecutive runs of one workflow."""
    with temporary_folder(directory) as run_directory:
        return asyncio.run(run_workflow(name, steps, run_directory / "bench.db")) / TIMED_STEPS


async def run_workflow(name: str, steps: int, file: Path) -> float:
    async with Session("bench", file) as session:
        FunctionNode("echo", session, echo)
        session.workflow(python_workflow(steps, None), id="python")
        session.workflow(python_workflow(steps, TIMEOUT_S), id="bounded")
        for notation, text in (("json", json_workflow), ("yaml", yaml_workflow), ("lisp", lisp_workflow)):
            session.load(text(steps), notation)
        await (await session.start(name, "x")).wait()
        began = time.perf_counter()
        for _ in range(TIMED_STEPS // steps):
            await (await session.start(name, "x")).wait()
        return time.perf_counter() - began


def make_line(name: str, steps: int, ours: list[float], python: list[float]) -> Line:
    ratios = [one / other for one, other in zip(ours, python, strict=True)]
    what = f"a step of {steps} in {name}; the same in Python"
    figures = median(ours) * 1e6, median(python) * 1e6
    return Line("spec", what, "µs a step", *figures, median(ratios), at_most(ratios, 1.5))
