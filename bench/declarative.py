"""Declarative notations: a step of a workflow that was written down, beside the same step in Python."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from bench.measure import Line, at_most, folder, in_turns
from bench.workflows import echo
from nerve import FunctionNode, Session, WorkflowContext

COUNTS = (5, 20)
"""Steps of a workflow."""
ALL = 200
"""Steps that are timed, in as many runs as that takes."""
TIMEOUT = 60
"""Seconds that the dialect of JSON gives an agent; its match in Python has them too."""


def in_python(steps: int, timeout: float | None) -> Callable[[WorkflowContext], Awaitable[None]]:
    async def body(ctx: WorkflowContext) -> None:
        for _ in range(steps):
            await ctx.run("echo", {"input": ctx.input, "context": {}}, timeout=timeout)

    return body


def in_json(steps: int) -> str:
    made = [{"id": f"s{n}", "type": "agent", "agent": "echo", "input": []} for n in range(steps)]
    for n, step in enumerate(made[:-1]):
        step["next"] = f"s{n + 1}"
    return json.dumps({"id": "json", "steps": made})


def in_yaml(steps: int) -> str:
    given = 'input: {input: "{{ input }}", context: {}}'
    calls = [f"    - {{kind: call, id: s{n}, target: echo, {given}}}" for n in range(steps)]
    return "\n".join(["name: yaml", "body:", "  kind: sequence", "  steps:", *calls])


def in_lisp(steps: int) -> str:
    call = "(call echo :input {:input (input) :context {}})"
    return f"(workflow lisp {' '.join(f'(state s{n} {call})' for n in range(steps))})"


MATCHES = {"json": "bounded", "yaml": "python", "lisp": "python"}
"""Each notation, and the Python function that asks for the same."""


def measure(rounds: int, place: Path) -> list[Line]:
    return [line for steps in COUNTS for line in compare(rounds, place, steps)]


def compare(rounds: int, place: Path, steps: int) -> list[Line]:
    names = ("python", "bounded", *MATCHES)
    taken = in_turns(rounds, *(lambda name=name: seconds(name, steps, place) for name in names))
    figures = dict(zip(names, taken, strict=True))
    return [line(name, steps, figures[name], figures[match]) for name, match in MATCHES.items()]


def seconds(name: str, steps: int, place: Path) -> float:
    """What a step takes in runs of one workflow, one after the other."""
    with folder(place) as here:
        return asyncio.run(run(name, steps, here / "bench.db")) / ALL


async def run(name: str, steps: int, file: Path) -> float:
    async with Session("bench", file) as session:
        FunctionNode("echo", session, echo)
        session.workflow(in_python(steps, None), id="python")
        session.workflow(in_python(steps, TIMEOUT), id="bounded")
        for notation, text in (("json", in_json), ("yaml", in_yaml), ("lisp", in_lisp)):
            session.load(text(steps), notation)
        await (await session.start(name, "x")).wait()
        began = time.perf_counter()
        for _ in range(ALL // steps):
            await (await session.start(name, "x")).wait()
        return time.perf_counter() - began


def line(name: str, steps: int, ours: list[float], python: list[float]) -> Line:
    ratios = [one / other for one, other in zip(ours, python, strict=True)]
    what = f"a step of {steps} in {name}; the same in Python"
    figures = median(ours) * 1e6, median(python) * 1e6
    return Line("spec", what, "µs a step", *figures, median(ratios), at_most(ratios, 1.5))
