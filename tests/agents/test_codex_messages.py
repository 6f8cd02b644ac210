"""Recorded messages of Codex and their conversion; needs no program."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.agents.codex import CodexProvider, executable, provider
from nerve.agents.codex.approvals import ApprovalRequest, read_approval_request
from nerve.agents.codex.json_rpc import CodexEnded
from nerve.agents.codex.notifications import (
    NotificationReader,
    codex_reset_time,
    http_status_of,
    is_limit_error,
    readable_error,
)
from nerve.agents.codex.strict_schema import is_strict_schema
from nerve.agents.provider import (
    AssistantText,
    Chunk,
    PermissionDecision,
    PermissionRequest,
    PlanUpdate,
    QueryOptions,
    Reasoning,
    ThreadStarted,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnUsage,
    Unavailable,
)

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "codex"


class Recorded:
    """The lines of a transcript in order, and the messages sent in response."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = iter(lines)
        self.sent: list[dict[str, Any]] = []

    def send(self, line: bytes) -> None:
        self.sent.append(json.loads(line))

    async def read_line(self) -> bytes:
        await asyncio.sleep(0)  # pending requests are answered first, as in the recording
        return next(self._lines, b"")

    async def wait_for_stderr(self) -> str:
        return "\x1b[31mERROR\x1b[0m out of memory"


class Replay:
    """Queries a provider whose program is a recording."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.recorded = Recorded([])

    async def __call__(self, lines: Sequence[bytes], **options: Any) -> list[Chunk]:
        self.recorded = Recorded(lines)

        @asynccontextmanager
        async def talk(*_: Any, **__: Any) -> AsyncIterator[Recorded]:
            yield self.recorded

        self._patch.setattr(provider, "open_line_process", talk)
        self._patch.setattr(provider, "START_RETRY_PAUSES_S", (None,))
        resume = options.pop("resume", None)
        turn = CodexProvider(program="sh").query("the prompt", None, resume, QueryOptions(**options))
        return [chunk async for chunk in turn]

    def answers(self) -> list[Any]:
        return [message["result"] for message in self.recorded.sent if "result" in message]


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Replay:
    return Replay(monkeypatch)


def transcript(name: str) -> list[bytes]:
    return (TRANSCRIPTS / f"{name}.jsonl").read_bytes().splitlines(keepends=True)


def whole(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks without partial ones, the first and the last."""
    return [
        chunk
        for chunk in chunks
        if not isinstance(chunk, ThreadStarted | TurnFinished)
        and not (isinstance(chunk, AssistantText) and chunk.partial)
    ]


def end(chunks: list[Chunk]) -> TurnFinished:
    assert isinstance(chunks[0], ThreadStarted)
    assert isinstance(chunks[-1], TurnFinished)
    assert chunks[0].thread == chunks[-1].thread != ""
    return chunks[-1]


async def allow(permission: PermissionRequest) -> PermissionDecision:
    return PermissionDecision(True)


# -- recordings ------------------------------------------------------------------------------------


async def test_an_answer_with_partial_messages_and_usage(replay: Replay) -> None:
    chunks = await replay(transcript("answer"))
    assert chunks[1:-1] == [
        AssistantText("hello ", partial=True),
        AssistantText("there", partial=True),
        AssistantText("hello there"),
    ]
    assert end(chunks).outcome == "completed"
    assert end(chunks).usage == TurnUsage(100, 12, 20, 0, model="stub-model")


async def test_a_warning_does_not_fail_the_turn(replay: Replay) -> None:
    lines = transcript("answer")
    assert any(b'"method": "warning"' in line for line in lines)
    assert end(await replay(lines)).error == ""


async def test_reasoning_is_emitted_in_full(replay: Replay) -> None:
    chunks = await replay(transcript("thought"))
    assert whole(chunks) == [Reasoning("of herons"), AssistantText("thought")]


async def test_a_tool_that_is_allowed_on_request(replay: Replay) -> None:
    requests: list[PermissionRequest] = []

    async def look(permission: PermissionRequest) -> PermissionDecision:
        requests.append(permission)
        return PermissionDecision(True)

    chunks = await replay(transcript("tool"), ask=look)
    call, update, _ = whole(chunks)
    assert isinstance(call, ToolCall)
    assert call.name == requests[0].tool == "shell"
    assert call.input == {"command": "/bin/bash -lc 'echo made; exit 0'", "cwd": "/home/dev/project"}
    assert update == ToolUpdate(call.id, "completed", "made\n")
    assert requests[0].input["command"] == call.input["command"]
    assert replay.answers() == [{"decision": "accept"}]


