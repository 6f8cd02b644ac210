"""Agent requests, built from the input value of an agent node, and the prompts made of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any

from nerve.core.json_codec import decode_json, encode_json
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_settings import STEP_SETTING_KEYS, AgentSettings

NO_SETTINGS = AgentSettings()

TEXT_KEYS = ("prompt", "resume", "model", "cwd", "artifacts", "fallback", "on_idle")
TYPED_KEYS: Mapping[str, type | UnionType] = {
    "schema": dict | None,
    "tools": list | None,
    "max_turns": int | None,
}
STEERING_HEADING = "While you worked on it, you also received these messages:"
REQUEST_KEYS = frozenset({*TEXT_KEYS, *TYPED_KEYS, *STEP_SETTING_KEYS})


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A prompt, and the settings to answer it with."""

    prompt: str
    resume: str | None = None
    model: str | None = None
    cwd: str | None = None
    artifacts: str | None = None
    """A folder to create before the agent starts."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the answer."""
    tools: Sequence[str] | None = None
    """The tools that the agent may use without permission."""
    max_turns: int | None = None
    fallback: str | None = None
    """The provider to query while the first one is rate limited."""
    on_idle: str | None = None
    """What happens when the idle timeout expires: `fail`, `finish` or `finish_with_text`."""
    settings: AgentSettings = NO_SETTINGS
    """The settings of the step, without its model."""
    explicit: bool = False
    """Whether the request itself selects the conversation to resume, or none."""

    @classmethod
    def of(cls, value: Any) -> AgentRequest:
        """Build a request from a prompt, an object with only request keys, or any other value as text.

        ValueError for a wrong setting.
        """
        if (
            isinstance(value, dict)
            and isinstance(value.get("prompt"), str)
            and value.keys() <= REQUEST_KEYS
            and all(isinstance(value.get(key), kind) for key, kind in TYPED_KEYS.items())
        ):
            texts: Any = {key: as_text(value[key]) for key in TEXT_KEYS if value.get(key) is not None}
            settings: Any = {key: value.get(key) for key in TYPED_KEYS}
            own = AgentSettings.of({key: value[key] for key in STEP_SETTING_KEYS if key in value})
            return cls(**texts, **settings, settings=own, explicit=True)
        return cls(as_prompt(value))


def as_prompt(input_value: Any) -> str:
    """Format any value as a prompt: an object's `input`, then its other keys as JSON under `## Context`."""
    if not isinstance(input_value, Mapping) or "input" not in input_value:
        return as_text(input_value)
    rest = {key: value for key, value in input_value.items() if key != "input"}
    text = as_text(input_value["input"])
    return f"{text}\n\n## Context\n\n```json\n{as_text(rest)}\n```" if rest else text


def as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(decode_json(encode_json(value)), indent=2, ensure_ascii=False)


def prompt_with_messages(prompt: str, messages: Sequence[str]) -> str:
    """Append the user's later messages to a prompt: which of them the agent received is unknown."""
    return "\n\n".join([prompt, STEERING_HEADING, *messages]) if messages else prompt


def prompt_with_schema(prompt: str, schema: Mapping[str, Any]) -> str:
    return f"{prompt}\n\nAnswer with JSON only. It must match this JSON Schema:\n{json.dumps(dict(schema))}"


def retry_prompt(problem: str, schema: Mapping[str, Any]) -> str:
    return prompt_with_schema(f"Your answer does not match the schema: {problem}. Answer again.", schema)
