"""Decisions on a held run: only a step in doubt can be decided."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import at_gate, counted, types, until, within
from nerve import Session, WorkflowRun
from nerve.core.json_codec import encode_json
from nerve.errors import Conflict, RunHeld
from nerve.store.port import Append, EventRow

pytestmark = pytest.mark.local("restarts with other code; Temporal needs another build for that")


def make_body(emits: bool = True, given: int = 1, prompt: str = "Go?") -> Any:
    """A body that emits an event, runs a step and opens a gate, or does one of these differently."""

    async def body(ctx):
        if emits:
            ctx.emit("searched", {"n": 1})
        first = await ctx.run("a", given)
        answer = await ctx.gate(prompt)
        return [first.output, answer, (await ctx.run("a", 9)).output]

    return body


def opened(file: Path, body: Any) -> Session:
    session = Session("test", file)
    counted(session, "a")
    session.workflow(body, id="body")
    return session


async def taken_up(session: Session) -> WorkflowRun:
    await session.recover()
    (info,) = session.list_workflow_runs()
    found = session.get_workflow_run(info.run_id)
    assert found is not None
    return found


async def answered(file: Path) -> None:
    """Leave a run that has an answer and has not continued."""
    async with opened(file, make_body()) as session:
        run = await session.start("body")
        await at_gate(run)
    async with opened(file, make_body()) as session:
        run = await taken_up(session)
        await run.pause()
        await run.answer("yes")


def written_beside(run: WorkflowRun, type: str, path: str, settles: str | None, data: str) -> None:
    """Append an event that the executor of the run does not know."""
    last = run.events[-1].seq
    row = EventRow(last + 1, time.time(), type, path, settles, data)
    assert list(run.workflow.session.engine.store.append([Append(run.run_id, last, [row])])) == [None]


CHANGES = {"/": make_body(emits=False), "/a": make_body(given=2), "/gate": make_body(prompt="Really?")}


@pytest.mark.parametrize("decision", ["skip", "fail", "retry"])
@pytest.mark.parametrize("place", CHANGES)
async def test_a_mismatch_cannot_be_decided_and_the_error_names_the_options(
    file: Path, place: str, decision: str
) -> None:
    await answered(file)
    async with opened(file, CHANGES[place]) as session:
        run = await taken_up(session)
        await run.resume()
        with pytest.raises(RunHeld, match="mismatch"):
            await within(run.wait())
        assert run.held["path"] == place.rstrip("/")
        await until(lambda: "workflow_held" in types(run))
        before = types(run)
        with pytest.raises(RuntimeError) as caught:
            await getattr(run, decision)(place)
        for part in (f"Cannot {decision} '{place}'", "mismatch", "Restore the code and resume the run"):
            assert part in str(caught.value)
        assert (types(run), run.state.value) == (before, "held")
    async with opened(file, make_body()) as session:
        run = await taken_up(session)
        await run.resume()
        assert await within(run.wait()) == [1, "yes", 9]


async def test_a_retry_without_a_path_resumes_and_records_no_step(file: Path) -> None:
    await answered(file)
    async with opened(file, CHANGES["/gate"]) as session:
        run = await taken_up(session)
        await run.resume()
        with pytest.raises(RunHeld, match="mismatch"):
            await within(run.wait())
    async with opened(file, make_body()) as session:
        run = await taken_up(session)
        await run.retry()
        assert await within(run.wait()) == [1, "yes", 9]
        assert "node_retrying" not in types(run)


async def test_a_journal_that_settles_an_unknown_request_can_be_resumed(file: Path) -> None:
    await answered(file)
    async with opened(file, make_body()) as session:
        run = await taken_up(session)
        decided = {"node_id": "/ searched", "success": True, "result": {"success": True, "output": 1}}
        data = encode_json(decided | {"decided": "skip"})
        written_beside(run, "node_completed", "/ searched", "/ searched", data)
        await run.resume()
        assert await within(run.wait()) == [1, "yes", 9]


async def test_a_run_with_a_write_conflict_is_held_and_continues_when_resumed(file: Path) -> None:
    async with opened(file, make_body()) as session:
        run = await session.start("body")
        await at_gate(run)
        written_beside(run, "node_retrying", "/a", None, encode_json({"attempt": 1, "delay": 0.0}))
        with pytest.raises(Conflict):
            await run.answer("no")
        with pytest.raises(RunHeld) as caught:
            await within(run.wait())
        assert caught.value.reason == "conflict"
        assert caught.value.message.endswith(
            " exists: the journal already has 6 events. Later events of the run are not written."
            " Resume the run to continue from its journal."
        )
        await run.resume()
        await at_gate(run)
        await run.answer("yes")
        assert await within(run.wait()) == [1, "yes", 9]
