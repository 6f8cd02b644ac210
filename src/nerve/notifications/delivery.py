"""What a channel needs to deliver a message: secrets, HTTP requests, and the reasons why it failed."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nerve.core.nodes.daemon_threads import DAEMON_THREADS
from nerve.errors import NerveError

if TYPE_CHECKING:
    import httpx2

    from nerve.notifications.messages import NotifyMessage
    from nerve.project.notify_settings import SecretSource

ATTEMPT_TIMEOUT_S = 15.0
"""Seconds for one attempt to deliver a message."""
MAX_SECRET_BYTES = 64 * 1024
TEMPORARY_STATUSES = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed later."""
MAX_REPLY_BYTES = 64 * 1024
ERROR_CODE = re.compile(r"[a-z][a-z0-9_]{2,59}")
"""What a service names a problem; other text of a reply may repeat the message, and is not shown."""


class DeliveryFailed(NerveError):
    """A message was not delivered; the message of the error has no secret and no content."""

    def __init__(self, problem: str, *, is_final: bool = False, retry_after: float | None = None) -> None:
        """`is_final` says that another attempt cannot succeed; `retry_after` is when it may, in seconds."""
        super().__init__(problem)
        self.is_final, self.retry_after = is_final, retry_after


class Channel(Protocol):
    """A way to reach people."""

    async def send(self, message: NotifyMessage) -> None:
        """Deliver a message; DeliveryFailed says why it was not."""

    async def close(self) -> None:
        """Close connections."""

    def describe(self) -> str:
        """Return where messages go, without secrets."""

    def find_problem(self) -> str:
        """Return why no message can be delivered, such as a missing secret; "" if that is not known."""


class SecretReader:
    """Reads secrets when they are needed, so that a file that changes is used without a restart."""

    def __init__(self, project: Path, environment: Mapping[str, str] | None = None) -> None:
        self._project = project
        self._environment = os.environ if environment is None else environment

    def read(self, source: SecretSource) -> str:
        """Return a secret; DeliveryFailed names the variable or the file without one."""
        if source.env is not None:
            text = self._environment.get(source.env, "").strip()
            if not text:
                raise DeliveryFailed(f"The environment variable {source.env} is not set")
            return text
        path = self._project / (source.file or "")
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(MAX_SECRET_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise DeliveryFailed(f"The file {source.file} cannot be read: {reason}") from None
        if not text:
            raise DeliveryFailed(f"The file {source.file} is empty")
        return text

    def find_problem(self, *sources: SecretSource | None) -> str:
        """Return which secret is missing; "" if none is."""
        for source in sources:
            try:
                if source is not None:
                    self.read(source)
            except DeliveryFailed as error:
                return str(error)
        return ""


class Reply(NamedTuple):
    """The reply of a service."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait for, from the header Retry-After; None without one."""
        return parse_retry_after(self.headers.get("retry-after"))


class HttpSender:
    """Sends requests with one client, which is created with the first one: importing it takes time."""

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None
        self._lock = asyncio.Lock()

    async def _open(self) -> httpx2.AsyncClient:
        # In a thread: the import and the certificates would stop the event loop, and the runs with it.
        async with self._lock:
            if self._client is None:
                self._client = await DAEMON_THREADS.run(create_client, None, lambda: None)
            return self._client

    async def post(
        self, url: str, content: bytes, headers: Mapping[str, str], timeout: float = ATTEMPT_TIMEOUT_S
    ) -> Reply:
        """Send a request. DeliveryFailed says why a reply is missing; it has no URL, which can be secret."""
        return await self.request("POST", url, content, headers, timeout)

    async def request(
        self,
        method: str,
        url: str,
        content: bytes,
        headers: Mapping[str, str],
        timeout: float = ATTEMPT_TIMEOUT_S,
        max_bytes: int = MAX_REPLY_BYTES,
    ) -> Reply:
        """Do as `post` with any method; of the reply, the first `max_bytes` are read."""
        client = await self._open()
        import httpx2

        try:
            request = client.build_request(method, url, content=content, headers=dict(headers))
            request.extensions["timeout"] = httpx2.Timeout(timeout).as_dict()
            reply = await client.send(request, stream=True)
            try:
                body = b""
                async for chunk in reply.aiter_bytes():
                    body += chunk
                    if len(body) > max_bytes:
                        break
            finally:
                await reply.aclose()
        except httpx2.TimeoutException:
            raise DeliveryFailed(f"No reply within {timeout:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise DeliveryFailed(f"The connection failed: {type(error).__name__}") from None
        return Reply(reply.status_code, reply.headers, body[:max_bytes].decode(errors="replace"))

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


def create_client(_: None) -> httpx2.AsyncClient:
    import httpx2

    return httpx2.AsyncClient(follow_redirects=False)


def check_status(reply: Reply, service: str) -> None:
    """Raise DeliveryFailed unless a service has accepted a message."""
    if 200 <= reply.status < 300:
        return
    is_temporary = reply.status in TEMPORARY_STATUSES or reply.status >= 500
    code = reply.text.strip()
    named = f" ({code})" if ERROR_CODE.fullmatch(code) else ""
    raise DeliveryFailed(
        f"{service} answered {reply.status}{named}",
        is_final=not is_temporary,
        retry_after=reply.retry_after if is_temporary else None,
    )


def parse_retry_after(text: Any) -> float | None:
    """Return seconds from a header or a field: a number, or a date; None for anything else."""
    if isinstance(text, bool) or text is None:
        return None
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        pass
    try:
        return max(0.0, parsedate_to_datetime(str(text)).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
