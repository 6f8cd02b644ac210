"""What started a run: recorded with its start, and shown in lists and details."""

from typing import Any

from nerve.api import Api
from nerve.api.callers import Caller, person_caller
from nerve.journal.index import read_start

ADA, TOKEN = Caller("unix:ada", "cli"), Caller("token:run", "http", "run")


async def starter(api: Api, run_id: str) -> tuple[str | None, str | None]:
    """Return what a list and the detail of a run agree on."""
    listed = next(run for run in (await api.runs()).runs if run.run_id == run_id)
    detail = await api.run(run=run_id)
    assert (listed.started_by, listed.started_via) == (detail.started_by, detail.started_via)
    return detail.started_by, detail.started_via


async def test_the_caller_of_a_start_is_shown(api: Api) -> None:
    for caller, workflow in ((ADA, "hello"), (TOKEN, "ask"), (person_caller("commander"), "hello")):
        run = await api.as_caller(caller).start(workflow=workflow, input="you", wait=True)
        assert (run.started_by, run.started_via) == (caller.identity, caller.via)
        assert await starter(api, run.run_id) == (caller.identity, caller.via)


async def test_a_fork_and_a_retry_are_started_by_their_own_callers(api: Api) -> None:
    run = await api.as_caller(ADA).start(workflow="broken", input="bad", wait=True)
    forked = await api.as_caller(TOKEN).fork(run=run.run_id)
    retried = await api.as_caller(TOKEN).retry(run=run.run_id)
    assert await starter(api, run.run_id) == ("unix:ada", "cli")
    assert await starter(api, forked.run_id) == ("token:run", "http")
    assert await starter(api, retried.run_id) == ("token:run", "http")


async def test_a_run_that_the_router_starts_names_the_user_of_the_message(api: Api) -> None:
    reply = await api.as_caller(ADA).route(text="/workflow start hello", start=True)
    if reply.run is None:
        reply = await api.as_caller(ADA).route(text="hello", start=True)
    assert reply.run is not None
    assert await starter(api, reply.run.run_id) == ("unix:ada", "router")


async def test_a_child_run_and_a_detached_run_name_the_run_that_started_them(api: Api) -> None:
    @api.session.workflow
    async def whole(ctx: Any) -> str:
        await ctx.run_workflow("hello", "you")
        return str(await ctx.start("hello", "there", detached=True))

    parent = await api.as_caller(ADA).start(workflow="whole", wait=True)
    others = [run for run in (await api.runs()).runs if run.run_id != parent.run_id]
    assert [run.started_by for run in others] == [f"run:{parent.run_id}"] * 2
    assert {run.parent for run in others} == {parent.run_id, None}


async def test_a_chain_keeps_the_caller_of_its_first_run(api: Api) -> None:
    @api.session.workflow
    async def twice(ctx: Any) -> Any:
        if ctx.input == 1:
            ctx.continue_as_new(2)
        return ctx.input

    first = await api.as_caller(ADA).start(workflow="twice", input=1, wait=True)
    assert (await api.run(run=first.run_id)).result == 2
    for run in (await api.runs()).runs:
        assert run.started_by == "unix:ada"


async def test_a_run_of_the_session_itself_has_no_caller(api: Api) -> None:
    run = await api.session.start("hello", "you")
    await run.wait()
    assert await starter(api, run.run_id) == (None, None)
    assert read_start(api.session.engine.store, run.run_id).caller is None
