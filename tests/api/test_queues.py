"""Queues over the API: listed, paused and resumed."""

from api.support import refusal
from nerve import Queue, WorkflowContext
from nerve.api import Api
from nerve.client import Client


async def test_queues_are_listed_paused_and_resumed(api: Api) -> None:
    session, done = api.session, []
    assert (await api.queues()).queues == []
    session.add_queue(Queue("emails", concurrency=1, rate="100/min", per="tenant", priority="rank"))

    @session.step(queue="emails")
    async def send(tenant: str) -> None:
        done.append(tenant)

    @session.workflow
    async def mail(ctx: WorkflowContext) -> None:
        await send("acme")

    paused = await api.pause_queue(queue="emails")
    assert (paused.name, paused.paused) == ("emails", True)
    run = await session.start("mail")
    while run.waiting_for is None:
        await run.wait_for_change()
    assert (await api.run(run=run.run_id)).waiting_for == 'for queue "emails"'
    assert (await api.runs()).runs[0].waiting_for == 'for queue "emails"'
    (queue,) = (await api.queues()).queues
    assert (queue.concurrency, queue.rate, queue.per, queue.priority) == (1, "100/min", "tenant", "rank")
    assert (queue.running, queue.waiting, queue.paused, queue.declared) == (0, 1, True, True)
    assert queue.oldest_wait is not None
    async with Client(api) as client:
        assert not (await client.resume_queue(queue="emails", key="once")).paused
        assert not (await client.resume_queue(queue="emails", key="once")).paused
    await run.wait()
    assert done == ["acme"]


async def test_an_unknown_queue_is_refused_with_the_nearest_name(api: Api) -> None:
    api.session.add_queue(Queue("emails"))
    error = await refusal(api.pause_queue(queue="email"))
    assert (error.code, error.message) == ("refused", "Queue 'email' not found. Did you mean 'emails'?")


async def test_a_run_is_started_in_a_queue(api: Api) -> None:
    session = api.session
    session.add_queue(Queue("reports", concurrency=1, per="tenant"))

    @session.workflow
    async def report(ctx: WorkflowContext) -> str:
        return "done"

    await api.pause_queue(queue="reports")
    async with Client(api) as client:
        started = await client.start(workflow="report", queue="reports", tags={"tenant": "acme"}, key="once")
        assert (started.state, started.waiting_for) == ("waiting", 'for queue "reports"')
        again = await client.start(workflow="report", queue="reports", tags={"tenant": "acme"}, key="once")
        assert again.run_id == started.run_id
    (queue,) = (await api.queues()).queues
    assert queue.waiting == 1
    await api.resume_queue(queue="reports")
    run = session.get_workflow_run(started.run_id)
    assert run is not None
    assert await run.wait() == "done"


async def test_a_start_in_a_queue_that_cannot_be_used_is_refused_and_starts_nothing(api: Api) -> None:
    session = api.session
    session.add_queue(Queue("reports", per="tenant"))
    session.add_queue(Queue("other"))

    @session.workflow
    async def report(ctx: WorkflowContext) -> None: ...

    unknown = await refusal(api.start(workflow="report", queue="report"))
    assert (unknown.code, unknown.message) == (
        "refused",
        "Queue 'report' not found. Did you mean 'reports'?",
    )
    keyless = await refusal(api.start(workflow="report", queue="reports"))
    assert "Queue 'reports' counts per 'tenant'" in keyless.message
    assert (await api.runs()).runs == []
    await api.start(workflow="report", queue="other", key="one")
    repeated = await refusal(api.start(workflow="report", queue="reports", tags={"tenant": "a"}, key="one"))
    assert "was started with another tag" in repeated.message
    changed = await refusal(api.start(workflow="report", queue="reports", key="one"))
    assert "was started with another queue" in changed.message
