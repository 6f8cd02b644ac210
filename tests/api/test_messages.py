"""Messages, queries and updates over the API."""

from typing import Any

from api.support import refusal
from nerve.api import Api
from nerve.api.commands import run_when_idle


async def test_a_message_reaches_a_run_and_ends_its_wait(api: Api) -> None:
    run = await api.start(workflow="basket", wait=True)
    sent = await api.send(run=run.run_id, channel="orders", value={"item": "tea"})
    assert (sent.run_id, sent.channel) == (run.run_id, "orders")
    await run_when_idle(api.session, run)
    assert (await api.run(run=run.run_id)).result == [{"item": "tea"}]


async def test_an_update_replies_and_a_query_shows_its_effect(api: Api) -> None:
    run = await api.start(workflow="basket", wait=True)
    assert (await api.update(run=run.run_id, update="add", value="tea")).result == 1
    assert (await api.query(run=run.run_id, query="items")).result == ["tea"]


async def test_wrong_names_and_ended_runs_are_refused(api: Api) -> None:
    run = await api.start(workflow="basket", wait=True)
    unknown = await refusal(api.query(run=run.run_id, query="item"))
    assert (unknown.code, unknown.message) == (
        "refused",
        "Unknown query 'item' of the run. Did you mean 'items'? Known: items",
    )
    await api.send(run=run.run_id, channel="orders")
    await run_when_idle(api.session, run)
    for operation in (
        api.send(run=run.run_id, channel="orders"),
        api.update(run=run.run_id, update="add"),
        api.query(run=run.run_id, query="items"),
    ):
        error: Any = await refusal(operation)
        assert (error.code, "is completed and cannot take" in error.message) == ("conflict", True)
