"""Webhooks: verify a request, and return the event that its trigger starts a run for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from nerve.core.json_codec import parse_strict_json
from nerve.core.triggers import SecretReference, Trigger, WebhookOptions
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass
from nerve.project.safe_files import FileRefused, read_user_file
from nerve.triggers.webhook_signatures import SignatureRefused, verify_signature

SECRET_WORDS = ("authorization", "cookie", "secret", "signature", "token", "api-key", "apikey")
"""Parts of the names of headers that expressions cannot read, because they may be secret."""
MAX_SECRET_BYTES = 16 * 1024
JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"


class SecretMissing(NerveError):
    """The secret of a webhook cannot be read, so no request can be verified."""


class UnsupportedBody(NerveError):
    """The body of a request has a type or form that is not read."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """A verified request as the event of a trigger, with the id of its delivery."""

    delivery: str
    event: dict[str, Any]

    @property
    def challenge(self) -> str | None:
        """The text that Slack expects back when an address is registered."""
        body = self.event["body"]
        is_challenge = isinstance(body, dict) and body.get("type") == "url_verification"
        challenge = body.get("challenge") if is_challenge else None
        return challenge if isinstance(challenge, str) else None


def read_webhook(
    trigger: Trigger, project: Path, headers: Mapping[str, str], query: str, body: bytes, now: float
) -> WebhookEvent:
    """Return the event of a request; SignatureRefused if it is not signed with the secret of the trigger."""
    options = trigger.webhook
    assert options is not None
    delivery = verify_signature(
        options.signature, read_secrets(options, project), headers, body, now, options.tolerance
    )
    return WebhookEvent(
        delivery.id,
        {
            "headers": select_headers(headers),
            "body": parse_body(headers, body),
            "query": dict(parse_qsl(query, keep_blank_values=True)),
        },
    )


def read_secrets(options: WebhookOptions, project: Path) -> list[str]:
    """Return the secrets of a webhook. They are read for each request, so that a new one is used at once."""
    return [read_secret(reference, project) for reference in options.secrets]


def read_secret(reference: SecretReference, project: Path) -> str:
    if reference.env:
        if not (secret := os.environ.get(reference.env, "").strip()):
            raise SecretMissing(f"The variable {reference.env} with the secret is not set")
        return secret
    path = Path(reference.file).expanduser()
    try:
        secret = read_user_file(path if path.is_absolute() else project / path, MAX_SECRET_BYTES).strip()
    except (OSError, FileRefused) as error:
        raise SecretMissing(f"The file {reference.file} with the secret cannot be read: {error}") from None
    if not secret:
        raise SecretMissing(f"The file {reference.file} with the secret is empty")
    return secret


def select_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in lower case, without those that may be secret."""
    lower = {name.lower(): value for name, value in headers.items()}
    return {name: value for name, value in lower.items() if not any(word in name for word in SECRET_WORDS)}


def parse_body(headers: Mapping[str, str], body: bytes) -> Any:
    """Return the value of a JSON body, or the fields of a form; None for an empty body."""
    if not body:
        return None
    lower = {name.lower(): value for name, value in headers.items()}
    kind = lower.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if kind == FORM_TYPE:
            return dict(parse_qsl(body.decode(), keep_blank_values=True))
        if kind == JSON_TYPE or (kind.startswith("application/") and kind.endswith("+json")):
            return parse_strict_json(body)
    except ValueError as error:
        raise UnsupportedBody(f"The body is not valid {kind}: {str(error)[:200]}") from None
    raise UnsupportedBody(f"The content type {kind[:80] or 'is missing, which'} is not read")


__all__ = ["SecretMissing", "SignatureRefused", "UnsupportedBody", "WebhookEvent", "read_webhook"]
