"""A fork of a workflow with detached prompts completes like its source, wherever it begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from nerve import FunctionNode, Session
from nerve.core.workflow import WorkflowRun
from nerve.journal.fork_point import body_events, request_seqs
from nerve.store.memory import MemoryStore
from nerve.store.port import Append
from nerve.testing import assert_replays

ROLES = "(roles (writer :agent-kind writer) (editor :agent-kind editor))"
STATES = f"""
(workflow flow {ROLES}
  (state write
    (send-prompt :agent writer :template "Write about ~a." :args ((input)) :tag draft)
    (await (transcript-response :request-id draft))
    (gate "Publish it?" :choices (approve reject) :reject (reject)))
  (state edit
    (send-prompt :agent editor :template "Correct: ~a" :args ((artifact writer)) :tag final)
    (await (transcript-response :request-id final))
    (result (artifact editor))
    (terminal)))
"""
ANSWERED_BEFORE_THE_WAIT = f"""
(workflow flow {ROLES}
  (state both
    (send-prompt :agent writer :template "Write about ~a." :args ((input)) :tag draft)
    (send-prompt :agent editor :template "Correct ~a." :args ((input)) :tag final)
    (await (transcript-response :request-id final))
    (gate "Read it?" :choices (approve reject))
    (await (transcript-response :request-id draft))
    (result [(artifact writer) (artifact editor)])
    (terminal)))
"""
REPEATED = f"""
(workflow flow {ROLES}
  (state write
    (send-prompt :agent writer :template "Write about ~a." :args ((input)) :tag draft)
    (await (transcript-response :request-id draft))
    (loop
      (send-prompt :agent writer :template "Extend: ~a" :args ((artifact writer)) :tag draft)
      (await (transcript-response :request-id draft))
      :times 2)
    (result (artifact writer))
    (terminal)))
"""
SAME_FOR_EVERY_INPUT = STATES.replace('"Write about ~a." :args ((input))', '"Write."')
FLOWS = {
    "states": STATES,
    "answered before the wait": ANSWERED_BEFORE_THE_WAIT,
    "repeated": REPEATED,
    "same for every input": SAME_FOR_EVERY_INPUT,
}


def open_session(store: MemoryStore, source: str) -> Session:
    session = Session("s", store)
    for name in ("writer", "editor"):
        FunctionNode(name, session, lambda context: f"<{context.input}>")
    session.load(source)
    return session


@pytest.fixture(params=FLOWS)
async def session(request: Any) -> AsyncIterator[Session]:
    async with open_session(MemoryStore(), FLOWS[request.param]) as session:
        yield session


async def finish(run: WorkflowRun) -> Any:
    while (gate := await run.next_gate()) is not None:
        await run.answer("approve", gate.gate_id)
    return await asyncio.wait_for(run.wait(), 10)


def request_paths(session: Session, run: WorkflowRun) -> list[str]:
    return sorted(request_seqs(body_events(session.engine.store.events(run.run_id))))


@pytest.mark.parametrize("label", [None, "mine"])
async def test_a_fork_at_any_request_completes_like_its_source(session: Session, label: str | None) -> None:
    run = await session.start("flow", "tea", label=label)
    result = await finish(run)
    paths = request_paths(session, run)
    assert any(path.endswith("~response") for path in paths)
    for path in paths:
        fork = await session.fork(run.run_id, at=path)
        assert await finish(fork) == result, path
        await assert_replays(fork)
        assert await finish(await session.fork(fork.run_id, at=path)) == result, path


async def test_a_fork_with_another_input_gives_the_result_of_a_run_with_that_input(session: Session) -> None:
    run = await session.start("flow", "tea")
    await finish(run)
    expected = await finish(await session.start("flow", "coffee"))
    fork = await session.fork(run.run_id, input="coffee")
    assert await finish(fork) == expected
    await assert_replays(fork)


async def test_another_input_of_an_agent_reaches_the_result_of_the_fork(session: Session) -> None:
    run = await session.start("flow", "tea")
    await finish(run)
    for path in request_paths(session, run):
        if path.rpartition("/")[2].partition("[")[0] in ("writer", "editor"):
            fork = await session.fork(run.run_id, at=path, input="milk")
            assert "milk" in str(await finish(fork)), path


class LoggedStore(MemoryStore):
    """A store that can be copied as it was after any of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Sequence[Append]] = []

    def append(self, batch: Sequence[Append], timeout: float = 0.0) -> Any:
        self.batches.append(batch)
        return super().append(batch, timeout)

    def copy_after(self, count: int) -> MemoryStore:
        store = MemoryStore()
        for batch in self.batches[:count]:
            store.append(batch)
        return store


@pytest.mark.parametrize("name", FLOWS)
async def test_a_fork_completes_alike_if_the_process_ends_after_any_of_its_writes(name: str) -> None:
    store = LoggedStore()
    async with open_session(store, FLOWS[name]) as session:
        run = await session.start("flow", "tea")
        result = await finish(run)
        for path in request_paths(session, run):
            before = len(store.batches)
            fork = await session.fork(run.run_id, at=path)
            await finish(fork)
            for count in range(before + 1, len(store.batches)):
                async with open_session(store.copy_after(count), FLOWS[name]) as rebuilt:
                    await rebuilt.recover()
                    again = rebuilt.get_workflow_run(fork.run_id)
                    assert again is not None
                    assert await finish(again) == result, path
                    copied = [event.path for event in again.events if event.event_type == "facts_copied"]
                    assert len(copied) == len(set(copied))


async def test_a_retry_asks_an_agent_again_whose_response_was_an_error() -> None:
    store, is_ready = MemoryStore(), False

    def answer(context: Any) -> str:
        if not is_ready:
            raise ValueError("not yet")
        return f"<{context.input}>"

    async with Session("s", store) as session:
        for name in ("writer", "editor"):
            FunctionNode(name, session, answer)
        session.load(STATES)
        run = await session.start("flow", "tea")
        with pytest.raises(Exception, match="not yet"):
            await finish(run)
        is_ready = True
        assert await finish(await session.retry(run.run_id)) == "<Correct: <Write about tea.>>"
