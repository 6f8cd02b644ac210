"""The `steps:` form: a chain of prompts with one Markdown file per step."""

from __future__ import annotations

from functools import partial
from typing import Any

from nerve.notations.yaml_prompts.parsing import (
    AGENT_KEYS,
    NODE_KEYS,
    YamlDiagnostics,
    copy_values,
    describe_yaml_value,
    put_from_origin,
    put_policies,
    read_list_workflow,
    step_slug,
    value_position,
)
from nerve.project.safe_files import FileRefused, check_file_name
from nerve.text.source import LocatedMap, Position

STEP_KEYS = ("step", "clearContext", "id", *NODE_KEYS, *AGENT_KEYS)
KEY_HINTS = {
    "inputs": "Write 'args' for values that this prompt sees as {{ args.name }}.",
    "depends_on": "Steps run one after the other; write 'nodes' instead of 'steps' for a graph.",
    "prompt": "A step names a Markdown file; write 'nodes' instead of 'steps' for inline prompts.",
    "clear_context": "Write clearContext.",
}


def read_steps(diagnostics: YamlDiagnostics, source: LocatedMap) -> LocatedMap:
    """Return the spec of a file with `steps:`."""
    used_ids: set[str] = set()
    fix = "Add at least one '- step: name'."
    return read_list_workflow(
        diagnostics, source, "steps", "sequence", partial(read_step, diagnostics, used_ids), fix
    )


def read_step(
    diagnostics: YamlDiagnostics, used_ids: set[str], item: Any, position: Position | None
) -> LocatedMap:
    """Return the prompt node of a step."""
    prompt_node = LocatedMap({"kind": "prompt"}, position)
    if not isinstance(item, LocatedMap):
        diagnostics.add(
            position, f"A step must be a mapping, got {describe_yaml_value(item)}", "Write '- step: name'."
        )
        return prompt_node
    diagnostics.check_keys(item, STEP_KEYS, KEY_HINTS)
    name = read_prompt_name(diagnostics, item, "step") if "step" in item or "prompt" not in item else None
    if name is not None:
        put_from_origin(prompt_node, "id", unique_step_id(step_slug(name), used_ids), item, "step")
        put_from_origin(prompt_node, "file", name, item, "step")
    copy_values(item, prompt_node, [key for key in ("id", *AGENT_KEYS) if item.get(key) is not None])
    put_thread(diagnostics, item, prompt_node)
    put_policies(diagnostics, item, prompt_node)
    put_step_on_error(diagnostics, item, prompt_node, used_ids)
    return prompt_node


def read_prompt_name(diagnostics: YamlDiagnostics, item: LocatedMap, key: str) -> str | None:
    """Return the name of a prompt file; report a name that is not a plain file name."""
    name = diagnostics.require_text(item, key, "Name a Markdown file in the folder 'steps', without '.md'.")
    try:
        return check_file_name(name) if name is not None else None
    except FileRefused as error:
        diagnostics.add(
            value_position(item, key),
            str(error),
            "Name a Markdown file in the folder 'steps', without '.md'.",
        )
        return None


def unique_step_id(name: str, used_ids: set[str]) -> str:
    """Return the name, with a number appended if it is already used."""
    candidate, number = name, 1
    while candidate in used_ids:
        number += 1
        candidate = f"{name}-{number}"
    used_ids.add(candidate)
    return candidate


def put_thread(diagnostics: YamlDiagnostics, item: LocatedMap, prompt_node: LocatedMap) -> None:
    value = item.get("clearContext")
    if value is None:
        return
    if not isinstance(value, bool):
        message = f"'clearContext' must be true or false, got {describe_yaml_value(value)}"
        diagnostics.add(value_position(item, "clearContext"), message, "Write true or false, without quotes.")
    elif value and "thread" in item:
        message = "'clearContext: true' and 'thread' exclude each other"
        diagnostics.add(item.key_positions.get("clearContext"), message, "Remove one of the two.")
    elif "thread" not in item:
        put_from_origin(prompt_node, "thread", "fresh" if value else "shared", item, "clearContext")


def put_step_on_error(
    diagnostics: YamlDiagnostics, item: LocatedMap, prompt_node: LocatedMap, used_ids: set[str]
) -> None:
    """Set the error policy of a step: a keyword, or a step to run instead."""
    value = item.get("on_error")
    if isinstance(value, LocatedMap) and "kind" not in value:
        value = read_step(diagnostics, used_ids, value, value.position)
    if value is not None:
        put_from_origin(prompt_node, "on_error", value, item, "on_error")
