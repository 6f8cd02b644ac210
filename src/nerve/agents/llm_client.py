"""A client of an LLM API for one turn, selected by model name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nerve.agents.launch import missing_library_error
from nerve.agents.provider import Unavailable

if TYPE_CHECKING:
    from pydantic_ai.models import Model

API_KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


class LlmClient:
    """A client of the API for one turn; it does not retry, because the engine decides about retries."""

    def __init__(
        self,
        requested_model: str | None,
        default_model: str | None,
        base_url: str | None,
        key_env: str | None,
        env: Mapping[str, str],
    ) -> None:
        self.base_url = base_url
        self.vendor, self.model = split_model_name(requested_model, default_model)
        self.api_kind = self.vendor.partition("-")[0]
        variable = key_env or API_KEY_VARIABLES.get(self.api_kind, "")
        self.api_key = env.get(variable) or os.environ.get(variable) or ""
        if not self.api_key and self.api_kind in API_KEY_VARIABLES and not self.base_url:
            raise Unavailable(f"Model '{self.vendor}:{self.model}' needs an API key: set {variable}")
        self._client: Any = None

    async def __aenter__(self) -> Model:
        from pydantic_ai.models import infer_model

        vendor = self.vendor
        if vendor == "openai" and self.base_url:
            vendor = "openai-chat"
        try:
            return infer_model(f"{vendor}:{self.model}", self._make_api_provider)
        except ImportError as error:
            raise missing_library_error(error, "llm") from error

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def _make_api_provider(self, vendor: str) -> Any:
        settings: dict[str, Any] = {"api_key": self.api_key or "none", "max_retries": 0}
        if self.base_url:
            settings["base_url"] = self.base_url
        if self.api_kind == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.providers.anthropic import AnthropicProvider

            self._client = AsyncAnthropic(**settings)
            return AnthropicProvider(anthropic_client=self._client)
        if self.api_kind == "openai":
            from openai import AsyncOpenAI
            from pydantic_ai.providers.openai import OpenAIProvider

            self._client = AsyncOpenAI(**settings)
            return OpenAIProvider(openai_client=self._client)
        if self.base_url:
            raise ValueError(f"base_url requires vendor 'anthropic:' or 'openai:', got '{vendor}:'")
        from pydantic_ai.providers import infer_provider

        return infer_provider(vendor)

    def model_label(self, model: str | None) -> str:
        """Return the model with its vendor, or without it for a compatible API of another vendor."""
        name = model or self.model
        return name if self.base_url else f"{self.api_kind}:{name}"


def split_model_name(requested_model: str | None, default_model: str | None) -> tuple[str, str]:
    """Return vendor and model; a name without a vendor uses the vendor of the default model."""
    from pydantic_ai.providers import infer_provider_class

    name = requested_model or default_model or ""
    vendor, colon, model = name.partition(":")
    if colon:
        try:
            infer_provider_class(vendor)
        except ValueError:
            pass  # the colon is part of the model name, as in `llama3:8b`
        except ImportError as error:
            raise missing_library_error(error, "llm") from error
        else:
            return vendor, model
    vendor = (
        (default_model or "").partition(":")[0]
        if requested_model and default_model and ":" in default_model
        else ""
    )
    if not vendor or not name:
        raise ValueError(f"model must include its vendor, like 'anthropic:claude-sonnet-5', got {name!r}")
    return vendor, name
