"""A followed run: every event of the run and its child runs is applied once, in parts or at once."""

from datetime import UTC, datetime

from nerve.client import Client
from nerve.core.events import WorkflowEvent
from nerve.ui.followed_run import FollowedRun, FollowedStep, RunPicture
from ui.conftest import ship


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        self.seen.append((prefix, event.run_id, event.seq))


async def test_events_are_applied_once_although_they_are_read_in_parts(client: Client) -> None:
    run = await client.start(workflow="ship", input="tea", wait=True)
    recorder = Recorder()
    followed = FollowedRun(run.run_id, recorder)
    await followed.catch_up(client)
    first = len(recorder.seen)
    await followed.catch_up(client)
    assert len(recorder.seen) == first
    await client.answer(run=run.run_id, answer="yes")
    async for _ in client.watch(run.run_id):
        pass
    await followed.catch_up(client, {run.run_id})
    assert len(recorder.seen) == len(set(recorder.seen)) > first
    assert {prefix for prefix, _, _ in recorder.seen} == {"", "/check"}
    assert len(followed.run_ids) == 2


async def test_a_step_of_a_child_run_is_found_by_its_full_path(client: Client) -> None:
    run_id = await ship(client)
    picture = RunPicture(run_id)
    await picture.catch_up(client)
    child, path = picture.find_step("/check/echo")
    assert (child != run_id, path) == (True, "/echo")
    assert picture.find_step("/check") == (run_id, "/check")
    step = FollowedStep(child, path)
    await step.catch_up(client, picture)
    await step.catch_up(client, picture)
    assert (step.detail.state, step.detail.raw_output, len(step.detail.attempts)) == ("completed", "tea", 1)


async def test_the_profile_has_limits_origin_and_agents(client: Client) -> None:
    run = await client.start(workflow="ship", input="tea", limits={"cost": 3.0}, wait=True)
    picture = RunPicture(run.run_id)
    await picture.catch_up(client)
    assert picture.profile.limits["cost"] == 3.0
    assert picture.profile.agents == []
    await client.stop(run=run.run_id)
    forked = await client.fork(run=run.run_id, at="/flaky")
    fork = RunPicture(forked.run_id)
    await fork.catch_up(client)
    assert fork.profile.forked_from["run"] == run.run_id


async def test_pages_share_the_layout_of_a_run_that_has_ended(client: Client) -> None:
    picture = RunPicture(await ship(client))
    await picture.catch_up(client)
    first = picture.layout(datetime.now(UTC))
    assert picture.layout(datetime.now(UTC)) is first
    assert picture.layout(datetime.now(UTC), ("/x",)) is not first
