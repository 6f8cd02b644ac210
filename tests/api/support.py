"""Helpers of the API tests."""

from typing import Any

import pytest

from nerve import Session
from nerve.api import Api, ApiError


def with_workflows(session: Session) -> Api:
    """Return an API with the workflows that the tests use."""

    @session.workflow
    async def hello(ctx: Any) -> str:
        """Greets."""
        return f"hello {ctx.input}"

    @session.workflow
    async def ask(ctx: Any) -> Any:
        return await ctx.gate("Go on?", choices=["yes", "no"])

    @session.workflow
    async def open_question(ctx: Any) -> Any:
        return await ctx.gate("What?")

    @session.workflow
    async def basket(ctx: Any) -> list[Any]:
        items: list[Any] = []

        def add(item: Any) -> int:
            items.append(item)
            return len(items)

        ctx.query("items", lambda: items)
        ctx.update("add", add)
        items.append(await ctx.receive("orders"))
        return items

    @session.workflow
    async def nested(ctx: Any) -> Any:
        return await ctx.run_workflow("ask")

    @session.workflow
    async def broken(ctx: Any) -> Any:
        result = await ctx.run("careful", ctx.input)
        if not result.success:
            raise ValueError(result.error)
        return result.output

    @session.node
    async def careful(context: Any) -> Any:
        if context.input == "bad":
            raise ValueError("it is bad")
        return context.input

    return Api(session)


async def refusal(operation: Any) -> ApiError:
    """Return the error of an operation."""
    with pytest.raises(ApiError) as caught:
        await operation
    return caught.value
