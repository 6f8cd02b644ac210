"""Redaction: secrets of the environment may reach an agent, but never the journal."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from nerve.agents.provider import Chunk, TurnUsage

SECRET_NAME = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$", re.IGNORECASE
)
"""Names of variables that hold secrets."""
MIN_SECRET_CHARS = 8
"""Minimum length of a secret: shorter values occur in ordinary text."""

T = TypeVar("T")


class Redactor:
    """Replaces the values of secret variables, in plain, base64 and URL-encoded form."""

    def __init__(self, *environments: Mapping[str, str]) -> None:
        forms = {
            form: f"[{name}]"
            for environment in environments
            for name, value in environment.items()
            if SECRET_NAME.search(name) and len(value.strip()) >= MIN_SECRET_CHARS
            for form in encodings_of(value.strip())
        }
        self._name_by_secret = forms
        # Longest first: one form may be a prefix of another.
        self._secret_pattern = (
            re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None
        )

    def redact_text(self, text: str) -> str:
        """Return the text with secret values replaced by the names of their variables."""
        return (
            self._secret_pattern.sub(lambda match: self._name_by_secret[match[0]], text)
            if self._secret_pattern
            else text
        )

    def redact_partial(self, text: str) -> tuple[str, str]:
        """Return the redacted part of a growing text, and its unredacted end, which may be half a secret."""
        if self._secret_pattern is None:
            return text, ""
        redacted_end = max((match.end() for match in self._secret_pattern.finditer(text)), default=0)
        longest = max(map(len, self._name_by_secret)) - 1
        for size in range(min(longest, len(text) - redacted_end), 0, -1):
            if any(form.startswith(text[-size:]) for form in self._name_by_secret):
                return self.redact_text(text[:-size]), text[-size:]
        return self.redact_text(text), ""

    def redact_value(self, value: T) -> T:
        """Redact all strings in plain data."""
        return self._redact(value) if self._secret_pattern else value

    def redact_chunk(self, chunk: Chunk) -> Chunk:
        if self._secret_pattern is None or isinstance(chunk, TurnUsage):
            return chunk
        values = {field.name: getattr(chunk, field.name) for field in fields(chunk)}
        redacted = {
            name: self._redact(value) for name, value in values.items() if name not in ("thread", "usage")
        }
        return replace(chunk, **{name: value for name, value in redacted.items() if value != values[name]})

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            return {self._redact(key): self._redact(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._redact(item) for item in value]
        return value


NO_REDACTION = Redactor()


def encodings_of(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "replace")
    yield value
    yield quote(value, safe="")
    yield quote_plus(value, safe="")
    for encoded in (b64encode(data), urlsafe_b64encode(data)):
        yield encoded.decode()
        yield encoded.decode().rstrip("=")
