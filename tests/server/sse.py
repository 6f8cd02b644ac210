"""A reader of server-sent events that takes bytes wherever they were cut."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass
class Message:
    kind: str
    data: Any
    id: str | None


def messages(text: str) -> list[Message]:
    """The whole messages in a text; what stands behind the last empty line is not one yet."""
    found = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append(Message(fields["event"], json.loads(fields["data"]), fields.get("id")))
    return found


async def stream(client: httpx2.AsyncClient, path: str, last: str | None = None) -> AsyncIterator[Message]:
    headers = {"last-event-id": last} if last is not None else {}
    async with client.stream("GET", path, headers=headers) as reply:
        assert reply.status_code == 200, (await reply.aread(), reply.status_code)
        assert reply.headers["content-type"].startswith("text/event-stream")
        text = ""
        async for part in reply.aiter_text():
            text += part
            for each in messages(text):
                yield each
            text = text[text.rfind("\n\n") + 2 :] if "\n\n" in text else text
