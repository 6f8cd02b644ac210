"""Suggestions for unknown keys: synonyms from other tools, or the closest known key."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nerve.core.suggest import closest_name

KEY_SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("id", "title", "workflow"), ("name", "id")),
    "name": ("step", "id"),
    **dict.fromkeys(("needs", "requires", "dependencies", "after"), ("depends_on",)),
    **dict.fromkeys(("run", "script", "shell", "cmd"), ("bash", "command")),
    **dict.fromkeys(("if", "condition"), ("when", "condition")),
    **dict.fromkeys(("ask", "question", "message"), ("gate", "message", "prompt")),
    "prompt": ("text", "message"),
    **dict.fromkeys(("expression", "expr", "code"), ("transform", "condition", "expression")),
    **dict.fromkeys(("tasks", "stages", "jobs", "branches", "nodes"), ("steps", "branches")),
    **dict.fromkeys(("if_true", "true", "on_true", "on_success"), ("then", "next")),
    **dict.fromkeys(("if_false", "false", "on_false"), ("else", "otherwise")),
    **dict.fromkeys(("on_failure", "catch"), ("on_error",)),
    **dict.fromkeys(("goto", "to", "transition"), ("next",)),
    **dict.fromkeys(("retries", "attempts"), ("retry", "max_retries")),
    **dict.fromkeys(("params", "parameters", "arguments", "variables"), ("inputs", "args", "params")),
    "value": ("key", "expression"),
    "kind": ("type",),
}
"""Synonyms that other tools use, and the keys that each may mean."""


def suggest_key(key: str, known: Collection[str]) -> str | None:
    """Return the known key that an unknown key most likely means, or None."""
    return next((word for word in KEY_SYNONYMS.get(key, ()) if word in known), None) or closest_name(
        key, known
    )


def suggest_keys(keys: Iterable[str], known: Collection[str]) -> set[str]:
    """Return the known keys that the unknown ones of `keys` most likely mean."""
    return {word for key in keys if key not in known and (word := suggest_key(key, known)) is not None}


def describe_unknown_key(key: str, known: Collection[str]) -> tuple[str, str]:
    """Return the message and the fix for an unknown key."""
    if word := suggest_key(key, known):
        return f"Unknown key '{key}'. Did you mean '{word}'?", ""
    return f"Unknown key '{key}'", f"Known: {', '.join(known)}."
