"""The law of retry, over generated workflows: whatever failed, settled steps do not run again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nerve import FunctionNode, Graph, Session, WorkflowContext, WorkflowRun
from nerve.core.workflow import WorkflowState

pytestmark = pytest.mark.local("cuts the journal of the store")

LEAVES = st.one_of(
    st.tuples(st.just("step"), st.sampled_from([0, 0, 1, 2])), st.tuples(st.sampled_from(["gate", "sleep"]))
)
"""A step with the number of times it fails."""
BRANCHING = st.sampled_from(["seq", "gather", "child", "graph"])
PROGRAMS = st.recursive(
    LEAVES, lambda inner: st.tuples(BRANCHING, st.lists(inner, min_size=1, max_size=3)), max_leaves=8
)


class Trial:
    """A session with a program as its workflow `main`, and how often each of its steps ran."""

    def __init__(self, program: Any) -> None:
        self.session, self.done, self.failing = Session(), Counter[str](), Counter[str]()
        self._made = 0
        body = self._made_of(program)

        @self.session.workflow
        async def main(ctx: WorkflowContext) -> Any:
            return await body(ctx)

    def _made_of(self, program: Any) -> Any:
        kind, *rest = program
        self._made += 1
        name = f"{kind}{self._made}"
        match kind:
            case "step":
                return self._step(name, rest[0])
            case "gate":
                return lambda ctx: ctx.gate(name)
            case "sleep":
                return lambda ctx: ctx.sleep(0.001)
            case "graph":
                return self._graph(name, rest[0])
        parts = [self._made_of(part) for part in rest[0]]
        return {"seq": in_turn, "gather": together, "child": self._child}[kind](parts, name)

    def _step(self, name: str, fails: int) -> Any:
        self.failing[name] = fails

        async def work(context: Any) -> str:
            await asyncio.sleep(0)
            if self.failing[name] > 0:
                self.failing[name] -= 1
                raise OSError(name)
            self.done[name] += 1
            return name

        FunctionNode(name, self.session, work)
        return lambda ctx: checked(ctx.run(name))

    def _graph(self, name: str, parts: list[Any]) -> Any:
        graph = Graph(name, self.session)
        for number, part in enumerate(parts):
            inner = f"{name}_{number}"
            self._child([self._made_of(part)], inner)
            before = [f"s{number - 1}"] if number % 2 else []
            graph.add_step(self.session.workflows[inner], f"s{number}", depends_on=before)
        return lambda ctx: checked(ctx.run_graph(name))

    def _child(self, parts: list[Any], name: str) -> Any:
        @self.session.workflow(id=name)
        async def child(ctx: WorkflowContext) -> Any:
            return await in_turn(parts, name)(ctx)

        return lambda ctx: ctx.run_workflow(name)

    async def over(self, run: WorkflowRun) -> bool:
        """Whether a run failed in the end; all of its gates are answered."""
        while not run.is_complete:
            assert run.held is None
            for gate in run.pending_gates:
                await run.answer("yes", gate.gate_id)
            await asyncio.sleep(0)
        return run.state is WorkflowState.FAILED


async def checked(call: Any) -> Any:
    if not (result := await call)["success"]:
        raise RuntimeError(result["error"])
    return result["output"]


def in_turn(parts: list[Any], name: str) -> Any:
    async def body(ctx: WorkflowContext) -> Any:
        return [await part(ctx) for part in parts]

    return body


def together(parts: list[Any], name: str) -> Any:
    async def body(ctx: WorkflowContext) -> Any:
        told = await asyncio.gather(*(part(ctx) for part in parts), return_exceptions=True)
        for error in told:
            if isinstance(error, BaseException):
                raise error
        return told

    return body


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS)
def test_every_retry_makes_progress_and_repeats_no_completed_step(program: Any) -> None:
    async def check() -> None:
        trial = Trial(program)
        run = await trial.session.start("main")
        while await trial.over(run):
            left = trial.failing.total()
            run = await trial.session.retry(run.run_id)
            await trial.over(run)
            assert trial.failing.total() < left or run.state is WorkflowState.COMPLETED
        assert run.state is WorkflowState.COMPLETED
        assert set(trial.done.values()) <= {1}

    asyncio.run(check())
