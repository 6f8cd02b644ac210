"""Read the forms of a workflow in YAML: `steps:` is a chain of prompts, `nodes:` is a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from typing import Any

from nerve.core.suggest import did_you_mean_hint
from nerve.notations.yaml_keys import (
    AGENT_KEYS,
    BASH_KEYS,
    GATE_KEYS,
    MERGE_KEYS,
    NODE_KEYS,
    STEP_KEYS,
    WORKFLOW_KEYS,
)
from nerve.project.safe_files import FileRefused, check_file_name
from nerve.spec.key_suggestions import describe_unknown_key, suggest_key
from nerve.text.source import Diagnostics, LocatedList, LocatedMap, Position
from nerve.text.yaml_reader import MAX_VALUES

FORMS = ("steps", "nodes", "body")
INPUT_TYPES = ("string", "number", "integer", "boolean", "array", "object", "any")
DEFAULT_PROVIDER = "claude"
KEY_HINTS = {
    "inputs": "Write 'args' for values that this prompt sees as {{ args.name }}.",
    "depends_on": "Steps run one after the other; write 'nodes' instead of 'steps' for a graph.",
    "prompt": "A step names a Markdown file; write 'nodes' instead of 'steps' for inline prompts.",
    "clear_context": "Write clearContext.",
}
SCRIPT_VARIABLES = {
    "USER_MESSAGE": "{{ input ?? '' }}",
    "ARGUMENTS": "{{ input ?? '' }}",
    "WORKFLOW_ID": "{{ run.id }}",
    "ARTIFACTS_DIR": "{{ run.artifacts }}",
}
"""Environment variables of scripts, with the same names as in prompts."""
USED_VARIABLE_PATTERN = re.compile(rf"\$\{{?({'|'.join(SCRIPT_VARIABLES)})\b")


PROMPT_FILE_FIX = "Name a Markdown file in the folder 'steps', without '.md'."

ItemReader = Callable[[Any, Position | None], LocatedMap]
"""Reads an item of a list, at its position."""


class YamlForms(Diagnostics):
    """Reads one document and collects its problems."""

    def __init__(self, file: str) -> None:
        super().__init__(file, MAX_VALUES)
        self.used_ids: set[str] = set()
        """The ids of the steps of a chain so far."""

    def read_spec(self, source: object) -> LocatedMap:
        """Return the spec of a document."""
        if not isinstance(source, LocatedMap):
            wrong = f"A workflow must be a mapping, got {describe_yaml_value(source)}"
            message = "The file is empty" if source is None else wrong
            self.add(getattr(source, "position", None), message, "Start with 'name: …'.")
            return LocatedMap()
        forms = present_forms(source)
        if forms != ["body"]:
            self.check_keys(source, (*(forms or FORMS), *WORKFLOW_KEYS, "workspace"))
            forms = present_forms(source)
        if len(forms) > 1:
            message = f"A workflow must have only one of {', '.join(forms)}"
            self.add(source.key_positions.get(forms[1]), message, "Remove all but one.")
            return LocatedMap()
        if forms == ["body"]:
            return source
        if forms == ["nodes"]:
            fix = "Add at least one '- id: name' with a prompt or a bash script."
            return self.read_list_workflow(source, "nodes", "graph", self.read_node, fix)
        fix = "Add at least one '- step: name'."
        return self.read_list_workflow(source, "steps", "sequence", self.read_step, fix)

    def check_keys(
        self, source: LocatedMap, known: Collection[str], hints: dict[str, str] | None = None
    ) -> None:
        """Report unknown keys; parsing continues with the suggested keys."""
        for key in [key for key in source if key not in known]:
            position, hint = source.key_positions.get(key), (hints or {}).get(key)
            if hint is not None:
                self.add(position, f"Unknown key '{key}'", hint)
                continue
            self.add(position, *describe_unknown_key(key, known))
            if (word := suggest_key(key, known)) is not None and word not in source:
                source.set_from(word, source[key], source, key)
                del source[key]

    def add_wrong_value(self, source: LocatedMap, key: str, expected: str, fix: str) -> None:
        message = f"'{key}' must be {expected}, got {describe_yaml_value(source.get(key))}"
        self.add(source.position_of_value(key), message, fix)

    def require_text(self, source: LocatedMap, key: str, fix: str) -> str | None:
        """Return a required non-empty string, or None after adding a problem."""
        value = source.get(key)
        if key not in source:
            self.add(source.position, f"'{key}' is missing", fix)
        elif not isinstance(value, str):
            self.add_wrong_value(source, key, "a string", fix)
        elif not value.strip():
            self.add(source.position_of_value(key), f"'{key}' is empty", fix)
        else:
            return value
        return None

    def read_header(self, source: LocatedMap) -> LocatedMap:
        """Read the keys that every workflow has."""
        data = LocatedMap((), source.position)
        self.require_text(source, "name", "Add a name: letters, digits, '-' and '_'.")
        self.require_text(source, "description", "Say what the workflow does, and when to use it.")
        for key in ("provider", "model"):
            if source.get(key) is not None:
                self.require_text(source, key, f"Name a {key}, or remove the line.")
        data.copy_from(source, *(key for key in WORKFLOW_KEYS if key != "inputs"))
        data.setdefault("provider", DEFAULT_PROVIDER)
        if source.get("inputs") is not None:
            data.set_from("inputs", self.read_declared_inputs(source), source, "inputs")
        return data

    def read_declared_inputs(self, source: LocatedMap) -> Any:
        """Return the declared inputs; an input may be declared by its type alone."""
        raw_inputs = source["inputs"]
        if not isinstance(raw_inputs, LocatedMap):
            fix = (
                "Write 'name: string', one per line, or 'name:' with type, description, required and default."
            )
            self.add_wrong_value(source, "inputs", "a mapping", fix)
            return LocatedMap()
        inputs = LocatedMap((), raw_inputs.position)
        for name, value in raw_inputs.items():
            declaration = value
            if value is None or (isinstance(value, str) and value in INPUT_TYPES):
                fields = {} if value is None else {"type": value}
                declaration = LocatedMap(fields, raw_inputs.position_of_value(name))
            elif not isinstance(value, LocatedMap):
                close = did_you_mean_hint(value, INPUT_TYPES) if isinstance(value, str) else ""
                got = f"{describe_yaml_value(value)}{close}"
                fix = "" if close else f"Types: {', '.join(INPUT_TYPES)}."
                position = raw_inputs.position_of_value(name)
                self.add(position, f"The input '{name}' must be a type or a mapping, got {got}", fix)
            inputs.set_from(name, declaration, raw_inputs, name)
        return inputs

    def put_policies(self, source: LocatedMap, target: LocatedMap) -> None:
        """Copy the policies of a step, with short forms expanded."""
        for key in NODE_KEYS:
            value = source.get(key)
            if value is None or key == "on_error":
                continue
            match key, value:
                case "retry", int() if not isinstance(value, bool):
                    value = LocatedMap({"attempts": value}, source.position_of_value(key))
                case "retry", _ if not isinstance(value, LocatedMap):
                    self.add_wrong_value(
                        source, key, "a number of attempts or a mapping", "Write 'retry: 3'."
                    )
                    continue
                case "when", bool():
                    value = str(value).lower()
                case "expect", _:
                    value = self.read_expectations(source)
            target.set_from(key, value, source, key)

    def read_expectations(self, source: LocatedMap) -> LocatedList:
        """Return the expectations of a step; a string names a file in the artifacts of the run."""
        raw = source["expect"]
        position = source.position_of_value("expect")
        items = raw if isinstance(raw, LocatedList) else LocatedList().append_at(raw, position)
        expectations = LocatedList((), position)
        for number, item in enumerate(items):
            where = getattr(item, "position", None) or items.value_positions.get(number) or position
            if isinstance(item, str):
                if reason := explain_outside_path(item):
                    self.add(where, f"The file {item!r} {reason}", "Name a file in the artifacts of the run.")
                item = LocatedMap({"file": "{{ run.artifacts }}/" + item}, where)
            elif not isinstance(item, LocatedMap):
                fix = "Write a file name, or a mapping with file, command, condition or schema."
                self.add(where, f"'expect' must be a file or a check, got {describe_yaml_value(item)}", fix)
            expectations.append_at(item, where)
        return expectations

    def read_list_workflow(
        self, source: LocatedMap, key: str, kind: str, item: ItemReader, fix: str
    ) -> LocatedMap:
        """Return the spec of a workflow whose body is the list under a key."""
        data = self.read_header(source)
        body = LocatedMap({"kind": kind}, source.key_positions.get(key) or source.position)
        body.set_from("steps", self.read_items(source, key, item, fix), source, key)
        body.copy_from(source, "workspace")
        return data.set_at("body", body, body.position)

    def read_items(self, source: LocatedMap, key: str, item: ItemReader, fix: str) -> LocatedList:
        """Return the nodes of the list under a key; `fix` shows how to write one."""
        raw, position = source.get(key), source.position_of_value(key)
        steps = LocatedList((), position)
        if isinstance(raw, LocatedMap) and raw:
            first = next(iter(raw)).lstrip("-")
            message = f"'{key}' must be a list, got a mapping"
            self.add(position, message, f"Write '- {first}', with a dash and a space before each.")
            return steps
        if not isinstance(raw, LocatedList) or not raw:
            what = "is empty" if raw in (None, []) else f"must be a list, got {describe_yaml_value(raw)}"
            self.add(position, f"'{key}' {what if key in source else 'is missing'}", fix)
            return steps
        for number, entry in enumerate(raw):
            where = getattr(entry, "position", None) or raw.value_positions.get(number)
            steps.append_at(item(entry, where), where)
        return steps

    def read_step(self, item: Any, position: Position | None) -> LocatedMap:
        """Return the prompt node of a step."""
        prompt_node = LocatedMap({"kind": "prompt"}, position)
        if not isinstance(item, LocatedMap):
            message = f"A step must be a mapping, got {describe_yaml_value(item)}"
            self.add(position, message, "Write '- step: name'.")
            return prompt_node
        self.check_keys(item, STEP_KEYS, KEY_HINTS)
        name = self.read_prompt_name(item, "step") if "step" in item or "prompt" not in item else None
        if name is not None:
            slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
            id = first = slug if slug[:1].isalpha() else f"step-{slug}".rstrip("-")
            numbers = count(2)
            while id in self.used_ids:
                id = f"{first}-{next(numbers)}"
            self.used_ids.add(id)
            prompt_node.set_from("id", id, item, "step")
            prompt_node.set_from("file", name, item, "step")
        prompt_node.copy_from(item, "id", *AGENT_KEYS)
        self.put_thread(item, prompt_node)
        self.put_policies(item, prompt_node)
        self.put_on_error(item, prompt_node, self.read_step)
        return prompt_node

    def read_prompt_name(self, item: LocatedMap, key: str) -> str | None:
        """Return the name of a prompt file; report a name that is not a plain file name."""
        name = self.require_text(item, key, PROMPT_FILE_FIX)
        try:
            return check_file_name(name) if name is not None else None
        except FileRefused as error:
            self.add(item.position_of_value(key), str(error), PROMPT_FILE_FIX)
            return None

    def put_thread(self, item: LocatedMap, prompt_node: LocatedMap) -> None:
        value = item.get("clearContext")
        if value is None:
            return
        if not isinstance(value, bool):
            fix = "Write true or false, without quotes."
            self.add_wrong_value(item, "clearContext", "true or false", fix)
        elif value and "thread" in item:
            message = "'clearContext: true' and 'thread' exclude each other"
            self.add(item.key_positions.get("clearContext"), message, "Remove one of the two.")
        elif "thread" not in item:
            prompt_node.set_from("thread", "fresh" if value else "shared", item, "clearContext")

    def put_on_error(self, item: LocatedMap, node_map: LocatedMap, read: ItemReader) -> None:
        """Set the error policy: a keyword, a node of the spec, or an item of this form to run instead."""
        value = item.get("on_error")
        if isinstance(value, LocatedMap) and "kind" not in value:
            value = read(value, value.position)
        if value is not None:
            node_map.set_from("on_error", value, item, "on_error")

    def read_node(self, item: Any, position: Position | None, requires_id: bool = True) -> LocatedMap:
        """Return the spec of a node."""
        node_map = LocatedMap((), position)
        if not isinstance(item, LocatedMap):
            message = f"A node must be a mapping, got {describe_yaml_value(item)}"
            self.add(position, message, "Write '- id: name'.")
            return node_map
        self.check_keys(item, node_keys(node_actions(item)))
        actions = node_actions(item)
        if requires_id:
            self.require_text(item, "id", "Give the node a unique name.")
        if len(actions) != 1:
            state = f"has {' and '.join(actions)}" if actions else "has no action"
            self.add(position, f"The node {state}", f"Give it exactly one of: {', '.join(ACTIONS)}.")
            return node_map
        node_map.copy_from(item, "id")
        if isinstance(name := item.get("depends_on"), str):
            position = item.position_of_value("depends_on")
            item["depends_on"] = LocatedList.of([(name, position)], position)
        node_map.copy_from(item, "depends_on")
        read, _ = ACTIONS[actions[0]]
        read(self, item, node_map, actions[0])
        self.put_policies(item, node_map)
        self.put_on_error(item, node_map, partial(self.read_node, requires_id=False))
        return node_map

    def read_prompt_action(self, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
        """Read a prompt or its file. Nodes may run in parallel, so each has its own conversation."""
        node_map["kind"] = "prompt"
        if key == "command":
            target, value = "file", self.read_prompt_name(item, key)
        else:
            fix = "Write the prompt, or 'command: name' for a file."
            target, value = "text", self.require_text(item, key, fix)
        if value is not None:
            node_map.set_from(target, value, item, key)
        node_map.copy_from(item, *AGENT_KEYS)
        context = item.get("context", "fresh")
        if context not in ("fresh", "shared"):
            fix = "Write 'thread: name' for a named conversation."
            self.add_wrong_value(item, "context", "fresh or shared", fix)
        elif "context" in item and "thread" in item:
            message = "'context' and 'thread' exclude each other"
            self.add(item.key_positions.get("context"), message, "Remove one.")
        elif "thread" not in item:
            node_map.set_from("thread", context, item, "context")

    def read_bash_action(self, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
        node_map["kind"] = "bash"
        script = self.require_text(item, key, "Write a shell command.")
        if script is None:
            return
        node_map.set_from("command", script, item, key)
        node_map.copy_from(item, "cwd", "input")
        used = USED_VARIABLE_PATTERN.findall(script)
        env: Any = LocatedMap(
            {name: value for name, value in SCRIPT_VARIABLES.items() if name in used},
            item.position_of_value(key),
        )
        own = item.get("env")
        if isinstance(own, LocatedMap):
            for name, value in own.items():
                env.set_from(name, value, own, name)
        elif own is not None:
            env = own
        if env or own is not None:
            node_map.set_from("env", env, item, "env")

    def read_gate_action(self, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
        node_map["kind"] = "gate"
        gate_value = item[key]
        if isinstance(gate_value, str):
            node_map.set_from("prompt", gate_value, item, key)
        elif isinstance(gate_value, LocatedMap):
            self.check_keys(gate_value, GATE_KEYS)
            prompt_key = "message" if "message" in gate_value and "prompt" not in gate_value else "prompt"
            if prompt_key in gate_value:
                node_map.set_from("prompt", gate_value[prompt_key], gate_value, prompt_key)
            node_map.copy_from(gate_value, *GATE_KEYS[2:])
        elif gate_value is not None:
            fix = f"Write the question, or a mapping with {', '.join(GATE_KEYS)}."
            self.add_wrong_value(item, key, "a question", fix)

    def read_approval_action(self, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
        """Read a gate with two answers; a rejection cancels the run unless `on_reject` is `continue`."""
        self.read_gate_action(item, node_map, key)
        position = item.position_of_value(key)
        after = item.get("on_reject", "cancel")
        if after not in ("cancel", "continue"):
            fix = "Write 'on_reject: continue', and give the nodes after it a 'when'."
            self.add_wrong_value(item, "on_reject", "cancel or continue", fix)
        if "choices" not in node_map and "form" not in node_map:
            node_map.set_at("choices", LocatedList(["approve", "reject"], position), position)
            if after != "continue":
                node_map.setdefault("reject", LocatedList(["reject"], position))
        elif after == "continue" and "reject" in node_map:
            message = "'on_reject: continue' and 'reject' contradict each other"
            self.add(item.position_of_value("on_reject"), message, "Remove one of them.")

    def read_merge_action(self, item: LocatedMap, node_map: LocatedMap, key: str) -> None:
        node_map["kind"] = "merge"
        if (name := self.require_text(item, key, "Name a step that has a workspace.")) is not None:
            node_map.set_from("of", name, item, key)
        node_map.copy_from(item, *MERGE_KEYS)


def describe_yaml_value(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def explain_outside_path(name: str) -> str:
    """Return why a file name is not inside its folder, or an empty string."""
    parts = re.split(r"[/\\]", name)
    if not name.strip() or len(name) > 512:
        return "must have 1 to 512 characters"
    if name[0] in "/\\~" or ".." in parts or re.match(r"[A-Za-z]:", name):
        return "leads out of the artifacts"
    return ""


def present_forms(source: LocatedMap) -> list[str]:
    return [form for form in FORMS if form in source]


def node_actions(item: LocatedMap) -> list[str]:
    return [key for key in item if key in ACTIONS]


def node_keys(actions: list[str]) -> list[str]:
    """Return the valid keys of a node; the keys of all actions if its action is not clear."""
    kinds = actions if len(actions) == 1 else [*ACTIONS]
    own = [key for kind in kinds for key in ACTIONS[kind][1]]
    return list(dict.fromkeys(["id", "depends_on", *kinds, *NODE_KEYS, *own]))


ActionReader = Callable[[YamlForms, LocatedMap, LocatedMap, str], None]
ACTIONS: dict[str, tuple[ActionReader, tuple[str, ...]]] = {
    "prompt": (YamlForms.read_prompt_action, ("context", *AGENT_KEYS)),
    "command": (YamlForms.read_prompt_action, ("context", *AGENT_KEYS)),
    "bash": (YamlForms.read_bash_action, BASH_KEYS),
    "gate": (YamlForms.read_gate_action, ()),
    "approval": (YamlForms.read_approval_action, ("on_reject",)),
    "merge": (YamlForms.read_merge_action, MERGE_KEYS),
}
"""The actions of a node: the reader, and the keys in addition to those of every node."""
