"""Typed workflow functions: the input, the parameters and the result have the types of the annotations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from core.workflow.support import at_gate, data_of
from nerve import Session, WorkflowContext
from nerve.errors import InvalidValue, RunHeld


@dataclass
class Order:
    sku: str
    placed: datetime


@dataclass
class Receipt:
    sku: str
    copies: int


ORDER = Order("tea", datetime(2026, 1, 2, tzinfo=UTC))


def register(session: Session) -> None:
    @session.workflow
    async def fulfil(ctx: WorkflowContext, order: Order, copies: int = 1, *, ask: bool = False) -> Receipt:
        assert isinstance(order, Order)
        if ask:
            await ctx.gate("Send it?")
        return Receipt(order.sku, copies)


async def test_a_run_takes_and_returns_typed_values(session: Session) -> None:
    register(session)
    fulfil = session.workflows["fulfil"].fn
    run = await session.start(fulfil, ORDER, {"copies": 2})
    assert await run.wait() == run.result == Receipt("tea", 2)
    assert run.to_info().result == {"sku": "tea", "copies": 2}
    assert data_of(run, "workflow_started")[0]["input"] == {"sku": "tea", "placed": "2026-01-02T00:00:00Z"}


async def test_a_run_by_name_takes_json_of_the_same_shape(session: Session) -> None:
    register(session)
    run = await session.start("fulfil", {"sku": "tea", "placed": "2026-01-02T00:00:00Z"})
    assert await run.wait() == Receipt("tea", 1)


async def test_the_values_are_the_same_after_a_restart(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("fulfil", ORDER, {"ask": True})
        await at_gate(run)
    async with Session(store=file) as session:
        register(session)
        [run] = await session.recover()
        run.answer_gate("yes")
        assert await run.wait() == Receipt("tea", 1)
    async with Session(store=file) as session:
        register(session)
        ended = session.get_workflow_run(run.run_id)
        assert ended is not None
        assert await ended.wait() == ended.result == Receipt("tea", 1)


@pytest.mark.parametrize(
    ("input", "params", "problem"),
    [
        (None, {}, "Parameter 'order' of workflow 'fulfil' must be an object, got None"),
        (
            {"sku": 3, "placed": "2026-01-02"},
            {},
            "Parameter 'order.sku' of workflow 'fulfil' must be a valid string",
        ),
        (
            ORDER,
            {"copies": "two"},
            "Parameter 'copies' of workflow 'fulfil' must be a valid integer, got 'two'",
        ),
        (ORDER, {"copie": 2}, "Unknown parameter 'copie' of workflow 'fulfil'. Did you mean 'copies'?"),
        (object(), {}, "Parameter 'order' of workflow 'fulfil' must be an instance of Order, got <object"),
    ],
)
async def test_wrong_values_start_nothing(
    session: Session, input: object, params: dict, problem: str
) -> None:
    register(session)
    with pytest.raises(InvalidValue) as error:
        await session.start("fulfil", input, params)
    assert str(error.value).startswith(problem)
    assert not session.list_workflow_runs()


async def test_a_child_run_takes_and_returns_typed_values(session: Session) -> None:
    register(session)
    fulfil = session.workflows["fulfil"].fn

    @session.workflow
    async def shop(ctx: WorkflowContext) -> list[str]:
        first = await ctx.run_workflow(fulfil, ORDER)
        second = await ctx.run_workflow("fulfil", ORDER, {"copies": 3})
        assert isinstance(first, Receipt)
        return [first.sku, str(second.copies)]

    run = await session.start(shop)
    assert await run.wait() == ["tea", "3"]


async def test_a_workflow_runs_typed_without_a_run(session: Session) -> None:
    register(session)
    assert await session.workflows["fulfil"].execute(ORDER) == Receipt("tea", 1)


async def test_a_partial_function_is_not_typed(session: Session) -> None:
    async def repeat(ctx: WorkflowContext, times: int) -> str:
        return ctx.input * times

    session.workflow(partial(repeat, times=2), id="twice")
    run = await session.start("twice", "ab")
    assert await run.wait() == "abab"


async def test_a_function_that_is_not_registered_is_refused(session: Session) -> None:
    async def stranger(ctx: WorkflowContext) -> None: ...

    with pytest.raises(
        ValueError, match=r"stranger is not a workflow of this session. Use @session.workflow."
    ):
        await session.start(stranger)


@pytest.mark.parametrize("changed", ["step", "input"])
async def test_a_recorded_value_of_another_type_holds_the_run_with_the_field_named(
    tmp_path: Path, changed: str
) -> None:
    def open_session(old: bool) -> Session:
        session = Session(store=tmp_path / "nerve.db")
        part_type: Any = create_model("Part", count=(int if old else str, ...))

        async def make() -> Any:
            return part_type(count=3)

        make.__annotations__["return"] = part_type if changed == "step" else Any
        step = session.step(make)

        async def build(ctx: WorkflowContext, part: Any) -> Any:
            made = await step() if changed == "step" else part
            await ctx.gate("Go on?")
            return made.count

        build.__annotations__["part"] = part_type if changed == "input" else Any
        session.workflow(build)
        return session

    async with open_session(old=True) as session:
        run = await session.start("build", {"count": 3})
        await run.next_gate()
    async with open_session(old=False) as session:
        [run] = await session.recover()
        await run.answer("yes")
        with pytest.raises(RunHeld, match=r"count.* must be a valid string, got 3"):
            await run.wait()
        assert run.held is not None
        assert run.held["reason"] == "mismatch"
        assert run.held["path"] == ("/make" if changed == "step" else "/")
    async with open_session(old=True) as session:
        [run] = await session.recover()
        await run.resume()
        assert await run.wait() == 3


async def test_a_workflow_function_may_take_arguments_that_it_does_not_name(session: Session) -> None:
    @session.workflow
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return args[0].input

    @session.workflow
    async def mixed(ctx: WorkflowContext, number: int, **others: Any) -> int:
        return number

    assert await (await session.start("wrapped", "text")).wait() == "text"
    assert await (await session.start("mixed", 3)).wait() == 3
    assert [declared.name for declared in session.workflows["mixed"].inputs] == ["number"]
