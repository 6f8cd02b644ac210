"""`steps:`, a chain of prompts: one Markdown file a step, one after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

from nerve.notations.files import Refused, check_name
from nerve.notations.prompts.shape import (
    AGENT_KEYS,
    NODE_KEYS,
    Reading,
    at,
    carry,
    policies,
    put,
    shown,
    slug,
    workflow,
)
from nerve.spec.source import Map, Place

STEP_KEYS = ("step", "clearContext", "id", *NODE_KEYS, *AGENT_KEYS)
HINTS = {
    "inputs": "Write 'args' for values that this prompt sees as {{ args.name }}.",
    "depends_on": "Steps run one after the other; write 'nodes' instead of 'steps' for a graph.",
    "prompt": "A step names a Markdown file; write 'nodes' instead of 'steps' for prompts in place.",
    "clear_context": "Write clearContext.",
}


def read_steps(reading: Reading, source: Map) -> Map:
    """The workflow that a file with `steps:` stands for."""
    taken: set[str] = set()
    fix = "Add at least one '- step: name'."
    return workflow(reading, source, "steps", "sequence", partial(step, reading, taken), fix)


def step(reading: Reading, taken: set[str], item: Any, place: Place | None) -> Map:
    """One step as a prompt."""
    made = Map({"kind": "prompt"}, place)
    if not isinstance(item, Map):
        reading.tell(place, f"a step must be a mapping, not {shown(item)}", "Write '- step: name'.")
        return made
    reading.keys(item, STEP_KEYS, HINTS)
    name = prompt_name(reading, item, "step") if "step" in item or "prompt" not in item else None
    if name is not None:
        put(made, "id", unique(slug(name), taken), item, "step")
        put(made, "file", name, item, "step")
    carry(item, made, [key for key in ("id", *AGENT_KEYS) if item.get(key) is not None])
    clear_context(reading, item, made)
    policies(reading, item, made)
    on_error(reading, item, made, taken)
    return made


def prompt_name(reading: Reading, item: Map, key: str) -> str | None:
    """The name of a prompt file, if it can only be one in its folder."""
    name = reading.text(item, key, "Name a Markdown file in the folder 'steps', without '.md'.")
    try:
        return check_name(name) if name is not None else None
    except Refused as error:
        reading.tell(at(item, key), str(error), "Name a Markdown file in the folder 'steps', without '.md'.")
        return None


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken."""
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}-{number}"
    taken.add(made)
    return made


def clear_context(reading: Reading, item: Map, made: Map) -> None:
    value = item.get("clearContext")
    if value is None:
        return
    if not isinstance(value, bool):
        said = f"'clearContext' must be true or false, not {shown(value)}"
        reading.tell(at(item, "clearContext"), said, "Write true or false, without quotes.")
    elif value and "thread" in item:
        said = "a step has either 'clearContext: true' or a 'thread'"
        reading.tell(item.keys_at.get("clearContext"), said, "Remove one of the two.")
    elif "thread" not in item:
        put(made, "thread", "fresh" if value else "shared", item, "clearContext")


def on_error(reading: Reading, item: Map, made: Map, taken: set[str]) -> None:
    """What a failure comes to: a word, or a step instead."""
    value = item.get("on_error")
    if isinstance(value, Map) and "kind" not in value:
        value = step(reading, taken, value, value.place)
    if value is not None:
        put(made, "on_error", value, item, "on_error")
