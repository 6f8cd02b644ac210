"""What type checkers see of typed steps and workflows.

`make check` runs mypy over this file, and `make typing` pyright too.
"""

from collections.abc import Awaitable
from typing import Literal, assert_type

from nerve import Session, WorkflowContext, WorkflowRun

session = Session()


class Order: ...


class Receipt: ...


@session.step
async def charge(order: Order, amount: int = 1) -> Receipt:
    return Receipt()


@session.step(timeout=5)
def count(order: Order) -> int:
    return 1


@session.workflow
async def fulfil(ctx: WorkflowContext, order: Order, times: int = 1) -> Receipt:
    assert_type(charge(order, amount=3), Awaitable[Receipt])
    assert_type(await count(order), int)
    assert_type(await ctx.gate("Send it?", type=Receipt), Receipt)
    assert_type(await ctx.gate("Send it?", 60, type=bool), bool)
    choice: Literal["a", "b"] = await ctx.gate("Which?", type=Literal["a", "b"])
    answer: str = await ctx.gate(f"{choice}?", choices=["yes", "no"])
    answer.upper()
    charge("x")  # type: ignore[arg-type]
    charge(order, amounts=3)  # type: ignore[call-arg]
    return await charge(order)


@session.workflow
async def supervise(ctx: WorkflowContext, order: Order) -> int:
    assert_type(await ctx.run_workflow(fulfil, order), Receipt)
    await ctx.run_workflow(fulfil, "not an order")  # type: ignore[arg-type]
    assert_type(await ctx.receive("orders", Order), Order)
    async for each in ctx.receive("orders", Order):
        assert_type(each, Order)
    async with ctx.saga() as saga:
        saga.compensate(charge, order, amount=2)
        saga.compensate(charge, "x")  # type: ignore[arg-type]
    assert_type(await ctx.start(fulfil, order, detached=True), str)
    return await count(order)


async def start() -> None:
    run = await session.start(fulfil, Order(), {"times": 3}, label="first")
    assert_type(run, WorkflowRun[Receipt])
    assert_type(await run.wait(), Receipt)
    assert_type(run.result, Receipt | None)
    await session.start(fulfil, "not an order")  # type: ignore[arg-type]
    by_name = await session.start("fulfil", {"sku": "tea"})
    by_name.state.value.upper()