async def test_the_usage_of_two_model_calls_is_added_up(replay: Replay) -> None:
    assert end(await replay(transcript("tool"), ask=allow)).usage == TurnUsage(
        200, 24, 40, 0, model="stub-model"
    )


async def test_a_tool_that_fails(replay: Replay) -> None:
    chunks = await replay(transcript("tool_failed"), ask=allow)
    update = whole(chunks)[1]
    assert isinstance(update, ToolUpdate)
    assert (update.status, update.output) == ("failed", "oh no\n")
    assert end(chunks).outcome == "completed"


async def test_a_tool_that_is_denied_with_a_reason(replay: Replay) -> None:
    chunks = await replay(transcript("denied"))
    update = whole(chunks)[1]
    assert isinstance(update, ToolUpdate)
    assert update.status == "failed"
    assert replay.answers() == [{"decision": "decline"}]
    said = next(message for message in replay.recorded.sent if message["method"] == "turn/steer")
    assert "no one is available" in said["params"]["input"][0]["text"]


async def test_an_allowed_tool_needs_no_request(replay: Replay) -> None:
    await replay(transcript("tool"), tools=["shell"])
    assert replay.answers() == [{"decision": "accept"}]


async def test_a_permission_request_contains_the_file_changes(replay: Replay) -> None:
    requests: list[PermissionRequest] = []

    async def look(permission: PermissionRequest) -> PermissionDecision:
        requests.append(permission)
        return PermissionDecision(True)

    chunks = await replay(transcript("patch"), ask=look)
    [change] = requests[0].input["changes"]
    assert (requests[0].tool, change["path"], change["diff"]) == (
        "apply_patch",
        "/home/dev/project/new.txt",
        "hello\n",
    )
    assert [type(chunk) for chunk in whole(chunks)] == [ToolCall, ToolUpdate, AssistantText]


async def test_an_api_error_fails_the_turn(replay: Replay) -> None:
    over = end(await replay(transcript("error")))
    assert over.outcome == "failed"
    assert "the stub says no" in over.error
    assert over.usage is None


async def test_rate_limits_have_their_reset_time(replay: Replay) -> None:
    used_up = end(await replay(transcript("usage_limit")))
    assert (used_up.outcome, "usage limit" in used_up.error) == ("limited", True)
    assert used_up.resets_at is not None
    assert used_up.resets_at > time.time()
    too_fast = end(await replay(transcript("rate_limit")))
    assert (too_fast.outcome, too_fast.resets_at) == ("limited", None)


async def test_usage_excludes_earlier_turns(replay: Replay) -> None:
    lines = transcript("resumed")
    assert sum(b"tokenUsage/updated" in line for line in lines) == 2
    over = end(await replay(lines, resume="any"))
    assert over.usage == TurnUsage(100, 12, 20, 0, model="stub-model")
    assert over.totals["inputTokens"] == 240


async def test_a_reconnection_is_not_an_error(replay: Replay) -> None:
    lines = transcript("reconnected")
    assert any(b'"willRetry": true' in line for line in lines)
    chunks = await replay(lines)
    assert whole(chunks) == [AssistantText("at last")]
    assert end(chunks).outcome == "completed"


async def test_a_structured_answer(replay: Replay) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}}
    assert end(await replay(transcript("formed"), schema=schema)).structured == {"score": 3}
    assert end(await replay(transcript("formed"))).structured is None


@pytest.mark.parametrize("name", sorted(file.stem for file in TRANSCRIPTS.glob("*.jsonl")))
async def test_a_recording_truncated_anywhere_is_a_crash(name: str, replay: Replay) -> None:
    lines = transcript(name)
    for cut in range(len(lines)):
        with pytest.raises(CodexEnded, match="before the turn was over: ERROR out of memory"):
            await replay(
                [*lines[:cut], lines[cut][:-9]], ask=allow, resume="any" if name == "resumed" else None
            )


async def test_an_invalid_message_is_a_crash(replay: Replay) -> None:
    for line in (b"Segmentation fault\n", b"[1]\n", b"\xff\xfe\n"):
        with pytest.raises(CodexEnded, match=r"codex sent (invalid JSON|an invalid message)"):
            await replay([line])


async def test_a_refused_request_fails_the_turn(replay: Replay) -> None:
    lines = [
        b'{"id":1,"result":{}}\n',
        b'{"id":2,"error":{"code":-32600,"message":"no rollout found for thread id gone"}}\n',
    ]
    assert await replay(lines, resume="gone") == [
        TurnFinished("gone", outcome="failed", error="no rollout found for thread id gone")
    ]


# -- single messages -------------------------------------------------------------------------------


def told(method: str, **params: Any) -> list[Chunk]:
    return list(
        NotificationReader("t", "n").read_notification(method, {"threadId": "t", "turnId": "n", **params})
    )


