"""Which key was meant by one that is not known: what other tools call so, or the closest."""

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
"""Words for the same thing, as they are used elsewhere, and what may be meant by each."""


def suggest_key(key: str, known: Collection[str]) -> str | None:
    """The known key that was likely meant."""
    return next((word for word in KEY_SYNONYMS.get(key, ()) if word in known), None) or closest_name(
        key, known
    )


def suggest_keys(keys: Iterable[str], known: Collection[str]) -> set[str]:
    """What was meant by those of the keys that are not known: it is there, if under another name."""
    return {word for key in keys if key not in known and (word := suggest_key(key, known)) is not None}


def describe_unknown_key(key: str, known: Collection[str]) -> tuple[str, str]:
    """What is said of a key that is not known, and the fix."""
    if word := suggest_key(key, known):
        return f"unknown key '{key}'. Did you mean '{word}'?", ""
    return f"unknown key '{key}'", f"Known: {', '.join(known)}."
