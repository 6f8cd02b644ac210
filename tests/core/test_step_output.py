# ruff: noqa: T201
"""What functions print and log while they run as steps: events of the step, limited, never the result."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from nerve import ExecutionContext, FunctionNode, Retry, Session, WorkflowEvent
from nerve.core.step_output import MAX_OUTPUT_CHARS, capture_standard_streams
from nerve.core.workflow import WorkflowContext, WorkflowRun

log = logging.getLogger("shop.cards")


@contextmanager
def streams_of_a_command() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Standard streams as those of a command; text outside of steps is in the two that are returned."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), capture_standard_streams(redirect_stdout=True):
        yield out, err


async def run_steps(
    session: Session, *functions: Callable[[ExecutionContext], Any], together: bool = False
) -> WorkflowRun[Any]:
    for function in functions:
        FunctionNode(function.__name__, session, function)

    @session.workflow
    async def work(ctx: WorkflowContext) -> Any:
        calls = [ctx.run(function.__name__) for function in functions]
        if together:
            await asyncio.gather(*calls)
            return
        for call in calls:
            await call

    run = await session.start("work")
    await run.wait()
    return run


def printed(run: WorkflowRun[Any], path: str, stream: str = "stdout") -> str:
    chunks = [event.data for event in run.events if event.event_type == "output_chunk" and event.path == path]
    assert all(chunk["printed"] is True for chunk in chunks)
    return "".join(chunk["text"] for chunk in chunks if chunk["stream"] == stream)


def logged(run: WorkflowRun[Any]) -> list[tuple[str, str, str]]:
    records = [event.data for event in run.events if event.event_type == "log"]
    return [(data["level"], data["logger"], data["message"]) for data in records]


async def test_prints_of_sync_and_async_functions_are_events_of_their_step() -> None:
    def in_thread(context: ExecutionContext) -> None:
        print("from a thread")
        print("with an error", file=sys.stderr)

    async def on_loop(context: ExecutionContext) -> None:
        print("from", end=" ")
        sys.stdout.writelines(["the ", "loop\n"])

    with streams_of_a_command() as streams:
        async with Session() as session:
            run = await run_steps(session, in_thread, on_loop)
    assert printed(run, "/in_thread") == "from a thread\n"
    assert printed(run, "/in_thread", "stderr") == "with an error\n"
    assert printed(run, "/on_loop") == "from the loop\n"
    assert [stream.getvalue() for stream in streams] == ["", ""]
    types = [event.event_type for event in run.events if event.path == "/on_loop"]
    assert types == ["node_started", "output_chunk", "node_completed"]


async def test_tasks_and_threads_of_a_step_belong_to_it() -> None:
    async def spread(context: ExecutionContext) -> None:
        async def in_task() -> None:
            print("task")

        await asyncio.create_task(in_task())
        await asyncio.to_thread(print, "thread")

    with streams_of_a_command():
        async with Session() as session:
            run = await run_steps(session, spread)
    assert printed(run, "/spread") == "task\nthread\n"


async def test_steps_that_run_together_keep_their_prints_apart() -> None:
    def talker(name: str) -> Callable[[ExecutionContext], Awaitable[None]]:
        async def talk(context: ExecutionContext) -> None:
            for number in range(5):
                print(name, number)
                await asyncio.sleep(0)

        talk.__name__ = name
        return talk

    with streams_of_a_command():
        async with Session() as session:
            run = await run_steps(session, talker("a"), talker("b"), together=True)
    for name in ("a", "b"):
        assert printed(run, f"/{name}") == "".join(f"{name} {number}\n" for number in range(5))


async def test_prints_outside_of_steps_go_to_standard_error() -> None:
    with streams_of_a_command() as streams:
        async with Session() as session:

            @session.workflow
            async def talk(ctx: WorkflowContext) -> None:
                print("body")

            await (await session.start("talk")).wait()
    assert [stream.getvalue() for stream in streams] == ["", "body\n"]


async def test_a_program_keeps_its_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    stream = sys.stdout

    def talk(context: ExecutionContext) -> None:
        assert sys.stdout is stream
        print("mine")

    async with Session() as session:
        run = await run_steps(session, talk)
    assert capsys.readouterr().out == "mine\n"
    assert printed(run, "/talk") == ""


async def test_output_is_recorded_while_the_step_runs() -> None:
    finish = asyncio.Event()

    async def talk(context: ExecutionContext) -> None:
        print("half", end="")
        await finish.wait()

    def see(event: WorkflowEvent) -> None:
        if event.event_type == "output_chunk":
            assert event.data["text"] == "half"
            finish.set()

    with streams_of_a_command():
        async with Session() as session:
            FunctionNode("talk", session, talk)

            @session.workflow
            async def work(ctx: WorkflowContext) -> None:
                await ctx.run("talk")

            async with asyncio.timeout(30):
                await (await session.start("work", event_sink=see)).wait()


async def test_a_chatty_step_does_not_flood_the_journal() -> None:
    def shout(context: ExecutionContext) -> None:
        for _ in range(100):
            for _ in range(1000):
                print("x" * 9)
            log.warning("again")

    with streams_of_a_command():
        async with Session() as session:
            run = await run_steps(session, shout)
    chunks = [event for event in run.events if event.event_type == "output_chunk"]
    assert len(printed(run, "/shout")) <= MAX_OUTPUT_CHARS
    assert printed(run, "/shout", "stderr").endswith(" more characters omitted]\n")
    assert len(run.events) < 500
    assert len(chunks) < 400


async def test_every_attempt_has_its_own_output() -> None:
    attempts: list[int] = []

    def fail_once(context: ExecutionContext) -> None:
        attempts.append(1)
        print("attempt", len(attempts))
        if len(attempts) == 1:
            raise OSError("once")

    with streams_of_a_command():
        async with Session() as session:
            FunctionNode("fail_once", session, fail_once, retry=Retry(2, delay=0))

            @session.workflow
            async def work(ctx: WorkflowContext) -> None:
                await ctx.run("fail_once")

            run = await session.start("work")
            await run.wait()
    types = [event.event_type for event in run.events if event.path == "/fail_once"]
    assert types == ["node_started", "output_chunk", "node_retrying", "output_chunk", "node_completed"]


async def test_a_thread_that_outlives_its_step_prints_on_standard_error() -> None:
    finish, finished = threading.Event(), threading.Event()

    def hang(context: ExecutionContext) -> None:
        finish.wait()
        print("late")
        finished.set()

    with streams_of_a_command() as streams:
        async with Session() as session:
            FunctionNode("hang", session, hang, timeout=0.01)

            @session.workflow
            async def work(ctx: WorkflowContext) -> None:
                with pytest.raises(TimeoutError):
                    await ctx.run("hang")

            run = await session.start("work")
            await run.wait()
            finish.set()
            assert await asyncio.to_thread(finished.wait, 30)
    assert streams[1].getvalue() == "late\n"
    assert printed(run, "/hang") == ""


# -- log records ---------------------------------------------------------------------------------------


async def test_log_records_of_a_step_are_recorded_in_every_program() -> None:
    def charge(context: ExecutionContext) -> None:
        log.warning("card %s expires", 42)
        log.debug("below the level")
        try:
            raise LookupError("no card")
        except LookupError:
            log.exception("charging failed")

    async with Session() as session:
        run = await run_steps(session, charge)
    (first, second) = logged(run)
    assert first == ("warning", "shop.cards", "card 42 expires")
    assert second[:2] == ("error", "shop.cards")
    assert second[2].startswith("charging failed\nTraceback (most recent call last):\n")
    assert second[2].endswith("LookupError: no card")


async def test_log_records_reach_the_handlers_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    handlers = list(logging.getLogger().handlers)

    def charge(context: ExecutionContext) -> None:
        log.warning("once")
        assert logging.getLogger().handlers == handlers

    async with Session() as session:
        await run_steps(session, charge)
    assert [record.getMessage() for record in caplog.records] == ["once"]


async def test_a_record_that_a_handler_prints_is_recorded_once() -> None:
    handler = logging.StreamHandler()

    def charge(context: ExecutionContext) -> None:
        handler.setStream(sys.stderr)
        log.warning("once")

    log.addHandler(handler)
    try:
        with streams_of_a_command():
            async with Session() as session:
                run = await run_steps(session, charge)
    finally:
        log.removeHandler(handler)
    assert logged(run) == [("warning", "shop.cards", "once")]
    assert printed(run, "/charge", "stderr") == ""


async def test_a_record_with_wrong_arguments_does_not_fail_the_step() -> None:
    def charge(context: ExecutionContext) -> None:
        message = "card %d"
        log.makeRecord(log.name, logging.ERROR, "", 1, message, ("x",), None)

    async with Session() as session:
        run = await run_steps(session, charge)
    ((_, _, message),) = logged(run)
    assert message.startswith("card %d (")


async def test_records_of_nerve_and_outside_of_steps_are_not_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def charge(context: ExecutionContext) -> None:
        logging.getLogger("nerve").warning("own")

    async with Session() as session:
        run = await run_steps(session, charge)
        log.warning("outside")
    assert logged(run) == []


async def test_replay_ignores_the_output_of_steps(tmp_path: Path) -> None:
    words = ["first", "second"]

    def talk(context: ExecutionContext) -> None:
        print(words[0])
        log.warning("said")

    def create_session() -> Session:
        session = Session(store=tmp_path / "nerve.db")
        FunctionNode("talk", session, talk)

        @session.workflow
        async def work(ctx: WorkflowContext) -> Any:
            await ctx.run("talk")
            return await ctx.gate("Go on?")

        return session

    with streams_of_a_command():
        async with create_session() as session:
            run = await session.start("work")
            while run.pending_gate is None:
                await run.wait_for_change()
        words.pop(0)
        async with create_session() as session:
            (run,) = await session.recover()
            await run.answer("yes")
            assert await run.wait() == "yes"
            assert printed(run, "/talk") == "first\n"
            assert logged(run) == [("warning", "shop.cards", "said")]