def test_plans_are_converted_to_chunks() -> None:
    plan = [{"step": "look", "status": "completed"}, {"step": "leap", "status": "inProgress"}]
    assert told("turn/plan/updated", plan=plan) == [
        PlanUpdate([{"content": "look", "status": "completed"}, {"content": "leap", "status": "in_progress"}])
    ]


def test_other_tool_kinds_are_converted() -> None:
    item = {
        "type": "mcpToolCall",
        "id": "c",
        "server": "wf",
        "tool": "run",
        "status": "completed",
        "arguments": {"name": "x"},
        "result": {"content": [{"type": "text", "text": "it ran"}]},
    }
    assert told("item/completed", item=item) == [
        ToolCall("mcp__wf__run", {"name": "x"}, "c"),
        ToolUpdate("c", "completed", "it ran"),
    ]
    search = {"type": "webSearch", "id": "s", "query": "herons", "action": None}
    assert told("item/completed", item=search) == [
        ToolCall("web_search", {"query": "herons"}, "s"),
        ToolUpdate("s", "completed"),
    ]
    assert told("item/commandExecution/outputDelta", itemId="c", delta="half") == [
        ToolUpdate("c", "running", "half")
    ]


def test_unknown_messages_and_other_threads_are_ignored() -> None:
    assert told("item/completed", item={"type": "somethingNew", "id": "x"}) == []
    assert told("thread/somethingNew") == []
    assert told("item/agentMessage/delta", threadId="other", delta="x") == []


def test_changes_of_a_sub_agent_are_known_when_it_requests_approval() -> None:
    reading = NotificationReader("t", "n")
    item = {
        "type": "fileChange",
        "id": "c",
        "status": "inProgress",
        "changes": [{"path": "/p/a", "diff": "x"}],
    }
    assert (
        list(reading.read_notification("item/started", {"threadId": "sub", "turnId": "m", "item": item}))
        == []
    )
    approval = read_approval_request(
        "item/fileChange/requestApproval", {"threadId": "sub", "itemId": "c"}, reading.items
    )
    assert isinstance(approval, ApprovalRequest)
    assert approval.permission.input == {"changes": item["changes"]}


def test_the_tokens_of_sub_agents_count() -> None:
    reading = NotificationReader("t", "n")
    for thread, turn, tokens in (("t", "n", 100), ("sub", "m", 30)):
        spent = {"inputTokens": tokens, "cachedInputTokens": 0, "outputTokens": 1}
        reported = {"total": {**spent, "inputTokens": tokens + 1000}, "last": spent}
        list(
            reading.read_notification(
                "thread/tokenUsage/updated", {"threadId": thread, "turnId": turn, "tokenUsage": reported}
            )
        )
    [over] = reading.read_notification(
        "turn/completed", {"threadId": "t", "turn": {"id": "n", "status": "completed"}}
    )
    assert isinstance(over, TurnFinished)
    assert isinstance(over.usage, TurnUsage)
    assert over.usage.input_tokens == 130


def test_an_unknown_outcome_is_a_failure() -> None:
    [over] = told("turn/completed", turn={"id": "n", "status": "somethingNew"})
    assert isinstance(over, TurnFinished)
    assert (over.outcome, over.error) == ("failed", "The turn ended with status somethingNew")


