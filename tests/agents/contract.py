"""Tests that every provider must pass: the agent program is real, its API is a stub.

Subclass `ProviderContract` and define the fixtures `provider` and `stub`; the stub follows the orders of
`agents.stubs.steer`. Tests of features that the capabilities exclude are skipped.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from core.workflow.support import within
from nerve import Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.agents.permissions import Permissions
from nerve.agents.provider import (
    AssistantText,
    Capabilities,
    Chunk,
    PermissionDecision,
    PermissionRequest,
    Provider,
    QueryOptions,
    Reasoning,
    ThreadStarted,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnUsage,
)
from nerve.agents.turn_output import MAX_OUTPUT_CHARS
from nerve.core.workflow import WorkflowRun
from nerve.errors import NodeFailed
from process.seen import TAG, eventually, pids, read, tagged

SECRET = "NERVE_TEST_SECRET"
WIDE = 'Zeilenende\u2028hier, \u00fc, \U0001f426 and\nlines\r\nof a \\ "prompt"; '


async def allow(permission: PermissionRequest) -> PermissionDecision:
    return PermissionDecision(True)


class Judged:
    """Decides by a policy, and allows every request that the policy asks about."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.permissions = Permissions.of(policy)
        self.asked: list[PermissionRequest] = []
        self.options = {"ask": self.decide, "permissions": self.permissions}

    async def decide(self, wanted: PermissionRequest) -> PermissionDecision:
        self.asked.append(wanted)
        return PermissionDecision(
            self.permissions.verdict(wanted.tool, wanted.input, wanted.cwd) != "deny", "no"
        )


