"""The preview of a fork or a retry."""

from typing import Any

import pytest

from nerve.api import Api, ApiError
from nerve.client import Client


@pytest.fixture
async def client(api: Api) -> Client:
    @api.session.node
    def double(context: Any) -> Any:
        return context.input * 2

    @api.session.workflow
    async def numbers(ctx: Any) -> None:
        for number in range(20):
            await ctx.run("double", number)
        await ctx.run("careful", "Zebra")

    return Client(api)


async def test_a_preview_says_what_a_fork_would_do(client: Client) -> None:
    run = await client.start(workflow="numbers", wait=True)
    preview = await client.preview_fork(run=run.run_id, at="/double[3]")
    assert preview.counts == {"reused": 2, "again": 1, "reused_if_same": 18}
    assert len((await client.runs()).runs) == 1
    overridden = await client.preview_fork(run=run.run_id, overridden=["/careful"])
    assert overridden.counts == {"reused": 20, "again": 1}
    changed = await client.preview_fork(run=run.run_id, new_input=True)
    assert changed.is_input_changed
    assert changed.counts == {"reused_if_same": 21}


async def test_a_preview_of_a_retry_has_no_path(client: Client) -> None:
    run = await client.start(workflow="broken", input="bad", wait=True)
    preview = await client.preview_fork(run=run.run_id, retry=True)
    assert [(step.path, step.fate) for step in preview.steps] == [("/careful", "again")]
    with pytest.raises(ApiError, match="A retry has no path"):
        await client.preview_fork(run=run.run_id, retry=True, at="/careful")