def test_approval_requests_and_their_responses() -> None:
    wanted = {"network": {"enabled": True}}
    approval = read_approval_request(
        "item/permissions/requestApproval", {"permissions": wanted, "cwd": "/p"}, {}
    )
    assert isinstance(approval, ApprovalRequest)
    assert approval.permission == PermissionRequest(
        "request_permissions", {"permissions": wanted, "cwd": "/p"}, cwd="/p"
    )
    assert approval.respond(PermissionDecision(True))["permissions"] == wanted
    assert approval.respond(PermissionDecision(False))["permissions"] == {}
    form = {"requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    assert read_approval_request("mcpServer/elicitation/request", form, {}) == {"action": "decline"}
    plain = read_approval_request(
        "mcpServer/elicitation/request", {"serverName": "wf", "message": "Run it?"}, {}
    )
    assert isinstance(plain, ApprovalRequest)
    assert plain.permission == PermissionRequest("mcp__wf", {}, "Run it?")
    assert plain.respond(PermissionDecision(False)) == {"action": "decline"}
    assert read_approval_request("attestation/generate", {}, {}) is None


NOON = datetime(2026, 11, 15, 12, 0, 30).timestamp()


@pytest.mark.parametrize(
    ("message", "ends"),
    [
        ("You've hit your usage limit. Try later, or try again at 2:13 PM.", datetime(2026, 11, 15, 14, 14)),
        ("try again at 9:05\u202fAM.", datetime(2026, 11, 16, 9, 6)),
        ("or try again at Nov 20th, 2026 2:13 PM.", datetime(2026, 11, 20, 14, 14)),
        ("Please try again in 20s.", datetime(2026, 11, 15, 12, 0, 50)),
        ("try again in 1 day 2 hours 5 minutes.", datetime(2026, 11, 16, 14, 5, 30)),
        ("Please try again in 6m30s", datetime(2026, 11, 15, 12, 7)),
    ],
)
def test_the_reset_time_is_parsed_from_the_message(message: str, ends: datetime) -> None:
    assert codex_reset_time({}, message, NOON) == ends.timestamp()


def test_the_reset_time_comes_from_the_exhausted_windows() -> None:
    windows = {
        "primary": {"usedPercent": 100, "resetsAt": 1000},
        "secondary": {"usedPercent": 100, "resetsAt": 2000},
    }
    assert codex_reset_time(windows, "", NOON) == 2000
    assert codex_reset_time({**windows, "secondary": {"usedPercent": 40, "resetsAt": 2000}}, "", NOON) == 1000
    assert codex_reset_time({}, "exceeded retry limit, last status: 429", NOON) is None
    assert codex_reset_time({}, "try again at Nov 99th, 2026 2:13 PM", NOON) is None


@pytest.mark.parametrize(
    ("info", "limit"),
    [
        ("usageLimitExceeded", True),
        ("rateLimitExceeded", True),
        ("serverOverloaded", True),
        ("contextWindowExceeded", False),
        (None, False),
    ],
)
def test_which_errors_are_limits(info: Any, limit: bool) -> None:
    assert is_limit_error({"codexErrorInfo": info}) is limit


def test_the_http_status_of_an_error() -> None:
    info = {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}
    assert http_status_of({"codexErrorInfo": info}) == 429
    assert http_status_of({"codexErrorInfo": {"other": {"httpStatusCode": None}}}) is None
    assert http_status_of({"codexErrorInfo": "other"}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": {"message": "too long", "type": "x"}}', "too long"),
        ('{"message": "too long"}', "too long"),
        ("too long", "too long"),
        ('{"odd": 1}', '{"odd": 1}'),
        ("[1]", "[1]"),
    ],
)
def test_an_error_of_the_api_in_json_is_read(text: str, message: str) -> None:
    assert readable_error(text) == message


async def test_a_turn_without_a_last_message_is_a_failure(replay: Replay) -> None:
    lines = [
        line for line in transcript("tool") if b'"item/completed"' not in line or b"agentMessage" not in line
    ]
    over = end(await replay(lines))
    assert (over.outcome, "without an answer" in over.error) == ("failed", True)


# -- schemas, settings, the program ----------------------------------------------------------------


def test_which_schemas_the_api_accepts() -> None:
    number = {"type": "integer", "minimum": 1}
    closed = {"type": "object", "properties": {"a": number}, "required": ["a"], "additionalProperties": False}
    assert is_strict_schema(closed)
    assert is_strict_schema({**closed, "properties": {"a": {"type": "array", "items": closed}}})
    assert not is_strict_schema({**closed, "required": []})
    assert not is_strict_schema({**closed, "properties": {"a": {"type": "object"}}})
    assert not is_strict_schema({**closed, "properties": {"a": {"oneOf": [number]}}})
    assert not is_strict_schema({"type": "array", "items": closed})


plain = st.recursive(
    st.booleans() | st.integers(-(2**62), 2**62) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('ab." é', max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_settings_are_written_as_toml(value: Any) -> None:
    written = executable.format_toml_value(value)
    assert "\n" not in written
    assert tomllib.loads(f"x = {written}") == {"x": value}


def test_a_missing_program_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "bundled_executable", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"pip install '\.\[codex\]'"):
        executable.find_executable(None)
    with pytest.raises(Unavailable, match="Program not found: /nowhere/codex"):
        executable.find_executable("/nowhere/codex")


async def test_a_named_key_comes_from_the_environment_and_not_the_process_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STUB_KEY", "sk-ours")
    script = tmp_path / "codex"
    script.write_text(f'#!/bin/sh\nenv > {tmp_path}/seen\necho "$@" > {tmp_path}/argv\nexit 3\n')
    script.chmod(0o700)
    made = CodexProvider(base_url="http://127.0.0.1:1/v1", env_key="STUB_KEY", program=str(script))
    with pytest.raises(CodexEnded):
        async for _ in made.query("hello", None, None, QueryOptions()):
            pass
    assert "STUB_KEY=sk-ours" in (tmp_path / "seen").read_text().splitlines()
    assert "sk-ours" not in (tmp_path / "argv").read_text()
