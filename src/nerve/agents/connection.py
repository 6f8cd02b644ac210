"""A client of an LLM API for one turn, by the name of a model."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nerve.agents.port import Unavailable

if TYPE_CHECKING:
    from pydantic_ai.models import Model

KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


class Connection:
    """A client of the API for one turn; it asks once, because whether to try again is decided elsewhere."""

    def __init__(
        self,
        asked: str | None,
        default: str | None,
        base_url: str | None,
        key_env: str | None,
        env: Mapping[str, str],
    ) -> None:
        self.base_url = base_url
        self.vendor, self.model = named(asked, default)
        self.kind = self.vendor.partition("-")[0]
        variable = key_env or KEYS.get(self.kind, "")
        self.key = env.get(variable) or os.environ.get(variable) or ""
        if not self.key and self.kind in KEYS and not self.base_url:
            raise Unavailable(f"'{self.vendor}:{self.model}' needs a key: set the variable {variable}")
        self._client: Any = None

    async def __aenter__(self) -> Model:
        from pydantic_ai.models import infer_model

        vendor = self.vendor
        if vendor == "openai" and self.base_url:
            vendor = "openai-chat"
        try:
            return infer_model(f"{vendor}:{self.model}", self._api)
        except ImportError as error:
            raise missing(error) from error

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def _api(self, vendor: str) -> Any:
        settings: dict[str, Any] = {"api_key": self.key or "none", "max_retries": 0}
        if self.base_url:
            settings["base_url"] = self.base_url
        if self.kind == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.providers.anthropic import AnthropicProvider

            self._client = AsyncAnthropic(**settings)
            return AnthropicProvider(anthropic_client=self._client)
        if self.kind == "openai":
            from openai import AsyncOpenAI
            from pydantic_ai.providers.openai import OpenAIProvider

            self._client = AsyncOpenAI(**settings)
            return OpenAIProvider(openai_client=self._client)
        if self.base_url:
            raise ValueError(f"a base_url goes with 'anthropic:' or 'openai:', not with '{vendor}:'")
        from pydantic_ai.providers import infer_provider

        return infer_provider(vendor)

    def label(self, model: str | None) -> str:
        """The model with its vendor, unless it is another's API that only speaks alike."""
        name = model or self.model
        return name if self.base_url else f"{self.kind}:{name}"


def named(asked: str | None, default: str | None) -> tuple[str, str]:
    """Vendor and model; a name without a vendor is of the default's."""
    from pydantic_ai.providers import infer_provider_class

    name = asked or default or ""
    vendor, colon, model = name.partition(":")
    if colon:
        try:
            infer_provider_class(vendor)
        except ValueError:
            pass  # the colon belongs to the model's name, as in `llama3:8b`
        except ImportError as error:
            raise missing(error) from error
        else:
            return vendor, model
    vendor = (default or "").partition(":")[0] if asked and default and ":" in default else ""
    if not vendor or not name:
        raise ValueError(f"a model is named with its vendor, as 'anthropic:claude-sonnet-5', not {name!r}")
    return vendor, name


async def load() -> None:
    """Import the library, which takes more than a second, without stopping everything else."""
    try:
        await asyncio.to_thread(importlib.import_module, "pydantic_ai.direct")
    except ImportError as error:
        raise missing(error) from error


def missing(error: ImportError) -> Unavailable:
    return Unavailable(f"the provider 'llm' needs a library ({error}): pip install 'nerve[llm]'")
