"""Secrets: keys and tokens of our environment, which may reach an agent and are never written down."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

from nerve.agents.port import Chunk, Usage

NAMED = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$", re.IGNORECASE
)
"""Names of variables that say that their value is a secret."""
SHORTEST = 8
"""Characters of a value that is looked for: shorter ones stand in other words."""

T = TypeVar("T")


class Secrets:
    """What variables with such names hold, as it is and as it is written in base64 and in addresses."""

    def __init__(self, *environments: Mapping[str, str]) -> None:
        forms = {
            form: f"[{name}]"
            for environment in environments
            for name, value in environment.items()
            if NAMED.search(name) and len(value.strip()) >= SHORTEST
            for form in forms_of(value.strip())
        }
        self._names = forms
        # The longest first: one form may be the beginning of another.
        self._found = (
            re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True)))) if forms else None
        )

    def text(self, text: str) -> str:
        """The text with names of variables in place of their values."""
        return self._found.sub(lambda found: self._names[found[0]], text) if self._found else text

    def shown(self, text: str) -> tuple[str, str]:
        """What can be shown of a text that still grows, and the rest: at its end may be half a secret."""
        if self._found is None:
            return text, ""
        done = max((found.end() for found in self._found.finditer(text)), default=0)
        longest = max(map(len, self._names)) - 1
        for size in range(min(longest, len(text) - done), 0, -1):
            if any(form.startswith(text[-size:]) for form in self._names):
                return self.text(text[:-size]), text[-size:]
        return self.text(text), ""

    def value(self, value: T) -> T:
        """The same for all texts in plain data, and in what agents say."""
        return self._hidden(value) if self._found else value

    def chunk(self, chunk: Chunk) -> Chunk:
        if self._found is None or isinstance(chunk, Usage):
            return chunk
        told = {each.name: getattr(chunk, each.name) for each in fields(chunk)}
        hidden = {
            name: self._hidden(value) for name, value in told.items() if name not in ("thread", "usage")
        }
        return replace(chunk, **{name: value for name, value in hidden.items() if value != told[name]})

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._hidden(key): self._hidden(item) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._hidden(item) for item in value]
        return value


NONE = Secrets()


def forms_of(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "replace")
    yield value
    yield quote(value, safe="")
    yield quote_plus(value, safe="")
    for encoded in (b64encode(data), urlsafe_b64encode(data)):
        yield encoded.decode()
        yield encoded.decode().rstrip("=")