class ProviderContract:
    processes: ClassVar[bool] = True
    """Whether a program is started: the tests inspect its processes, environment and arguments."""
    streams: ClassVar[bool] = True
    """Whether messages are streamed in parts."""
    shell: ClassVar[bool] = True
    """Whether the agent has a tool that runs a command."""
    thinks: ClassVar[bool] = False
    allowed: ClassVar[Sequence[str]] = ()
    """Names for `QueryOptions.tools` that allow the shell; empty skips the test."""
    engine_secret: ClassVar[str] = "not for agents"

    # -- fixtures ----------------------------------------------------------------------------------

    @pytest.fixture
    def provider(self) -> Provider:
        raise NotImplementedError

    @pytest.fixture
    def stub(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def tag(self) -> str:
        """Return a marker in the environment of the agent's processes, to find them by."""
        return uuid.uuid4().hex

    @pytest.fixture
    def cwd(self, tmp_path: Path) -> Path:
        folder = tmp_path / "work"
        folder.mkdir()
        return folder

    @pytest.fixture
    def options(self, tmp_path: Path, tag: str, provider: Provider) -> QueryOptions:
        """Return settings for a program that has never run: its own home, and the marker."""
        home = tmp_path / "home"
        home.mkdir()
        thread = str(uuid.uuid4()) if provider.capabilities.names_threads else None
        return QueryOptions(env={"HOME": str(home), TAG: tag}, thread=thread)

    @pytest.fixture
    def ask(
        self, provider: Provider, cwd: Path, options: QueryOptions
    ) -> Callable[..., Awaitable[list[Chunk]]]:
        """Query and return every chunk; keywords change the options."""

        async def ask(prompt: str, resume: str | None = None, **changes: Any) -> list[Chunk]:
            changed = replace(options, **{"thread": None if resume else options.thread, **changes})
            async with aclosing(started(provider.query(prompt, str(cwd), resume, changed))) as turn:
                return [chunk async for chunk in turn]

        return ask

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, tag: str) -> Any:
        """Check after every test that no process of the agent is left."""
        yield
        deadline = time.monotonic() + 5
        while self.processes and tagged(tag):
            assert time.monotonic() < deadline, f"left behind: {[command(pid) for pid in tagged(tag)]}"
            time.sleep(0.01)

    # -- answers -----------------------------------------------------------------------------------

    async def test_an_answer_ends_with_turn_finished(self, ask: Any) -> None:
        chunks = await ask("[[say hello there]]")
        assert text(chunks) == "hello there"
        assert done(chunks).outcome == "completed"
        assert done(chunks).error == ""
        assert [chunk for chunk in chunks if isinstance(chunk, TurnFinished)] == chunks[-1:]

    async def test_the_thread_is_known_before_any_output(
        self, ask: Any, provider: Provider, options: QueryOptions
    ) -> None:
        needs(provider.capabilities, "resume")
        chunks = await ask("[[say hello]]")
        assert isinstance(chunks[0], ThreadStarted)
        assert done(chunks).thread == chunks[0].thread != ""
        assert len([chunk for chunk in chunks if isinstance(chunk, ThreadStarted)]) == 1
        if provider.capabilities.names_threads:
            assert chunks[0].thread == options.thread

    async def test_partial_messages_precede_and_add_up_to_the_message(self, ask: Any) -> None:
        if not self.streams:
            pytest.skip("it does not stream")
        chunks = await ask("[[say one two three four]]")
        said = [chunk for chunk in chunks if isinstance(chunk, AssistantText)]
        assert [chunk.partial for chunk in said] == [True] * (len(said) - 1) + [False]
        assert "".join(chunk.content for chunk in said[:-1]) == said[-1].content == "one two three four"
        assert len(said) > 2

    async def test_reasoning_is_separate_from_the_answer(self, ask: Any) -> None:
        if not self.thinks:
            pytest.skip("it shows no thoughts")
        chunks = await ask("[[think of herons]]")
        assert "".join(chunk.content for chunk in chunks if isinstance(chunk, Reasoning)) == "of herons"
        assert text(chunks) == "thought"

    async def test_a_long_prompt_of_any_characters_arrives_unchanged(self, ask: Any, stub: Any) -> None:
        prompt = WIDE * 5000
        assert len(prompt.encode()) > 200_000
        chunks = await ask(prompt)
        assert done(chunks).outcome == "completed"
        assert any(prompt.strip() in said for heard in stub.heard for said in strings(heard.body))

    async def test_a_prompt_that_looks_like_an_option_is_a_prompt(self, ask: Any) -> None:
        chunks = await ask("--version")
        assert text(chunks) == "heard: --version"

    async def test_two_concurrent_conversations_do_not_mix(self, ask: Any, provider: Provider) -> None:
        def name() -> str | None:
            return str(uuid.uuid4()) if provider.capabilities.names_threads else None

        one, two = await asyncio.gather(
            ask("[[say first]]", thread=name()), ask("[[say second]]", thread=name())
        )
        assert (text(one), text(two)) == ("first", "second")

    async def test_an_answer_that_is_too_long_is_shortened_with_a_warning(
        self, provider: Provider, cwd: Path, options: QueryOptions
    ) -> None:
        run = await start_agent(provider, cwd, options, f"[[long {MAX_OUTPUT_CHARS + 5}]]")
        result = await within(run.wait(), 60)
        assert len(result["output"]) == MAX_OUTPUT_CHARS
        assert result["attributes"]["dropped_characters"] == 5
        logs = [event.data for event in run.events if event.event_type == "log"]
        assert any("longer than 1,000,000 characters" in log["message"] for log in logs)

    # -- tools and permissions ---------------------------------------------------------------------

    async def test_a_tool_call_and_its_outcome_are_emitted(self, ask: Any, cwd: Path) -> None:
        self.needs_shell()
        chunks = await ask("[[run echo made > made.txt; echo it ran]]", ask=allow)
        call = next(chunk for chunk in chunks if isinstance(chunk, ToolCall))
        updates = [chunk for chunk in chunks if isinstance(chunk, ToolUpdate)]
        assert "made.txt" in str(call.input)
        assert {update.id for update in updates} == {call.id} != {""}
        assert updates[-1].status == "completed"
        assert "it ran" in updates[-1].output
        assert chunks.index(call) < chunks.index(updates[0])
        assert (cwd / "made.txt").read_text() == "made\n"
        assert "it ran" in text(chunks)
        assert done(chunks).outcome == "completed"

    async def test_a_tool_that_fails_does_not_fail_the_turn(self, ask: Any) -> None:
        self.needs_shell()
        chunks = await ask("[[run echo oh no; exit 3]]", ask=allow)
        assert [chunk.status for chunk in chunks if isinstance(chunk, ToolUpdate)][-1] == "failed"
        assert done(chunks).outcome == "completed"

    async def test_a_permission_request_may_wait(self, ask: Any, provider: Provider, cwd: Path) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")
        requests: list[PermissionRequest] = []
        answered = asyncio.Event()

        async def think_about_it(permission: PermissionRequest) -> PermissionDecision:
            requests.append(permission)
            await answered.wait()
            return PermissionDecision(True)

        turn = asyncio.create_task(ask("[[run touch allowed.txt]]", ask=think_about_it))
        await eventually(lambda: requests or turn.done())
        assert not (cwd / "allowed.txt").exists()
        assert not turn.done()
        answered.set()
        assert done(await turn).outcome == "completed"
        assert (cwd / "allowed.txt").exists()
        assert len(requests) == 1
        assert "touch allowed.txt" in str(requests[0].input)

    async def test_a_tool_that_is_denied_does_not_run(
        self, ask: Any, provider: Provider, cwd: Path, stub: Any
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")

        async def refuse(permission: PermissionRequest) -> PermissionDecision:
            return PermissionDecision(False, "not on a Sunday")

        chunks = await ask("[[run touch denied.txt]]", ask=refuse)
        assert not (cwd / "denied.txt").exists()
        assert [chunk.status for chunk in chunks if isinstance(chunk, ToolUpdate)][-1] == "failed"
        assert done(chunks).outcome in ("completed", "interrupted")

    async def test_a_request_without_a_decider_is_denied(
        self, ask: Any, provider: Provider, cwd: Path
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")
        await ask("[[run touch denied.txt]]")
        assert not (cwd / "denied.txt").exists()

    async def test_a_request_whose_decider_fails_is_denied(
        self, ask: Any, provider: Provider, cwd: Path
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")

        async def broken(permission: PermissionRequest) -> PermissionDecision:
            raise LookupError("no such gate")

        with pytest.raises(LookupError, match="no such gate"):
            await ask("[[run touch denied.txt]]", ask=broken)
        assert not (cwd / "denied.txt").exists()

    async def test_an_allowed_tool_needs_no_permission_request(self, ask: Any, cwd: Path) -> None:
        self.needs_shell()
        if not self.allowed:
            pytest.skip("it has no list of allowed tools")
        chunks = await ask("[[run touch allowed.txt]]", tools=list(self.allowed))
        assert done(chunks).outcome == "completed"
        assert (cwd / "allowed.txt").exists()

    @pytest.mark.parametrize("policy", [{"deny": ["*(touch *)"]}, {"otherwise": "deny"}])
    async def test_the_policy_denies_a_tool_that_the_program_would_allow(
        self, policy: dict[str, Any], ask: Any, provider: Provider, cwd: Path
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")
        judge = Judged(policy)
        tools = list(self.allowed) if "deny" in policy else None
        chunks = await ask("[[run true; touch denied.txt]]", **judge.options, tools=tools)
        assert done(chunks).outcome == "completed"
        assert not (cwd / "denied.txt").exists()
        assert [wanted.cwd or str(cwd) for wanted in judge.asked] == [str(cwd)]

    @pytest.mark.parametrize("policy", [{"ask": ["*(touch *)"]}, {"otherwise": "ask"}])
    async def test_the_policy_asks_once_about_a_tool_that_the_program_would_allow(
        self, policy: dict[str, Any], ask: Any, provider: Provider, cwd: Path
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")
        judge = Judged(policy)
        tools = list(self.allowed) if "ask" in policy else None
        chunks = await ask("[[run true; touch asked.txt]]", **judge.options, tools=tools)
        assert done(chunks).outcome == "completed"
        assert (cwd / "asked.txt").exists()
        assert ["touch asked.txt" in str(wanted.input) for wanted in judge.asked] == [True]

    # -- conversations -----------------------------------------------------------------------------

    async def test_a_resumed_thread_continues_where_it_was(self, ask: Any, provider: Provider) -> None:
        needs(provider.capabilities, "resume")
        first = await ask("[[say noted]] the bird is a heron")
        second = await ask("which bird?", resume=done(first).thread)
        assert "the bird is a heron" in text(second)
        assert done(second).thread == done(first).thread
        third = await ask("and now?", resume=done(first).thread)
        assert "the bird is a heron" in text(third)
        assert "which bird?" in text(third)

    async def test_an_unknown_thread_is_not_started_again(self, ask: Any, provider: Provider) -> None:
        needs(provider.capabilities, "resume")
        try:
            chunks = await ask("[[say hello]]", resume=str(uuid.uuid4()))
        except Exception:
            return  # the provider may raise instead
        assert done(chunks).outcome == "failed"
        assert done(chunks).error

    async def test_a_fork_leaves_the_original_unchanged(self, ask: Any, provider: Provider) -> None:
        needs(provider.capabilities, "fork")
        first = await ask("[[say noted]] the bird is a heron")
        fork = await ask("[[say noted]] a fork", resume=done(first).thread, fork=True)
        assert done(fork).thread != done(first).thread
        original = await ask("what?", resume=done(first).thread)
        copy = await ask("what?", resume=done(fork).thread)
        assert "a fork" not in text(original)
        assert "a fork" in text(copy)
        assert "heron" in text(original)
        assert "heron" in text(copy)

    async def test_usage_covers_the_turn_and_not_the_thread(self, ask: Any, provider: Provider) -> None:
        needs(provider.capabilities, "resume")
        first = done(await ask("[[say one]]"))
        second = done(await ask("[[say one]]", resume=first.thread, totals=first.totals))
        third = done(await ask("[[say one]]", resume=first.thread, totals=second.totals))
        used = [usage(end) for end in (first, second, third)]
        for turn in used:
            assert turn.input_tokens
            assert turn.output_tokens
            assert (turn.input_tokens, turn.output_tokens) == (used[0].input_tokens, used[0].output_tokens)
            if provider.capabilities.cost:
                assert turn.cost == pytest.approx(used[0].cost)
                assert turn.cost

    async def test_a_steering_message_is_received_during_a_turn(
        self, provider: Provider, cwd: Path, options: QueryOptions
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "steer")
        words: asyncio.Queue[str] = asyncio.Queue()
        steered = replace(options, steering=words, ask=allow)
        chunks: list[Chunk] = []
        prompt = "[[run until test -e go; do sleep 0.1; done]]"
        async with aclosing(started(provider.query(prompt, str(cwd), None, steered))) as turn:
            async for chunk in turn:
                chunks.append(chunk)
                if isinstance(chunk, ToolCall):
                    words.put_nowait("look at the heron too")
                    await eventually(words.empty)
                    (cwd / "go").touch()
        assert done(chunks).outcome == "completed"
        assert "look at the heron too" in text(chunks)

    # -- interruption ------------------------------------------------------------------------------

    async def test_closing_during_output_ends_the_agent(
        self, ask: Any, provider: Provider, cwd: Path, options: QueryOptions, stub: Any, tag: str
    ) -> None:
        turn = started(provider.query("[[hold]] about a heron", str(cwd), None, options))
        thread = await self.until_held(turn, stub)
        began = time.monotonic()
        await turn.aclose()
        assert time.monotonic() - began < 30
        assert not tagged(tag)
        await self.goes_on(ask, provider, thread)

    async def test_cancelling_the_task_ends_the_agent(
        self, ask: Any, stub: Any, provider: Provider, tag: str
    ) -> None:
        turn = asyncio.create_task(ask("[[hold]]"))
        await eventually(lambda: stub.holding or turn.done())
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not tagged(tag)

    async def test_closing_during_a_tool_call_ends_the_tool(
        self, ask: Any, provider: Provider, cwd: Path, options: QueryOptions, tag: str
    ) -> None:
        self.needs_shell()
        prompt = "[[run touch begun.txt; tail -f /dev/null; touch finished.txt]]"
        turn = started(provider.query(prompt, str(cwd), None, replace(options, ask=allow)))
        thread = ""

        async def listen() -> None:
            nonlocal thread
            async for chunk in turn:
                thread = chunk.thread if isinstance(chunk, ThreadStarted) else thread

        listening = asyncio.create_task(listen())
        await eventually(lambda: (cwd / "begun.txt").exists() or listening.done())
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await turn.aclose()
        assert not tagged(tag)
        assert not [pid for pid in pids() if os.fsencode(cwd) in os.fsencode(directory(pid))]
        assert not (cwd / "finished.txt").exists()
        await self.goes_on(ask, provider, thread)

    async def test_closing_during_a_permission_request_cancels_it(
        self, ask: Any, provider: Provider, cwd: Path, tag: str
    ) -> None:
        self.needs_shell()
        needs(provider.capabilities, "permissions")
        requests, ended = asyncio.Event(), asyncio.Event()

        async def never(permission: PermissionRequest) -> PermissionDecision:
            requests.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return PermissionDecision(True)

        turn = asyncio.create_task(ask("[[run touch denied.txt]]", ask=never))
        await asyncio.wait_for(requests.wait(), 10)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert ended.is_set()
        assert not tagged(tag)
        assert not (cwd / "denied.txt").exists()

    async def test_a_killed_program_counts_as_crashed_and_its_thread_can_be_resumed(
        self, ask: Any, provider: Provider, cwd: Path, options: QueryOptions, stub: Any, tag: str
    ) -> None:
        if not self.processes:
            pytest.skip("it starts no program")
        turn = started(provider.query("[[hold]] about a heron", str(cwd), None, options))
        thread = await self.until_held(turn, stub)
        for pid in tagged(tag):
            with suppress(ProcessLookupError):  # it may have ended with its parent
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(Exception, match=r"\S") as crashed:
            await until_done(turn)
        assert not isinstance(crashed.value, AssertionError)
        await turn.aclose()
        await self.goes_on(ask, provider, thread)

    async def test_a_program_that_is_killed_in_mid_answer_has_not_said_nothing(
        self, provider: Provider, cwd: Path, options: QueryOptions, tag: str
    ) -> None:
        if not (self.processes and self.streams):
            pytest.skip("it starts no program that streams")
        run = await start_agent(provider, cwd, options, "[[hold]]")
        await eventually(lambda: "wait" in messages_of(run, "partial"))
        for pid in tagged(tag):
            with suppress(ProcessLookupError):  # it may have ended with its parent
                os.kill(pid, signal.SIGKILL)
        try:
            error = (await within(run.wait()))["error"]
        except NodeFailed as failure:
            error = str(failure)
        assert re.search(r"(It had written: …|signal 9: )wait", error)
        assert "wait" in messages_of(run, "assistant")

    # -- failures ----------------------------------------------------------------------------------

    async def test_an_api_error_is_a_failure(self, ask: Any) -> None:
        end = done(await ask("[[error 400]]"))
        assert end.outcome == "failed"
        assert end.error

    @pytest.mark.parametrize("status", [503, 529])
    async def test_an_overloaded_service_is_a_limit_with_the_words_of_the_vendor(
        self, ask: Any, status: int
    ) -> None:
        end = done(await ask(f"[[overloaded {status}]]"))
        assert (end.outcome, "overloaded" in end.error) == ("limited", True), end.error

    async def test_a_used_up_account_is_a_failure_with_the_words_of_the_vendor(self, ask: Any) -> None:
        end = done(await ask("[[exhausted]]"))
        assert end.outcome == "failed"
        assert re.search("billing|credit", end.error, re.IGNORECASE)

    async def test_a_rate_limit_has_a_reset_time(self, ask: Any) -> None:
        before = time.time()
        end = done(await ask("[[limit 3600]]"))
        assert end.outcome == "limited"
        assert end.error
        assert end.resets_at is None or before + 3500 < end.resets_at < time.time() + 3700

    # -- structured answers ------------------------------------------------------------------------

    async def test_an_answer_matches_the_requested_schema(self, ask: Any, provider: Provider) -> None:
        needs(provider.capabilities, "schema")
        schema = {
            "type": "object",
            "properties": {"verdict": {"type": "string"}, "score": {"type": "integer"}},
            "required": ["verdict", "score"],
            "additionalProperties": False,
        }
        chunks = await ask('[[json {"verdict": "good", "score": 3}]]', schema=schema)
        assert done(chunks).outcome == "completed"
        assert done(chunks).structured == {"verdict": "good", "score": 3}

    # -- environment of the program ----------------------------------------------------------------

    async def test_the_program_gets_neither_our_environment_nor_the_prompt_as_an_argument(
        self,
        provider: Provider,
        cwd: Path,
        options: QueryOptions,
        stub: Any,
        tag: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        if not self.processes:
            pytest.skip("it starts no program")
        monkeypatch.setenv(SECRET, self.engine_secret)
        prompt = "[[hold]] a private matter"
        turn = started(provider.query(prompt, str(cwd), None, options))
        await self.until_held(turn, stub)
        processes = tagged(tag)
        assert processes
        for pid in processes:
            assert SECRET.encode() not in read(pid, "environ")
            assert b"private" not in read(pid, "cmdline")
            assert b"private" not in read(pid, "environ")
        await turn.aclose()

    # -- helpers -----------------------------------------------------------------------------------

    def needs_shell(self) -> None:
        if not self.shell:
            pytest.skip("it has no shell")

    async def until_held(self, turn: AsyncIterator[Chunk], stub: Any) -> str:
        """Read chunks until the API blocks, and return the thread id."""
        thread = ""

        async def listen() -> None:
            nonlocal thread
            async for chunk in turn:
                if isinstance(chunk, ThreadStarted):
                    thread = chunk.thread
                if isinstance(chunk, AssistantText):  # the part before the API blocks
                    return

        if self.streams:
            await asyncio.wait_for(listen(), 10)
            return thread
        async for chunk in turn:
            if isinstance(chunk, ThreadStarted):
                await eventually(lambda: stub.holding)
                return chunk.thread
        raise AssertionError("it ended without saying that it began")

    async def goes_on(self, ask: Any, provider: Provider, thread: str) -> None:
        """Check that an interrupted conversation can be resumed, or started if nothing of it was stored.

        Passing its id twice allows a start; a provider that does not choose thread ids cannot do that.
        """
        if provider.capabilities.resume:
            named = thread if provider.capabilities.names_threads else None
            chunks = await ask("[[say going on]]", resume=thread, thread=named)
            assert text(chunks) == "going on"
            assert done(chunks).thread == thread


async def start_agent(provider: Provider, cwd: Path, options: QueryOptions, prompt: str) -> WorkflowRun:
    """Start a run whose only step is the agent."""
    session = Session()
    AgentNode("dev", session, provider, cwd=str(cwd), env=options.env)

    @session.workflow
    async def body(ctx: WorkflowContext) -> Any:
        return await ctx.run("dev", prompt)

    return await session.start("body")


def messages_of(run: WorkflowRun, stream: str) -> str:
    """Return the text of a stream of the run's agent so far."""
    chunks = [event.data for event in run.events if event.event_type == "output_chunk"]
    return "".join(data["text"] for data in chunks if data["stream"] == stream)


def started(turn: AsyncIterator[Chunk]) -> Any:
    """Return the iterator, which for a provider is a generator that can be closed."""
    assert hasattr(turn, "aclose")
    return turn


async def until_done(turn: AsyncIterator[Chunk]) -> None:
    async for chunk in turn:
        assert not isinstance(chunk, TurnFinished), "a program that was killed is not done"


def needs(capabilities: Capabilities, name: str) -> None:
    if not getattr(capabilities, name):
        pytest.skip(f"it cannot: {name}")


def text(chunks: list[Chunk]) -> str:
    """Return the last complete message."""
    return [chunk.content for chunk in chunks if isinstance(chunk, AssistantText) and not chunk.partial][-1]


def done(chunks: list[Chunk]) -> TurnFinished:
    assert chunks, "nothing was said"
    assert isinstance(chunks[-1], TurnFinished), chunks[-1]
    return chunks[-1]


def usage(end: TurnFinished) -> TurnUsage:
    assert isinstance(end.usage, TurnUsage)
    return end.usage


def strings(value: Any) -> list[str]:
    """Return every string in a JSON value."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in value.values() for text in strings(item)]
        case list():
            return [text for item in value for text in strings(item)]
    return []


def command(pid: int) -> str:
    return read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")


def directory(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""
