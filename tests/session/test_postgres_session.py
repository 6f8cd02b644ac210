"""A session whose runs are in PostgreSQL, and what becomes of them when it loses the session."""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from nerve import BashNode, ExecutionContext, FunctionNode, Session
from nerve.core.workflow import WorkflowContext, WorkflowState
from nerve.errors import StoreInUse, StoreUnreachable
from nerve.store import postgres_ownership
from nerve.store.postgres import PostgresStore
from postgresql_server import PostgresqlServer


def register(session: Session) -> list[int]:
    """Register a workflow that executes three steps and asks; return the steps that were executed."""
    executed: list[int] = []

    async def count(context: ExecutionContext) -> object:
        executed.append(context.input)
        return context.input

    FunctionNode("count", session, count)

    @session.workflow
    async def ask(ctx: WorkflowContext) -> object:
        results = [await ctx.run("count", number) for number in range(3)]
        return [*(result.output for result in results), await ctx.gate("Continue?")]

    return executed


async def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_run_continues_in_another_process_without_a_repeated_step(postgresql_url: str) -> None:
    async with Session(store=postgresql_url) as first:
        executed = register(first)
        run = await first.start("ask", key="one")
        gate = await run.next_gate()
        assert executed == [0, 1, 2]
    async with Session(store=postgresql_url) as second:
        repeated = register(second)
        [recovered] = await second.recover()
        assert (await recovered.next_gate()).gate_id == gate.gate_id
        await recovered.answer("yes")
        assert await recovered.wait() == [0, 1, 2, "yes"]
        assert (await second.start("ask", key="one")).run_id == run.run_id
        assert repeated == []


async def test_a_session_that_another_process_owns_is_in_use(postgresql_url: str) -> None:
    with closing(PostgresStore(postgresql_url)):
        with pytest.raises(StoreInUse):
            _ = Session(store=postgresql_url).engine
        async with Session("other", store=postgresql_url) as other:
            register(other)
            await (await other.start("ask")).next_gate()


async def test_the_processes_of_an_owner_that_was_replaced_are_ended(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_ownership, "RENEWAL_INTERVAL_S", 0.05)
    async with Session(store=postgresql_url, project=tmp_path) as session:
        BashNode("sleep", session, "echo $$ > pid; exec sleep 600", cwd=str(tmp_path))

        @session.workflow
        async def long(ctx: WorkflowContext) -> object:
            return await ctx.run("sleep")

        lost: list[object] = []
        session.engine.ownership_watchers.append(lost.append)
        run = await session.start("long")
        await wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        with psycopg.connect(postgresql_url) as db:
            db.execute("UPDATE nerve.owners SET epoch = epoch + 1, owner = 'another'")
        await wait_until(lambda: not Path(f"/proc/{pid}").exists())
        assert len(lost) == 1
        assert run.state is WorkflowState.HELD
        assert "taken over the session" in str(run.held)
        with pytest.raises(Exception, match="taken over"):
            await session.start("long")


async def test_a_run_is_held_while_the_server_is_away_and_continues_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nerve.engine.group_commit.COMMIT_PATIENCE_S", 0.2)
    with PostgresqlServer() as server:
        async with Session(store=server.create_database()) as session:
            executed = register(session)
            run = await session.start("ask")
            await run.next_gate()
            server.stop()
            with pytest.raises(StoreUnreachable, match="cannot be reached"):
                await run.answer("lost")
            assert run.state is WorkflowState.HELD
            server.start()
            await run.resume()
            await run.next_gate()
            await run.answer("kept")
            assert await run.wait() == [0, 1, 2, "kept"]
            assert executed == [0, 1, 2]


@pytest.mark.parametrize("restarts", [3, pytest.param(100, marks=pytest.mark.full)])
async def test_no_answer_is_lost_or_given_twice_while_the_server_restarts(restarts: int) -> None:
    with PostgresqlServer() as server:
        async with Session(store=server.create_database()) as session:
            register(session)
            count, is_finished = 0, False

            async def answer_runs() -> None:
                nonlocal count
                while not is_finished or count < 10:
                    run = await session.start("ask", key=f"run-{count}")
                    await run.next_gate()
                    await run.answer(str(count))
                    assert await run.wait() == [0, 1, 2, str(count)]
                    count += 1

            answering = asyncio.create_task(answer_runs())
            for number in range(restarts):
                await wait_until(lambda before=count: count > before)
                server.kill() if number % 2 else server.stop()
                server.start()
            is_finished = True
            await answering
            assert session.engine.store.count_runs("default") == {"completed": count}
            for row in session.engine.store.runs():
                answers = [e for e in session.engine.store.events(row.run) if e.type == "gate_answered"]
                assert len(answers) == 1
