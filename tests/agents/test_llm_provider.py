"""LlmProvider with the APIs of Anthropic and OpenAI, and a compatible API."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.contract import ProviderContract, done, text, usage
from agents.stubs.anthropic import AnthropicStub
from agents.stubs.chat import ChatStub
from agents.stubs.openai import OpenAIStub
from agents.stubs.server import StubServer
from nerve.agents.llm_provider import LlmProvider
from nerve.agents.provider import HostTool, Provider, QueryOptions, ToolFailed, TurnUsage, Unavailable

pytest.importorskip(
    "pydantic_ai", reason="pydantic-ai is not installed: pip install '.[llm]' in the clone of Nerve"
)
pytest.importorskip(
    "anthropic", reason="anthropic is not installed: pip install '.[llm]' in the clone of Nerve"
)
pytest.importorskip("openai", reason="openai is not installed: pip install '.[llm]' in the clone of Nerve")

KEY = "sk-only-for-a-stub-0123456789"
MCP_SERVER = str(Path(__file__).parent / "stubs" / "mcp_server.py")
WORDS = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
SCHEMA = {"type": "object", "properties": {"bird": {"type": "string"}}, "required": ["bird"]}


class LlmContract(ProviderContract):
    processes = False
    shell = False
    make_stub: Callable[[], StubServer]
    model = ""
    path = ""
    used: TurnUsage

    @pytest.fixture
    def stub(self) -> Iterator[StubServer]:
        with type(self).make_stub() as stub:
            yield stub

    @pytest.fixture
    def provider(self, stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LlmProvider:
        monkeypatch.setenv("STUB_KEY", KEY)
        return LlmProvider(self.model, stub.url + self.path, "STUB_KEY", tmp_path / "threads")

    async def test_the_system_prompt_is_sent_separately_from_user_messages(self, ask: Any, stub: Any) -> None:
        await ask("[[say yes]]", system="You know birds.")
        assert "You know birds." in stub.bodies
        assert text(await ask("[[say yes]]")) == "yes"

    async def test_the_conversation_is_stored_before_the_turn_finishes(
        self, provider: Any, cwd: Path
    ) -> None:
        thread = str(uuid.uuid4())
        path = provider.thread_files.path(thread)
        turn = provider.query("[[say a heron]]", str(cwd), None, QueryOptions(thread=thread))
        seen = [(type(chunk).__name__, path.read_text()) async for chunk in turn]
        assert "[[say a heron]]" in dict(seen)["ThreadStarted"]
        assert "a heron" in json.loads(seen[-1][1])[-1]["parts"][-1]["content"]
        assert path.stat().st_mode & 0o777 == 0o600

    async def test_another_provider_object_resumes_the_thread(
        self, ask: Any, provider: Any, stub: Any, cwd: Path
    ) -> None:
        first = done(await ask("[[say noted]] the bird is a heron"))
        again = LlmProvider(self.model, stub.url + self.path, "STUB_KEY", provider.thread_files.folder)
        said = [chunk async for chunk in again.query("which?", str(cwd), first.thread, QueryOptions())]
        assert "the bird is a heron" in text(said)

    async def test_a_thread_that_was_named_but_not_started_is_started(self, ask: Any) -> None:
        chunks = await ask("[[say hello]]", resume="one", thread="one")
        assert (text(chunks), done(chunks).thread) == ("hello", "one")

    async def test_a_failed_prompt_is_stored_once_when_it_is_retried(
        self, ask: Any, stub: Any, provider: Any
    ) -> None:
        first = done(await ask("[[limit 1]]"))
        again = done(await ask("[[limit 1]]", resume=first.thread))
        assert (first.outcome, again.outcome) == ("limited", "limited")
        assert json.dumps(stub.heard[-1].body).count("[[limit 1]]") == 1
        assert provider.thread_files.path(first.thread).read_text().count("[[limit 1]]") == 1

    async def test_the_client_library_does_not_retry(self, ask: Any, stub: Any) -> None:
        assert done(await ask("[[error 503]]")).outcome == "limited"
        assert done(await ask("[[limit 30]]")).outcome == "limited"
        assert len(stub.heard) == 2

    async def test_the_api_key_appears_in_no_file_and_no_error(
        self, ask: Any, provider: Any, stub: Any
    ) -> None:
        await ask("[[say yes]]")
        assert KEY not in done(await ask("[[error 401]]", thread="other")).error
        assert not [file for file in provider.thread_files.folder.iterdir() if KEY in file.read_text()]
        assert any(KEY in value for value in stub.heard[0].headers.values())

    async def test_cached_tokens_are_counted_separately(self, ask: Any) -> None:
        used = replace(self.used, model=self.model.partition(":")[2])
        assert usage(done(await ask("[[say one]]"))) == used

    async def test_an_unreachable_server_is_a_failure(
        self, provider: Any, cwd: Path, options: QueryOptions
    ) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            provider.base_url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        said = [chunk async for chunk in provider.query("hello", str(cwd), None, options)]
        assert done(said).outcome == "failed"
        assert done(said).error

    # -- tools -------------------------------------------------------------------------------------

    async def test_a_tool_is_called_and_its_result_is_sent(self, ask: Any, provider: Any) -> None:
        called: list[Any] = []

        async def search(arguments: Mapping[str, Any]) -> str:
            called.append(arguments)
            return "two cranes"

        tools = {"search_docs": HostTool("Search.", WORDS, search)}
        chunks = await ask('[[call search_docs {"words": "crane"}]]', host_tools=tools)
        assert text(chunks) == "tool said: two cranes"
        assert called == [{"words": "crane"}]
        used, once = usage(done(chunks)), self.used
        assert (used.input_tokens, used.output_tokens) == (2 * once.input_tokens, 2 * once.output_tokens)
        again = await ask("which?", resume=done(chunks).thread, host_tools=tools)
        assert "crane" in text(again)

    async def test_a_failed_tool_is_told_to_the_model(self, ask: Any) -> None:
        async def search(arguments: Mapping[str, Any]) -> str:
            raise ToolFailed("the manual is lost")

        tools = {"search_docs": HostTool("Search.", WORDS, search)}
        chunks = await ask('[[call search_docs {"words": "crane"}]]', host_tools=tools)
        assert "the manual is lost" in text(chunks)
        assert "Unknown tool 'other'" in text(await ask("[[call other {}]]", host_tools=tools))

    async def test_the_number_of_requests_is_limited(self, ask: Any) -> None:
        async def search(arguments: Mapping[str, Any]) -> str:
            return "nothing"

        tools = {"search_docs": HostTool("Search.", WORDS, search)}
        order = '[[call search_docs {"words": "crane"}]]'
        end = done(await ask(f"{order} {order} {order}", host_tools=tools, max_turns=2))
        assert (end.outcome, end.error) == ("failed", "The agent used its 2 requests")

    async def test_the_tools_of_an_mcp_server_are_offered(self, ask: Any, stub: Any) -> None:
        server = {"command": sys.executable, "args": [MCP_SERVER], "env": {"DOCS_KEY": "a bird"}}
        chunks = await ask('[[call mcp__docs__lookup {"word": "crane"}]]', mcp={"docs": server})
        assert text(chunks) == "tool said: crane means a bird"
        assert "Look a word up." in stub.bodies
        end = done(await ask("hello", mcp={"docs": {"command": "false"}}))
        assert (end.outcome, "MCP server 'docs' cannot be used" in end.error) == ("failed", True)

    async def test_a_turn_that_was_killed_in_a_tool_can_be_continued(
        self, ask: Any, provider: Any, cwd: Path
    ) -> None:
        started = asyncio.Event()

        async def search(arguments: Mapping[str, Any]) -> str:
            started.set()
            await asyncio.sleep(60)
            return ""

        tools = {"search_docs": HostTool("Search.", WORDS, search)}
        options = QueryOptions(host_tools=tools, thread="one")
        turn = provider.query('[[call search_docs {"words": "crane"}]]', str(cwd), None, options)
        reading = asyncio.create_task(anext_all(turn))
        await asyncio.wait_for(started.wait(), 20)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert text(await ask("[[say hello]]", resume="one", thread="one")) == "hello"


async def anext_all(turn: Any) -> None:
    async with aclosing(turn):
        async for _ in turn:
            pass


class TestAnthropic(LlmContract):
    make_stub = AnthropicStub
    model = "anthropic:claude-sonnet-5"
    thinks = True
    used = TurnUsage(100, 7, 20, 10)

    async def test_a_rate_limit_has_its_reset_time(self, ask: Any) -> None:
        before = time.time()
        end = done(await ask("[[limit 3600]]"))
        assert end.resets_at
        assert before + 3599 < end.resets_at < time.time() + 3601
        assert done(await ask("[[limit ]]", thread="other")).resets_at is None

    async def test_the_api_enforces_the_schema_if_it_can(self, ask: Any, stub: Any) -> None:
        await ask('[[json {"bird": "heron"}]]', schema=SCHEMA)
        assert "output_config" in stub.heard[-1].body or "output_format" in stub.heard[-1].body

    async def test_a_model_without_schema_support_is_asked_for_json(self, ask: Any, stub: Any) -> None:
        chunks = await ask(
            '[[say ```json\n{"bird": "heron"}\n```]]', schema=SCHEMA, model="claude-3-haiku-20240307"
        )
        assert done(chunks).structured == {"bird": "heron"}
        assert "JSON Schema" in json.dumps(stub.heard[-1].body["system"])
        assert stub.heard[-1].body["model"] == "claude-3-haiku-20240307"

    async def test_an_answer_that_is_not_json_has_no_structured_value(self, ask: Any) -> None:
        end = done(await ask("[[say a heron]]", schema=SCHEMA))
        assert (end.outcome, end.structured) == ("completed", None)


class TestOpenAI(LlmContract):
    make_stub = OpenAIStub
    model = "openai-responses:gpt-5.2"
    path = "/v1"
    thinks = True
    used = TurnUsage(100, 12, 20, 0)


class TestChat(LlmContract):
    make_stub = ChatStub
    model = "openai:heron:8b"
    path = "/v1"
    thinks = True
    used = TurnUsage(100, 12, 20, 0)

    async def test_a_local_model_needs_no_key(self, stub: Any, tmp_path: Path, cwd: Path) -> None:
        provider = LlmProvider("openai:heron", f"{stub.url}/v1", "NO_SUCH_VARIABLE", tmp_path / "threads")
        assert (
            text([chunk async for chunk in provider.query("[[say yes]]", None, None, QueryOptions())])
            == "yes"
        )

    async def test_a_model_may_have_a_colon_in_its_name(self, ask: Any, stub: Any) -> None:
        await ask("[[say yes]]", model="stork:70b")
        assert stub.heard[-1].body["model"] == "stork:70b"


class Broken(AnthropicStub):
    """Stops during an answer, like a broken connection."""

    stop: Any = None

    def answer(self, heard: Any, reply: Any) -> None:
        reply.start_stream()
        stop = {"stop_reason": self.stop, "stop_sequence": None}
        for event in (
            {"type": "message_start", "message": {**self.message(heard), "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a her"}},
            {"type": "content_block_stop", "index": 0},
            *([{"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}] if self.stop else []),
        ):
            reply.event(event["type"], event)

    def message(self, heard: Any) -> dict[str, Any]:
        used = {"input_tokens": 1, "output_tokens": 1}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": heard.body["model"],
            "usage": used,
        }


@pytest.mark.parametrize(
    ("stop", "why"), [(None, "incomplete"), ("max_tokens", "token limit"), ("refusal", "filter")]
)
async def test_an_incomplete_answer_is_a_failure(stop: Any, why: str, tmp_path: Path) -> None:
    with Broken() as stub:
        stub.stop = stop
        provider = LlmProvider("anthropic:claude-sonnet-5", stub.url, "NO_KEY", tmp_path)
        said = [chunk async for chunk in provider.query("a bird", None, None, QueryOptions(thread="one"))]
    assert done(said).outcome == "failed"
    assert why in done(said).error
    assert [message["kind"] for message in json.loads(provider.thread_files.read("one") or b"")] == [
        "request"
    ]


async def test_a_missing_api_key_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    provider: Provider = LlmProvider("anthropic:claude-sonnet-5", threads=tmp_path)
    with pytest.raises(Unavailable, match="ANTHROPIC_API_KEY"):
        _ = [chunk async for chunk in provider.query("hello", None, None, QueryOptions())]


@pytest.mark.parametrize("model", [None, "claude-sonnet-5", "heron:8b"])
async def test_a_model_without_a_vendor_is_refused(model: str | None, tmp_path: Path) -> None:
    provider = LlmProvider(model, threads=tmp_path)
    with pytest.raises(ValueError, match="vendor"):
        _ = [chunk async for chunk in provider.query("hello", None, None, QueryOptions())]


@pytest.mark.parametrize("thread", ["../other", "a/b", "", ".hidden", "a" * 200, "x\0"])
async def test_a_thread_id_cannot_name_a_file_outside_its_folder(thread: str, tmp_path: Path) -> None:
    history = LlmProvider("openai:heron", threads=tmp_path).thread_files
    with pytest.raises(ValueError, match="thread must consist of"):
        history.write(thread, b"[]")
    assert not os.listdir(tmp_path)
