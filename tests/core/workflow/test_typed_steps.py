"""Typed steps: functions whose calls in a workflow are recorded."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import pytest

from core.workflow.support import data_of, types
from nerve import Retry, Session, WorkflowContext
from nerve.errors import NodeFailed


@dataclass
class Order:
    sku: str
    count: int = 1


@dataclass
class Receipt:
    order: Order
    total: int


async def test_a_call_is_a_recorded_step_with_typed_arguments_and_value(session: Session) -> None:
    @session.step
    async def charge(order: Order, price: int = 2) -> Receipt:
        assert isinstance(order, Order)
        return Receipt(order, order.count * price)

    @session.workflow
    async def buy(ctx: WorkflowContext) -> list[int]:
        first = await charge(Order("tea", 3), price=5)
        second = await charge(Order("milk"))
        assert isinstance(first, Receipt)
        return [first.total, second.total]

    run = await session.start("buy")
    assert await run.wait() == [15, 2]
    started = data_of(run, "node_started")
    assert [each["input"] for each in started] == [
        {"order": {"sku": "tea", "count": 3}, "price": 5},
        {"order": {"sku": "milk", "count": 1}},
    ]
    assert [event.path for event in run.events if event.event_type == "node_completed"] == [
        "/charge",
        "/charge[2]",
    ]
    assert data_of(run, "node_completed")[0]["result"]["output"] == {
        "order": {"sku": "tea", "count": 3},
        "total": 15,
    }


async def test_outside_a_workflow_a_step_is_just_the_function(session: Session) -> None:
    @session.step
    async def double(n: int) -> int:
        return 2 * n

    @session.step
    def triple(n: int) -> int:
        """Return three times n."""
        return 3 * n

    assert await double(2) == 4
    assert triple(2) == 6
    assert (triple.__name__, triple.__doc__) == ("triple", "Return three times n.")


async def test_a_step_that_another_step_calls_is_part_of_it(session: Session) -> None:
    @session.step
    async def inner(n: int) -> int:
        return n + 1

    @session.step
    async def outer(n: int) -> int:
        return await inner(n) + await inner(n)

    @session.workflow
    async def work(ctx: WorkflowContext) -> int:
        return await outer(1)

    run = await session.start("work")
    assert await run.wait() == 4
    assert types(run).count("node_started") == 1


async def test_parallel_calls_have_paths_in_the_order_of_the_calls(session: Session) -> None:
    @session.step
    async def late(n: int) -> int:
        await asyncio.sleep(0.01 * (3 - n))
        return n

    @session.workflow
    async def work(ctx: WorkflowContext) -> list[int]:
        return await asyncio.gather(*(late(n) for n in range(3)))

    run = await session.start("work")
    assert await run.wait() == [0, 1, 2]
    inputs = {event.path: event.data["input"] for event in run.events if event.event_type == "node_started"}
    assert inputs == {"/late": {"n": 0}, "/late[2]": {"n": 1}, "/late[3]": {"n": 2}}


async def test_wrong_arguments_are_a_type_error_before_anything_is_recorded(session: Session) -> None:
    @session.step
    async def charge(order: Order, amount: int) -> None: ...

    problems: list[str] = []

    @session.workflow
    async def work(ctx: WorkflowContext) -> None:
        for args, kwargs in (
            ((), {}),
            (("x", 1), {}),
            ((Order("a"),), {"amount": "1"}),
            ((Order("a"), 1), {"to": 2}),
        ):
            try:
                await charge(*args, **kwargs)
            except TypeError as error:
                problems.append(str(error))

    run = await session.start("work")
    await run.wait()
    assert problems == [
        "Wrong arguments of step 'charge': missing a required argument: 'order'",
        "Parameter 'order' of step 'charge' must be an instance of Order, got 'x' of type str",
        "Parameter 'amount' of step 'charge' must be a valid integer, got '1' of type str",
        "Wrong arguments of step 'charge': got an unexpected keyword argument 'to'",
    ]
    assert types(run) == ["workflow_started", "workflow_completed"]


def test_an_unknown_setting_of_a_step_is_refused_with_the_nearest_name(session: Session) -> None:
    def charge() -> None: ...

    with pytest.raises(TypeError, match=r"^'charge' has no setting 'tiemout'. Did you mean 'timeout'\?$"):
        session.step(tiemout=3)(charge)
    with pytest.raises(TypeError, match=r"^'charge' has no setting 'color'. Known: retry, timeout, "):
        session.step(color="red")(charge)
    assert session.find("charge") is None


def test_a_workflow_function_without_the_context_is_refused_when_it_is_registered(session: Session) -> None:
    async def fulfil() -> None: ...

    with pytest.raises(
        TypeError, match=r"workflow 'fulfil' must take the context .*async def fulfil\(ctx\)$"
    ):
        session.workflow(fulfil)
    assert session.get_workflow("fulfil") is None


async def test_a_failure_raises_with_step_type_and_message(session: Session) -> None:
    class Declined(Exception):
        pass

    @session.step
    async def charge(amount: int) -> int:
        raise Declined("no money")

    @session.workflow
    async def work(ctx: WorkflowContext) -> str:
        try:
            await charge(3)
        except NodeFailed as error:
            return f"{error.path} {error.error_type}: {error.error}"
        return "charged"

    run = await session.start("work")
    assert await run.wait() == "/charge Declined: no money"


async def test_a_result_of_another_type_fails_the_step(session: Session) -> None:
    @session.step
    async def count() -> int:
        return "three"  # type: ignore[return-value]

    @session.workflow
    async def work(ctx: WorkflowContext) -> int:
        return await count()

    run = await session.start("work")
    with pytest.raises(NodeFailed, match="The result of step 'count' must be a valid integer, got 'three'"):
        await run.wait()


async def test_a_step_takes_the_policy_of_a_node(session: Session) -> None:
    calls = []

    @session.step(retry=Retry(attempts=3, delay=0), id="unsteady")
    def flaky(n: int) -> int:
        calls.append(n)
        if len(calls) < 3:
            raise ConnectionError("down")
        return n

    @session.step(timeout=0.01)
    async def slow() -> None:
        await asyncio.sleep(60)

    @session.workflow
    async def work(ctx: WorkflowContext) -> int:
        with pytest.raises(TimeoutError):
            await slow()
        return await flaky(7)

    run = await session.start("work")
    assert await run.wait() == 7
    assert types(run).count("node_retrying") == 2
    assert "unsteady" in session.nodes


async def test_ctx_run_executes_a_step_by_its_name(session: Session) -> None:
    @session.step
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @session.workflow
    async def work(ctx: WorkflowContext) -> list[object]:
        good = await ctx.run("add", {"a": 2})
        bad = [await ctx.run("add", value) for value in ({"a": "x"}, {"c": 1}, {})]
        return [good["output"], *(each.error for each in bad)]

    run = await session.start("work")
    assert await run.wait() == [
        3,
        "Parameter 'a' of step 'add' must be a valid integer, got 'x' of type str",
        "Unknown parameter 'c' of step 'add'",
        "Parameter 'a' of step 'add' is missing",
    ]


async def test_an_untyped_value_that_is_not_json_is_a_type_error_of_its_step(session: Session) -> None:
    work: list[str] = []

    @session.step
    async def keep(value, result=None):  # type: ignore[no-untyped-def]
        work.append("done")
        return {"kept": [object()]} if result else None

    @session.workflow
    async def argument(ctx: WorkflowContext) -> None:
        await keep({"a": object()})

    @session.workflow
    async def result(ctx: WorkflowContext) -> None:
        await keep(1, result=True)

    @session.workflow
    async def misspelled(ctx: WorkflowContext) -> None:
        await keep(1, reslt=True)

    expected = {
        "argument": "Parameter 'value' of step 'keep' is not JSON: a value of type object at a",
        "result": "The result of step 'keep' is not JSON: a value of type object at kept[0]",
        "misspelled": "got an unexpected keyword argument 'reslt'. Did you mean 'result'?",
    }
    for name, message in expected.items():
        run = await session.start(name)
        with pytest.raises((TypeError, NodeFailed), match=re.escape(message)):
            await run.wait()
        assert run.to_info().error is not None
        assert ("/keep" in run.view.nodes) == (name == "result")
    assert work == ["done"]
