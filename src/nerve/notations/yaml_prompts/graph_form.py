"""The `nodes:` form: a graph of prompts, commands, shell scripts and gates."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from nerve.notations.yaml_prompts.chain_form import read_prompt_name
from nerve.notations.yaml_prompts.parsing import (
    AGENT_KEYS,
    NODE_KEYS,
    YamlDiagnostics,
    copy_values,
    describe_yaml_value,
    put_from_origin,
    put_policies,
    read_list_workflow,
    value_position,
)
from nerve.text.source import LocatedList, LocatedMap, Position

BASH_KEYS = ("env", "cwd", "input")
GATE_KEYS = ("prompt", "message", "choices", "options", "form", "reject", "default")
SCRIPT_VARIABLES = {
    "USER_MESSAGE": "{{ input ?? '' }}",
    "ARGUMENTS": "{{ input ?? '' }}",
    "WORKFLOW_ID": "{{ run.id }}",
    "ARTIFACTS_DIR": "{{ run.artifacts }}",
}
"""Environment variables of scripts, with the same names as in prompts."""
USED_VARIABLE_PATTERN = re.compile(rf"\$\{{?({'|'.join(SCRIPT_VARIABLES)})\b")


def read_nodes(diagnostics: YamlDiagnostics, source: LocatedMap) -> LocatedMap:
    """Return the spec of a file with `nodes:`."""
    fix = "Add at least one '- id: name' with a prompt or a bash script."
    return read_list_workflow(diagnostics, source, "nodes", "graph", partial(read_node, diagnostics), fix)


def read_node(
    diagnostics: YamlDiagnostics, item: Any, position: Position | None, requires_id: bool = True
) -> LocatedMap:
    """Return the spec of a node."""
    node_map = LocatedMap((), position)
    if not isinstance(item, LocatedMap):
        diagnostics.add(
            position, f"A node must be a mapping, got {describe_yaml_value(item)}", "Write '- id: name'."
        )
        return node_map
    diagnostics.check_keys(item, node_keys(node_actions(item)))
    actions = node_actions(item)
    if requires_id:
        diagnostics.require_text(item, "id", "Give the node a unique name.")
    if len(actions) != 1:
        state = f"has {' and '.join(actions)}" if actions else "has no action"
        diagnostics.add(position, f"The node {state}", f"Give it exactly one of: {', '.join(ACTIONS)}.")
        return node_map
    copy_values(item, node_map, ["id"] if item.get("id") is not None else [])
    put_dependencies(item, node_map)
    ACTIONS[actions[0]].read(diagnostics, item, node_map, actions[0])
    put_policies(diagnostics, item, node_map)
    put_node_on_error(diagnostics, item, node_map)
    return node_map


def node_actions(item: LocatedMap) -> list[str]:
    return [key for key in item if key in ACTIONS]


def node_keys(actions: list[str]) -> list[str]:
    """Return the valid keys of a node; the keys of all actions if its action is not clear."""
    kinds = actions if len(actions) == 1 else [*ACTIONS]
    own = [key for kind in kinds for key in ACTIONS[kind].keys]
    return list(dict.fromkeys(["id", "depends_on", *kinds, *NODE_KEYS, *own]))


def put_dependencies(item: LocatedMap, node_map: LocatedMap) -> None:
    value = item.get("depends_on")
    if isinstance(value, str):
        value = LocatedList((), value_position(item, "depends_on")).append_at(
            value, value_position(item, "depends_on")
        )
    if value is not None:
        put_from_origin(node_map, "depends_on", value, item, "depends_on")


def put_node_on_error(diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap) -> None:
    value = item.get("on_error")
    if isinstance(value, LocatedMap) and "kind" not in value:
        value = read_node(diagnostics, value, value.position, requires_id=False)
    if value is not None:
        put_from_origin(node_map, "on_error", value, item, "on_error")


def read_prompt_action(
    diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap, key: str
) -> None:
    node_map["kind"] = "prompt"
    if (
        text := diagnostics.require_text(item, key, "Write the prompt, or 'command: name' for a file.")
    ) is not None:
        put_from_origin(node_map, "text", text, item, key)
    put_agent_options(diagnostics, item, node_map)


def read_command_action(
    diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap, key: str
) -> None:
    node_map["kind"] = "prompt"
    if (name := read_prompt_name(diagnostics, item, key)) is not None:
        put_from_origin(node_map, "file", name, item, key)
    put_agent_options(diagnostics, item, node_map)


def put_agent_options(diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap) -> None:
    """Set the agent options. Nodes may run in parallel, so each has its own conversation by default."""
    copy_values(item, node_map, [key for key in AGENT_KEYS if item.get(key) is not None])
    context = item.get("context", "fresh")
    if context not in ("fresh", "shared"):
        message = f"'context' must be fresh or shared, got {describe_yaml_value(context)}"
        diagnostics.add(
            value_position(item, "context"),
            message,
            "Write 'thread: name' for a named conversation.",
        )
    elif "context" in item and "thread" in item:
        diagnostics.add(
            item.key_positions.get("context"), "'context' and 'thread' exclude each other", "Remove one."
        )
    elif "thread" not in item:
        put_from_origin(node_map, "thread", context, item, "context")


def read_bash_action(diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
    node_map["kind"] = "bash"
    script = diagnostics.require_text(item, key, "Write a shell command.")
    if script is None:
        return
    put_from_origin(node_map, "command", script, item, key)
    copy_values(item, node_map, [key for key in ("cwd", "input") if item.get(key) is not None])
    env = LocatedMap(
        {
            name: SCRIPT_VARIABLES[name]
            for name in SCRIPT_VARIABLES
            if name in USED_VARIABLE_PATTERN.findall(script)
        },
        value_position(item, key),
    )
    env_value = item.get("env")
    if isinstance(env_value, LocatedMap):
        copy_values(env_value, env, env_value)
    if env or env_value is not None:
        put_from_origin(
            node_map,
            "env",
            env if env_value is None or isinstance(env_value, LocatedMap) else env_value,
            item,
            "env",
        )


def read_gate_action(diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
    node_map["kind"] = "gate"
    gate_value = item[key]
    if isinstance(gate_value, str):
        put_from_origin(node_map, "prompt", gate_value, item, key)
    elif isinstance(gate_value, LocatedMap):
        diagnostics.check_keys(gate_value, GATE_KEYS)
        prompt_key = "message" if "message" in gate_value and "prompt" not in gate_value else "prompt"
        if prompt_key in gate_value:
            put_from_origin(node_map, "prompt", gate_value[prompt_key], gate_value, prompt_key)
        copy_values(
            gate_value, node_map, [name for name in GATE_KEYS[2:] if gate_value.get(name) is not None]
        )
    elif gate_value is not None:
        fix = f"Write the question, or a mapping with {', '.join(GATE_KEYS)}."
        diagnostics.add(
            value_position(item, key),
            f"'{key}' must be a question, got {describe_yaml_value(gate_value)}",
            fix,
        )


def read_approval_action(
    diagnostics: YamlDiagnostics, item: LocatedMap, node_map: LocatedMap, key: str
) -> None:
    """Read a gate with two answers; a rejection cancels the run unless `on_reject` is `continue`."""
    read_gate_action(diagnostics, item, node_map, key)
    position = value_position(item, key)
    after = item.get("on_reject", "cancel")
    if after not in ("cancel", "continue"):
        fix = "Write 'on_reject: continue', and give the nodes after it a 'when'."
        diagnostics.add(
            value_position(item, "on_reject"),
            f"'on_reject' must be cancel or continue, got {describe_yaml_value(after)}",
            fix,
        )
    if "choices" not in node_map and "form" not in node_map:
        node_map.set_at("choices", LocatedList(["approve", "reject"], position), position)
        if after != "continue":
            node_map.setdefault("reject", LocatedList(["reject"], position))
    elif after == "continue" and "reject" in node_map:
        message = "'on_reject: continue' and 'reject' contradict each other"
        diagnostics.add(value_position(item, "on_reject"), message, "Remove one of them.")


class NodeAction(NamedTuple):
    """An action of a node: its reader, and its keys in addition to those of every node."""

    read: Callable[[YamlDiagnostics, LocatedMap, LocatedMap, str], None]
    keys: tuple[str, ...] = ()


ACTIONS = {
    "prompt": NodeAction(read_prompt_action, ("context", *AGENT_KEYS)),
    "command": NodeAction(read_command_action, ("context", *AGENT_KEYS)),
    "bash": NodeAction(read_bash_action, BASH_KEYS),
    "gate": NodeAction(read_gate_action),
    "approval": NodeAction(read_approval_action, ("on_reject",)),
}
