"""Lists from the store alone have what the API lists."""

import asyncio

import pytest

from nerve import Session
from nerve.api import Api
from nerve.api.commands import wait_until_run_idle
from nerve.cli.runs import SUMMARY_FIELDS, plain_table_lines
from nerve.client import Client
from nerve.client.stored_lists import EngineRequired, StoredGate, StoredLists, StoredRun


async def complete(ctx):
    return "done"


async def fail(ctx):
    raise ValueError("broken")


async def ask(ctx):
    form = {"type": "object", "properties": {"size": {"type": "integer"}}}
    await asyncio.gather(ctx.gate("Go on?", choices=["yes", "no"]), ctx.gate("How large?", form=form))


async def wait_for_signal(ctx):
    await ctx.wait_signal("shipped", key="42")


async def continue_once(ctx, number: int = 0):
    if number == 0:
        ctx.continue_as_new(1)


async def call_child(ctx):
    await ctx.run_workflow("ask")


WORKFLOWS = {
    function.__name__: function
    for function in (complete, fail, ask, wait_for_signal, continue_once, call_child)
}
NEEDS_NO_ENGINE = [name for name in WORKFLOWS if name != "call_child"]


def open_session(file):
    session = Session(store=file)
    for function in WORKFLOWS.values():
        session.workflow(function)
    return session


async def record_runs(file, names):
    async with open_session(file) as session:
        for name in names:
            run = await session.start(name, label=f"label of {name}", tags={"kind": name})
            await wait_until_run_idle(session, run)


async def read_from_api(file):
    async with open_session(file) as session:
        client = Client(Api(session))
        page = await client.runs(limit=100)
        runs = [
            run.model_dump(mode="json", include={*SUMMARY_FIELDS, "gates", "parent"}) for run in page.runs
        ]
        return runs, [gate.model_dump(mode="json") for gate in await client.all_gates()]


async def read_from_store(file):
    with StoredLists.open(file.parent, file) as lists:
        page = await lists.runs(state=[], limit=100)
        runs = [run.model_dump(mode="json") for run in page.runs]
        for run in runs:
            run["gates"] = [gate.model_dump(mode="json") for gate in run["gates"]]
        return runs, [gate.model_dump(mode="json") for gate in await lists.all_gates()]


async def test_lists_from_the_store_equal_those_of_the_api(tmp_path):
    file = tmp_path / "nerve.db"
    await record_runs(file, NEEDS_NO_ENGINE)
    runs, gates = await read_from_store(file)
    assert {run["state"] for run in runs} == {"completed", "failed", "waiting"}
    assert len(gates) == 2
    assert [run["state"] for run in runs].count("failed") == 1
    assert (runs, gates) == await read_from_api(file)


async def test_pages_of_stored_runs_are_the_whole_list(tmp_path):
    file = tmp_path / "nerve.db"
    await record_runs(file, NEEDS_NO_ENGINE)
    with StoredLists.open(tmp_path, file) as lists:
        everything = (await lists.runs(state=[], limit=100)).runs
        found, more = [], True
        while more:
            page = await lists.runs(state=[], limit=2, before=found[-1].run_id if found else None)
            found, more = [*found, *page.runs], page.more
        assert found == everything
        waiting = await lists.runs(state=["waiting"], limit=100)
        assert waiting.runs == [run for run in everything if run.state == "waiting"]


async def test_a_run_that_may_wait_for_a_child_run_needs_an_engine(tmp_path):
    file = tmp_path / "nerve.db"
    await record_runs(file, ["call_child"])
    with StoredLists.open(tmp_path, file) as lists, pytest.raises(EngineRequired):
        await lists.runs(state=[], limit=100)


async def test_a_project_without_a_store_has_no_runs(tmp_path):
    with StoredLists.open(tmp_path, tmp_path / "nerve.db") as lists:
        assert (await lists.runs(state=[], limit=100)).runs == []
        assert await lists.all_gates() == []
    assert not (tmp_path / "nerve.db").exists()


def test_stored_entries_have_the_fields_of_responses():
    from dataclasses import fields

    from nerve.api.models import GateResponse, RunResponse

    assert [each.name for each in fields(StoredGate)] == list(GateResponse.model_fields)
    names = [each.name for each in fields(StoredRun)]
    assert names == [name for name in RunResponse.model_fields if name in names]
    assert set(names) >= SUMMARY_FIELDS


def test_a_plain_table_is_aligned_and_refuses_text_of_unknown_width():
    assert plain_table_lines([("run", "state", ""), ("1", "✓ completed", "")]) == [
        "run  state",
        "1    ✓ completed",
    ]
    assert plain_table_lines([("run",), ("日本",)]) == []
