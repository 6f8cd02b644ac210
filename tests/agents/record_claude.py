"""Record the output of the real Claude Code again: `PYTHONPATH=tests python -m agents.record_claude`."""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.contract import allow
from agents.stubs.anthropic import AnthropicStub
from nerve.agents.claude import ClaudeProvider, turn
from nerve.agents.provider import QueryOptions

KEPT = Path(__file__).parent / "transcripts" / "claude"
THREAD = "6b1f7a52-58a7-4f0e-9b55-0d5a3c1c9a01"
NOT_MEANT = ("uuid", "timestamp", "subagent_stats", "permission_suggestions")
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
TOKEN = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-dummy"}

SCENES: dict[str, tuple[str, dict[str, Any]]] = {
    "answer": ("[[say one two]]", {}),
    "thought": ("[[think of herons]]", {}),
    "tool": ("[[run echo made > made.txt; echo it ran]]", {"ask": allow}),
    "denied": ("[[run touch denied.txt]]", {}),
    "schema": ('[[json {"score": 3}]]', {"schema": SCHEMA}),
    "max_turns": ("[[run touch a.txt]] [[say never]]", {"ask": allow, "max_turns": 1}),
    "api_error": ("[[error 400]]", {}),
    "busy": ("[[limit]]", {}),
    "overloaded": ("[[error 529]]", {}),
    "subscription": ("[[limit 3600]]", {"env": TOKEN}),
    "missing": ("[[say one]]", {"resume": THREAD}),
}


async def main() -> None:
    with AnthropicStub() as stub:
        for name, (prompt, changes) in SCENES.items():
            stub.subscription = name == "subscription"
            lines = await heard(stub, prompt, dict(changes))
            (KEPT / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


async def heard(stub: AnthropicStub, prompt: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    original: Callable[[bytes], dict[str, Any]] = turn.parse_stream_line

    def parsed(line: bytes) -> dict[str, Any]:
        lines.append(
            original(line.replace(place.encode(), b"/place").replace(stub.url.encode(), b"http://stub"))
        )
        return original(line)

    turn.parse_stream_line = parsed
    try:
        with tempfile.TemporaryDirectory() as place:
            env = {"ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
            provider = ClaudeProvider(env=env | changes.pop("env", {}), retries=1)
            resume = changes.pop("resume", None)
            options = QueryOptions(env={"HOME": place}, thread=None if resume else str(uuid.uuid4()))
            async for _ in provider.query(prompt, place, resume, replace(options, **changes)):
                pass
    finally:
        turn.parse_stream_line = original
    return [bare(line) for line in lines]


def bare(line: dict[str, Any]) -> dict[str, Any]:
    """Return the line without long, variable and irrelevant fields."""
    if line.get("subtype") == "init":
        return {key: line[key] for key in ("type", "subtype", "session_id", "model", "claude_code_version")}
    if line["type"] == "control_response":
        line["response"].pop("response", None)
    return {key: value for key, value in line.items() if key not in NOT_MEANT}


if __name__ == "__main__":
    asyncio.run(main())
