"""`nodes:`, a graph: prompts, commands, shell scripts and gates that depend on each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from nerve.notations.prompts.shape import (
    AGENT_KEYS,
    NODE_KEYS,
    Reading,
    at,
    carry,
    policies,
    put,
    shown,
    workflow,
)
from nerve.notations.prompts.steps import prompt_name
from nerve.spec.source import Map, Place, Seq

BASH_KEYS = ("env", "cwd", "input")
GATE_KEYS = ("prompt", "message", "choices", "options", "form", "reject", "default")
VARIABLES = {
    "USER_MESSAGE": "{{ input ?? '' }}",
    "ARGUMENTS": "{{ input ?? '' }}",
    "WORKFLOW_ID": "{{ run.id }}",
    "ARTIFACTS_DIR": "{{ run.artifacts }}",
}
"""What a script may use as environment variables: the same names as in prompts."""
USED = re.compile(rf"\$\{{?({'|'.join(VARIABLES)})\b")


def read_nodes(reading: Reading, source: Map) -> Map:
    """The workflow that a file with `nodes:` stands for."""
    fix = "Add at least one '- id: name' with a prompt or a bash script."
    return workflow(reading, source, "nodes", "graph", partial(node, reading), fix)


def node(reading: Reading, item: Any, place: Place | None, named: bool = True) -> Map:
    """One node of the graph."""
    made = Map((), place)
    if not isinstance(item, Map):
        reading.tell(place, f"a node must be a mapping, not {shown(item)}", "Write '- id: name'.")
        return made
    reading.keys(item, known_keys(actions_of(item)))
    actions = actions_of(item)
    if named:
        reading.text(item, "id", "Give the node a name of its own.")
    if len(actions) != 1:
        has = f"has {' and '.join(actions)}" if actions else "does nothing"
        reading.tell(place, f"the node {has}", f"Give it exactly one of: {', '.join(ACTIONS)}.")
        return made
    carry(item, made, ["id"] if item.get("id") is not None else [])
    depends_on(item, made)
    ACTIONS[actions[0]].read(reading, item, made, actions[0])
    policies(reading, item, made)
    on_error(reading, item, made)
    return made


def actions_of(item: Map) -> list[str]:
    return [key for key in item if key in ACTIONS]


def known_keys(actions: list[str]) -> list[str]:
    """The keys that a node may have; all there are if it is not clear what it does."""
    kinds = actions if len(actions) == 1 else [*ACTIONS]
    own = [key for kind in kinds for key in ACTIONS[kind].keys]
    return list(dict.fromkeys(["id", "depends_on", *kinds, *NODE_KEYS, *own]))


def depends_on(item: Map, made: Map) -> None:
    value = item.get("depends_on")
    if isinstance(value, str):
        value = Seq((), at(item, "depends_on")).push(value, at(item, "depends_on"))
    if value is not None:
        put(made, "depends_on", value, item, "depends_on")


def on_error(reading: Reading, item: Map, made: Map) -> None:
    value = item.get("on_error")
    if isinstance(value, Map) and "kind" not in value:
        value = node(reading, value, value.place, named=False)
    if value is not None:
        put(made, "on_error", value, item, "on_error")


def prompt(reading: Reading, item: Map, made: Map, key: str) -> None:
    made["kind"] = "prompt"
    if (text := reading.text(item, key, "Write the prompt, or 'command: name' for a file.")) is not None:
        put(made, "text", text, item, key)
    agent(reading, item, made)


def command(reading: Reading, item: Map, made: Map, key: str) -> None:
    made["kind"] = "prompt"
    if (name := prompt_name(reading, item, key)) is not None:
        put(made, "file", name, item, key)
    agent(reading, item, made)


def agent(reading: Reading, item: Map, made: Map) -> None:
    """Which agent a prompt is for. Nodes may run side by side, so each has a conversation of its own."""
    carry(item, made, [key for key in AGENT_KEYS if item.get(key) is not None])
    context = item.get("context", "fresh")
    if context not in ("fresh", "shared"):
        said = f"'context' must be fresh or shared, not {shown(context)}"
        reading.tell(at(item, "context"), said, "Write 'thread: name' for a conversation of another name.")
    elif "context" in item and "thread" in item:
        reading.tell(item.keys_at.get("context"), "a node has either 'context' or a 'thread'", "Remove one.")
    elif "thread" not in item:
        put(made, "thread", context, item, "context")


def bash(reading: Reading, item: Map, made: Map, key: str) -> None:
    made["kind"] = "bash"
    script = reading.text(item, key, "Write a shell command.")
    if script is None:
        return
    put(made, "command", script, item, key)
    carry(item, made, [key for key in ("cwd", "input") if item.get(key) is not None])
    env = Map({name: VARIABLES[name] for name in VARIABLES if name in USED.findall(script)}, at(item, key))
    given = item.get("env")
    if isinstance(given, Map):
        carry(given, env, given)
    if env or given is not None:
        put(made, "env", env if given is None or isinstance(given, Map) else given, item, "env")


def gate(reading: Reading, item: Map, made: Map, key: str) -> None:
    made["kind"] = "gate"
    given = item[key]
    if isinstance(given, str):
        put(made, "prompt", given, item, key)
    elif isinstance(given, Map):
        reading.keys(given, GATE_KEYS)
        asked = "message" if "message" in given and "prompt" not in given else "prompt"
        if asked in given:
            put(made, "prompt", given[asked], given, asked)
        carry(given, made, [name for name in GATE_KEYS[2:] if given.get(name) is not None])
    elif given is not None:
        fix = f"Write the question, or a mapping with {', '.join(GATE_KEYS)}."
        reading.tell(at(item, key), f"'{key}' must be a question, not {shown(given)}", fix)


def approval(reading: Reading, item: Map, made: Map, key: str) -> None:
    """A gate with two answers; a rejection ends the run, unless the workflow continues with it."""
    gate(reading, item, made, key)
    place = at(item, key)
    after = item.get("on_reject", "cancel")
    if after not in ("cancel", "continue"):
        fix = "Write 'on_reject: continue', and give the nodes after it a 'when'."
        reading.tell(
            at(item, "on_reject"), f"'on_reject' must be cancel or continue, not {shown(after)}", fix
        )
    if "choices" not in made and "form" not in made:
        made.put("choices", Seq(["approve", "reject"], place), place)
        if after != "continue":
            made.setdefault("reject", Seq(["reject"], place))
    elif after == "continue" and "reject" in made:
        said = "'on_reject: continue' and 'reject' contradict each other"
        reading.tell(at(item, "on_reject"), said, "Remove one of them.")


class Action(NamedTuple):
    """What a node can be: how it is read, and which keys it may have beside those of every node."""

    read: Callable[[Reading, Map, Map, str], None]
    keys: tuple[str, ...] = ()


ACTIONS = {
    "prompt": Action(prompt, ("context", *AGENT_KEYS)),
    "command": Action(command, ("context", *AGENT_KEYS)),
    "bash": Action(bash, BASH_KEYS),
    "gate": Action(gate),
    "approval": Action(approval, ("on_reject",)),
}
