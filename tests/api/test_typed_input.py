"""The input of a typed workflow may be typed as text; a repeated start compares it as it is stored."""

from dataclasses import dataclass

from api.support import refusal
from nerve import WorkflowContext
from nerve.api import Api
from nerve.api.commands import run_when_idle


@dataclass
class Order:
    item: str
    count: int = 1


def register(api: Api) -> None:
    @api.session.workflow
    async def double(ctx: WorkflowContext, number: int, times: int = 2) -> int:
        return number * times

    @api.session.workflow
    async def buy(ctx: WorkflowContext, order: Order) -> str:
        return f"{order.count} {order.item}"

    @api.session.workflow
    async def say(ctx: WorkflowContext, text: str) -> str:
        return text


async def test_a_text_is_read_as_json_where_only_that_is_of_the_declared_type(api: Api) -> None:
    register(api)
    run = await api.start(workflow="double", input="3", params={"times": "5"}, wait=True)
    assert run.result == 15
    assert (await api.start(workflow="buy", input='{"item": "tea"}', wait=True)).result == "1 tea"
    assert (await api.start(workflow="say", input="3", wait=True)).result == "3"
    error = await refusal(api.start(workflow="double", input="three"))
    assert (
        error.message
        == "Parameter 'number' of workflow 'double' must be a valid integer, got 'three' of type str"
    )


async def test_a_repeated_start_of_a_typed_workflow_returns_the_same_run(api: Api) -> None:
    register(api)
    first = await api.start(workflow="buy", input={"item": "tea"}, key="k")
    await run_when_idle(api.session, first)
    assert (await api.start(workflow="buy", input='{"item": "tea"}', key="k")).run_id == first.run_id
    assert (await refusal(api.start(workflow="buy", input={"item": "milk"}, key="k"))).code == "conflict"
