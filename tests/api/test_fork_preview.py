"""The preview of a fork or a retry."""

import pytest

from nerve.api import ApiError
from nerve.client import Client


async def test_a_preview_says_what_a_fork_would_do(numbers_client: Client) -> None:
    run = await numbers_client.start(workflow="numbers", wait=True)
    preview = await numbers_client.preview_fork(run=run.run_id, at="/double[3]")
    assert preview.counts == {"reused": 2, "again": 1, "reused_if_same": 18}
    assert len((await numbers_client.runs()).runs) == 1
    overridden = await numbers_client.preview_fork(run=run.run_id, overridden=["/careful"])
    assert overridden.counts == {"reused": 20, "again": 1}
    changed = await numbers_client.preview_fork(run=run.run_id, new_input=True)
    assert changed.is_input_changed
    assert changed.counts == {"reused_if_same": 21}


async def test_a_preview_of_a_retry_has_no_path(numbers_client: Client) -> None:
    run = await numbers_client.start(workflow="broken", input="bad", wait=True)
    preview = await numbers_client.preview_fork(run=run.run_id, retry=True)
    assert [(step.path, step.fate) for step in preview.steps] == [("/careful", "again")]
    with pytest.raises(ApiError, match="A retry has no path"):
        await numbers_client.preview_fork(run=run.run_id, retry=True, at="/careful")
