"""The agent that an editor starts: it opens projects and sessions, and passes prompts on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import acp
from acp import schema
from nerve import __version__
from nerve.acp.editor_session import EditorSession, format_error
from nerve.client import Client
from nerve.errors import NerveError

SESSION_PREFIX = "editor-"

OpenProject = Callable[[Path], Awaitable[Client]]
"""Returns a client of the project in a folder; raises NerveError with the reason why there is none."""


class ProjectAcpAgent:
    """The methods that an editor calls."""

    def __init__(self, open_project: OpenProject) -> None:
        self._open_project = open_project
        self._sessions: dict[str, EditorSession] = {}
        self._connection: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    def on_connect(self, conn: Any) -> None:
        self._connection = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse.model_validate(
            {
                "protocolVersion": acp.PROTOCOL_VERSION,
                "agentInfo": {"name": "nerve", "title": "Nerve", "version": __version__},
                "agentCapabilities": {
                    "loadSession": True,
                    "promptCapabilities": {"embeddedContext": True},
                    "sessionCapabilities": {"resume": {}, "close": {}},
                },
            }
        )

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        session = await self._open(cwd, f"{SESSION_PREFIX}{uuid.uuid4()}")
        return schema.NewSessionResponse(session_id=session.session_id)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        session = await self._open(cwd, session_id)
        try:
            await session.replay()
        except NerveError as error:
            raise request_error(error) from error
        return schema.LoadSessionResponse()

    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        await self._open(cwd, session_id)
        return schema.ResumeSessionResponse()

    async def close_session(self, session_id: str, **_: Any) -> None:
        self._sessions.pop(session_id, None)

    async def authenticate(self, method_id: str, **_: Any) -> schema.AuthenticateResponse:
        return schema.AuthenticateResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        session = self._find_session(session_id)
        return schema.PromptResponse(stop_reason=await session.handle_prompt(prompt_text(prompt)))

    async def cancel(self, session_id: str, **_: Any) -> None:
        await self._find_session(session_id).cancel()

    async def _open(self, cwd: str, session_id: str) -> EditorSession:
        try:
            client = await self._open_project(Path(cwd))
        except NerveError as error:
            raise request_error(error) from error
        session = self._sessions[session_id] = EditorSession(session_id, client, self._connection)
        # The editor knows the session when it has the response, so the commands follow it.
        task = asyncio.create_task(self._send_commands(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    async def _send_commands(self, session: EditorSession) -> None:
        try:
            await session.send_commands()
        except (NerveError, ConnectionError):
            pass  # the next prompt reports it

    def _find_session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise acp.RequestError(-32002, f"Session '{session_id}' not found. Load it, or open a new one.")
        return session


def prompt_text(blocks: list[Any]) -> str:
    """Return the text of a prompt; a file that it mentions is named, and one that it includes is quoted."""
    parts = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                parts.append(block.text)
            case schema.ResourceContentBlock():
                parts.append(f"{block.name} ({block.uri})")
            case schema.EmbeddedResourceContentBlock():
                text = getattr(block.resource, "text", "")
                parts.append(f"{block.resource.uri}\n{text}".rstrip())
    return "\n".join(parts)


def request_error(error: NerveError) -> acp.RequestError:
    """Return an error that an editor shows, with its fix."""
    return acp.RequestError(-32603, format_error(error), {"fix": getattr(error, "fix", "")})
