"""Read a workflow of Archon into the spec: the meaning is that of Archon's engine."""

from __future__ import annotations

import contextlib
import glob
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nerve.core.slugs import slugify
from nerve.core.suggest import did_you_mean_hint
from nerve.core.trigger_rules import TRIGGER_RULES
from nerve.notations.archon.blocks import FindSource, IncludedBlock, UnreadableInclude, expand_includes
from nerve.notations.archon.conditions import translate_condition
from nerve.notations.archon.graph_order import LayeredNodes
from nerve.notations.archon.mcp_servers import read_mcp_servers
from nerve.notations.archon.references import (
    BASE_BRANCH_ID,
    DEFAULT_DOCS_FOLDER,
    VARIABLES,
    FailingReference,
    NodeOutput,
    PreviousOutputs,
    TextScope,
    UnreadableReference,
    member,
    quote,
    template_expression,
    translate_template,
)
from nerve.notations.archon.scripts import (
    VARIABLE_NAME,
    ScriptTranslator,
    TranslatedScript,
    folder_prelude,
    input_variable,
    script_environment,
)
from nerve.project.safe_files import FileRefused, check_file_name
from nerve.text.source import Diagnostics, Document, LocatedList, LocatedMap, Position
from nerve.text.yaml_reader import MAX_VALUES

DEFAULT_PROVIDER = "claude"
SCRIPT_SECONDS = 120
"""Archon ends a script after two minutes."""
IDLE_SECONDS = 1800
"""Archon ends an agent that says nothing for half an hour."""
RETRY_SECONDS, DEFAULT_AGENT_RETRIES = 3, 2
CRASHES = ("AgentEnded",)
"""The failures of agents that Archon always takes for transient."""
TRANSIENT_TEXTS = (
    "timeout",
    "econnrefused",
    "econnreset",
    "etimedout",
    "rate limit",
    "too many requests",
    "429",
    "502",
    "503",
    "529",
    "overloaded",
    "at capacity",
    "network error",
    "socket hang up",
    "exited with code",
    "claude code crash",
)
"""Archon takes the failure of a script for transient if its error output contains one of these."""
FATAL_TEXTS = (
    "unauthorized",
    "forbidden",
    "invalid token",
    "authentication failed",
    "permission denied",
    "401",
    "403",
    "credit balance",
    "session limit",
    "usage limit reached",
    "credit exhaustion",
)
"""Archon tries no step again whose error contains one of these, whatever `retry` says."""
TRANSIENT_CRASH = {"on": CRASHES}
TRANSIENT_CRASH_OR_SILENCE = {"on": (*CRASHES, "TimeoutError")}
TRANSIENT_SCRIPT_FAILURE = {"on": ("ExitCode",), "on_text": TRANSIENT_TEXTS, "not_on_text": FATAL_TEXTS}
"""The failures of each kind of step after which Archon tries it again if `retry.on_error` is `transient`."""
ANY_FAILURE = {"not_on_text": FATAL_TEXTS}
"""The failures after which Archon tries a step again if `retry.on_error` is `all`."""
WORKFLOW_KEYS = frozenset(
    {
        "name",
        "description",
        "provider",
        "model",
        "interactive",
        "mutates_checkout",
        "tags",
        "inputs",
        "returns",
    }
    | {"nodes", "steps", "loop", "prompt", "worktree", "effort", "modelReasoningEffort"}
)
IGNORED_WORKFLOW_KEYS = {
    "interactive": "",
    "mutates_checkout": "",
    "tags": "",
}
REFUSED_WORKFLOW_KEYS = {
    **dict.fromkeys(
        ("thinking", "webSearchMode", "betas", "sandbox", "fallbackModel"),
        "A setting of one vendor's agent is not supported",
    ),
    "container": "Runs in a container are not supported",
    "evidence_policy": "The evidence gate is not supported; use expect on the last step",
    "persist_sessions": "Conversations do not outlive a run",
    "requires": "Connections to accounts are not supported",
    "outcome_field": "An outcome apart from the end of the run is not supported",
    "additionalDirectories": "Further folders for agents are not supported",
}
BASE_KEYS = frozenset(
    {"id", "description", "depends_on", "when", "trigger_rule", "always_run", "output_type"}
)
AGENT_KEYS = frozenset(
    {
        "model",
        "provider",
        "context",
        "output_format",
        "allowed_tools",
        "denied_tools",
        "idle_timeout",
        "retry",
    }
    | {"maxBudgetUsd", "with", "mcp", "skills", "hooks", "effort", "systemPrompt", "agents"}
)
REFUSED_NODE_KEYS = {
    "thinking": "The thinking of a step is not supported",
    "fallbackModel": "A second model is not supported; use a fallback provider",
    "settingSources": "The setting sources of a step are not supported yet",
    "betas": "Beta headers are not supported",
    "sandbox": "Sandbox settings of a step are not supported",
    "pi": "Settings of Pi are not supported",
    "persist_session": "Conversations do not outlive a run",
}
"""Keys that Archon knows and Nerve cannot honour yet, with the reason."""
SCRIPT_RUNTIMES = ("bun", "uv")
BASE_BRANCH_COMMAND = """\
branch=$(git symbolic-ref --quiet --short refs/remotes/origin/HEAD | sed 's,^origin/,,')
for name in main master; do
  if [ -z "$branch" ] && git show-ref --quiet "refs/remotes/origin/$name"; then branch=$name; fi
done
if [ -z "$branch" ]; then
  echo "No base branch found. Set worktree.baseBranch in .archon/config.yaml." >&2
  exit 1
fi
echo "$branch"
"""

SUBAGENT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

NodeReader = Callable[["ArchonReader", LocatedMap, LocatedMap], None]


class ArchonReader(Diagnostics):
    """Reads one document of Archon and collects its problems."""

    def __init__(
        self,
        file: str,
        find_source: FindSource | None = None,
        read_json: Callable[[str], Any] | None = None,
        config: LocatedMap | None = None,
    ):
        super().__init__(file, MAX_VALUES)
        self.find_source, self.read_json, self.config = find_source, read_json, config
        """How to read files of the project, and its configuration; None before it is known."""
        self.provider, self.effort = DEFAULT_PROVIDER, ""
        """The provider and the effort of the steps that set none."""
        self.block_by_id: dict[str, IncludedBlock] = {}
        self.outputs: dict[str, NodeOutput] = {}
        self.layers = LayeredNodes([])
        self.used_variables: set[str] = set()
        self.has_worktree = False
        """Whether the run works in a worktree of its own."""
        self.prompt_scopes: dict[int, TextScope] = {}
        """The scopes of the prompts in files, by the identity of their node."""
        self.input_names: tuple[str, ...] = ()
        self.outer_ids: frozenset[str] = frozenset()
        """In a group: the nodes outside that have ended before it."""
        self.previous: PreviousOutputs | None = None
        """In a group: what its nodes read of the previous iteration."""

    # -- the workflow -----------------------------------------------------------------------------

    def read_spec(self, source: LocatedMap) -> LocatedMap:
        """Return the spec of a document."""
        data = LocatedMap((), source.position)
        message = "This is a workflow of Archon, read with Archon's meaning"
        self.add_note(source.position, message, "nerve convert writes it in Nerve's form.")
        self.check_workflow_keys(source)
        data.copy_from(source, "name", "description", "provider")
        data.setdefault("provider", DEFAULT_PROVIDER)
        self.put_model(source, data)
        self.provider = str(data["provider"])
        effort = source.get("effort") or source.get("modelReasoningEffort")
        self.effort = effort if isinstance(effort, str) else ""
        if source.get("inputs") is not None:
            data.set_from("inputs", self.read_inputs(source), source, "inputs")
        if "nodes" in source:
            body = self.read_nodes(source)
        elif "steps" in source:
            body = self.read_steps(source)
        else:
            body = self.read_whole_loop(source)
        # The parallel nodes of Archon work in one folder by design.
        body.setdefault("workspace", "shared")
        if self.has_worktree:
            steps = LocatedList.of([(body, body.position)], body.position)
            body = LocatedMap({"kind": "sequence", "steps": steps}, body.position)
            body.set_from("workspace", self.read_worktree(), source, "worktree")
        return data.set_at("body", body, body.position)

    def read_worktree(self) -> LocatedMap:
        """Return the workspace of a worktree, as the configuration describes it."""
        workspace = LocatedMap({"kind": "worktree", "base": "HEAD", "merge": "none"})
        settings = None if self.config is None else self.config.get("worktree")
        if not isinstance(settings, LocatedMap):
            return workspace
        base, files = settings.get("baseBranch"), settings.get("copyFiles")
        if isinstance(base, str) and base.strip():
            workspace["base"] = base.strip()
        names = files if isinstance(files, list) else [] if files is None else [files]
        if not all(isinstance(name, str) and name.strip() and "->" not in name for name in names):
            message = "'worktree.copyFiles' of .archon/config.yaml must be a list of files"
            self.add(None, message, "Write [.env], without '->'.")
        elif names:
            workspace["files"] = [glob.escape(name.strip()) for name in names]
        if settings.get("initSubmodules") is False:
            message = (
                "'worktree.initSubmodules: false' has no effect: a worktree has the submodules of the project"
            )
            self.add_note(None, message, severity="warning")
        return workspace

    def use_variable(self, name: str) -> None:
        """Note a variable that a text uses; one with another meaning in a worktree is refused."""
        if name == "STATE_DIR" and self.has_worktree:
            message = "'$STATE_DIR' in a worktree is not supported: it is a folder of the project"
            raise UnreadableReference(message, "Remove worktree.enabled, or the variable.")
        self.used_variables.add(name)

    def complete(self, document: Document) -> None:
        """Add the step that finds the base branch, if a text or a prompt file uses it."""
        if "BASE_BRANCH" in self.used_variables:
            document.data["body"] = self.with_base_branch(document.data["body"])

    def check_workflow_keys(self, source: LocatedMap) -> None:
        for key in source:
            position = source.key_positions.get(key)
            if key in REFUSED_WORKFLOW_KEYS:
                self.add(position, f"'{key}': {REFUSED_WORKFLOW_KEYS[key]}", "Remove it.")
            elif key not in WORKFLOW_KEYS:
                self.add_note(position, f"Unknown key '{key}' is ignored, as by Archon", severity="warning")
        self.has_worktree = asks_for_worktree(source)
        for key in ("name", "description"):
            if not isinstance(source.get(key), str) or not source[key].strip():
                self.add(source.position_of_value(key), f"'{key}' must be a text", f"Write '{key}: …'.")

    def read_inputs(self, source: LocatedMap) -> LocatedMap:
        declared = source["inputs"]
        inputs = LocatedMap((), source.position_of_value("inputs"))
        if not isinstance(declared, LocatedMap):
            self.add(
                source.position_of_value("inputs"), "'inputs' must be a mapping", "Write 'name:' below it."
            )
            return inputs
        self.input_names = tuple(declared)
        for name, value in declared.items():
            item = LocatedMap({"type": "any"}, declared.position_of_value(name))
            if isinstance(value, LocatedMap):
                item.copy_from(value, "required", "default", "description")
            inputs.set_from(name, item, declared, name)
        return inputs

    def with_base_branch(self, body: LocatedMap) -> LocatedMap:
        """Return a body that finds the base branch first."""
        step: dict[str, Any] = {"kind": "bash", "command": BASE_BRANCH_COMMAND, "input": "", "timeout": 120}
        if isinstance(branch := self.setting("worktree", "baseBranch"), str):
            step = {"kind": "transform", "expression": quote(branch)}
        first = LocatedMap({**step, "id": BASE_BRANCH_ID}, body.position)
        if self.has_worktree:
            steps = LocatedList([first, *body["steps"]], body.position)
            return body.set_at("steps", steps, body.position)
        steps = LocatedList([first, body], body.position)
        return LocatedMap({"kind": "sequence", "steps": steps}, body.position)

    def setting(self, section: str, key: str) -> Any:
        """Return a setting of the configuration, or None."""
        values = None if self.config is None else self.config.get(section)
        return values.get(key) if isinstance(values, dict) else None

    def variables(self) -> dict[str, str]:
        """Return the expressions of the variables in the texts of this workflow."""
        folder = self.setting("docs", "path")
        return VARIABLES | {"DOCS_DIR": quote(folder if isinstance(folder, str) else DEFAULT_DOCS_FOLDER)}

    # -- nodes ------------------------------------------------------------------------------------

    def read_nodes(self, source: LocatedMap) -> LocatedMap:
        """Return the graph of the nodes, and the output of the workflow after it."""
        position = source.position_of_value("nodes")
        raw = source["nodes"]
        items = [item for item in raw if isinstance(item, LocatedMap)] if isinstance(raw, list) else []
        if not items or len(items) != len(raw):
            self.add(position, "'nodes' must be a list of mappings", "Write '- id: name'.")
            return LocatedMap({"kind": "sequence", "steps": []}, position)
        nothing = LocatedMap({"kind": "cancel", "reason": "The included workflows are not read"}, position)
        for number, item in enumerate(items):
            if not isinstance(item.get("id"), str) or not item["id"].strip():
                self.add(item.position, "'id' is missing", "Give the node a unique name.")
                item["id"] = f"node{number}"
        if any("include" in item for item in items):
            if self.find_source is None:
                return nothing
            try:
                expanded = expand_includes(items, self.find_source)
            except UnreadableInclude as error:
                self.add(error.item.position, error.message, error.fix)
                return nothing
            items, self.block_by_id = expanded.items, expanded.block_by_id
        self.describe_outputs(items)
        self.layers = LayeredNodes(items)
        steps = LocatedList.of([(self.read_node(item), item.position) for item in items], position)
        graph = LocatedMap({"kind": "graph", "steps": steps}, position)
        final = self.final_output(source)
        if final is None:
            return graph
        last = LocatedMap({"kind": "transform", "expression": final}, position)
        return LocatedMap({"kind": "sequence", "steps": LocatedList([graph, last], position)}, position)

    def final_output(self, source: LocatedMap) -> str | None:
        """Return the expression of the output of the workflow, if it is not that of its only last node."""
        name = source.get("returns")
        if isinstance(name, str):
            if name in self.outputs:
                return f"results[{quote(name)}] ?? ''"
            hint = did_you_mean_hint(name, self.outputs)
            self.add(
                source.position_of_value("returns"), f"'returns' names no node: {name}{hint}", "Name a node."
            )
        sinks = [self.outputs[id] for id in self.layers.sinks]
        if len(sinks) == 1 and sinks[0].expression is None:
            return None
        texts = ", ".join(sink.text() for sink in sinks)
        return f"[{texts}].find(text => text.trim() !== '') ?? ''"

    def describe_outputs(self, items: list[LocatedMap]) -> None:
        """Record what references to the nodes read, also to those in groups."""
        for item in items:
            self.outputs[str(item.get("id"))] = self.describe_output(item)
            group = item.get("loop_group")
            if isinstance(group, dict) and isinstance(group.get("nodes"), list):
                self.describe_outputs([part for part in group["nodes"] if isinstance(part, LocatedMap)])

    def describe_output(self, item: LocatedMap) -> NodeOutput:
        """Return what references to a node read."""
        output = NodeOutput(item["id"], is_list="fan_out" in item)
        approval = item.get("approval")
        if isinstance(approval, LocatedMap):
            answer = member("outputs", self.decision_id(item, approval))
            given = f"({answer} === 'approve' ? 'Approved' : {answer})"
            output.expression = given if approval.get("capture_response") is True else "''"
        schema = item.get("output_format")
        if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
            output.fields = schema["properties"]
            required = schema.get("required")
            output.required = frozenset(required if isinstance(required, list) else ())
        return output

    def scope_of(self, item: LocatedMap) -> TextScope:
        """Return what the texts of a node can read."""
        id = item["id"]
        scope = TextScope(
            self.outputs,
            self.layers.earlier(id) | self.outer_ids,
            self.layers.later(id),
            self.variables(),
            own_id=id,
            on_variable=self.use_variable,
            input_names=self.input_names,
            previous=self.previous,
            on_warning=lambda message: self.add_note(item.position, message, severity="warning"),
        )
        return scope if self.block_by_id.get(id) is None else self.scope_of_block(scope, self.block_by_id[id])

    def scope_of_block(self, scope: TextScope, block: IncludedBlock) -> TextScope:
        """Return a scope with the names and inputs of an included workflow."""
        names = {name: self.outputs[id] for name, id in block.names.items() if id in self.outputs}
        if block.outer is None:
            return replace(scope, nodes=names)
        outer = self.scope_of_block(scope, block.outer)
        values = {}
        for name, value in block.inputs.items():
            text = value if isinstance(value, str) else json.dumps(value)
            values[name] = template_expression(translate_template(text, outer))
        return replace(scope, nodes=names, inputs=values, input_names=tuple(values))

    def conditions_of(self, item: LocatedMap) -> list[str]:
        """Return the conditions of the includes around a node."""
        conditions: list[str] = []
        block = self.block_by_id.get(item["id"])
        scope = replace(self.scope_of(item), inputs={}, input_names=self.input_names)
        while block is not None and block.outer is not None:
            outer = self.scope_of_block(scope, block.outer)
            conditions += [translate_condition(text, outer) for text in block.conditions]
            block = block.outer
        return conditions

    def read_node(self, item: LocatedMap) -> LocatedMap:
        """Return the node of the spec for a node of Archon."""
        node = LocatedMap((), item.position)
        actions = [key for key in ACTIONS if key in item and item[key] is not None]
        if refused := [key for key in REFUSED_NODE_KEYS if key in item]:
            for key in refused:
                self.add(item.key_positions.get(key), f"'{key}': {REFUSED_NODE_KEYS[key]}", "Remove it.")
            if not actions:
                return node.copy_from(item, "id", "depends_on")
        if len(actions) != 1:
            state = f"has {' and '.join(actions)}" if actions else "has no action"
            self.add(item.position, f"The node {state}", f"Give it exactly one of: {', '.join(ACTIONS)}.")
            return node
        node.copy_from(item, "id", "description", "depends_on")
        read, keys = ACTIONS[actions[0]]
        self.check_node_keys(item, actions[0], keys)
        self.put_join(item, node)
        try:
            read(self, item, node)
            self.put_condition(item, node)
        except FailingReference as error:
            return self.read_failing_step(item, error)
        except UnreadableReference as error:
            self.add(item.position_of_value(actions[0]), error.message, error.fix)
        return node

    def read_failing_step(self, item: LocatedMap, error: FailingReference) -> LocatedMap:
        """Return a step that only fails; its condition still decides whether it runs."""
        message = f"{error.message}: the step '{item['id']}' fails if it runs, as in Archon"
        self.add_note(item.position, message, error.fix, severity="warning")
        command = f"echo {shlex.quote(error.message)} >&2; exit 1"
        step = LocatedMap({"kind": "bash", "command": command, "input": ""}, item.position)
        step.copy_from(item, "id", "description", "depends_on")
        self.put_join(item, step)
        with contextlib.suppress(UnreadableReference):
            self.put_condition(item, step)
        return step

    def check_node_keys(self, item: LocatedMap, action: str, keys: frozenset[str]) -> None:
        known = {action, *BASE_KEYS, *keys, *REFUSED_NODE_KEYS}
        for key in item:
            if key not in known:
                position = item.key_positions.get(key)
                message = f"'{key}' has no effect on a node with {action}, as in Archon"
                self.add_note(position, message, severity="warning")
        for key, reason in (
            ("always_run", "a completed step never runs again by itself; use nerve retry"),
            ("output_type", "every output is in the journal"),
        ):
            if item.get(key):
                self.add_note(
                    item.key_positions.get(key), f"'{key}' has no effect: {reason}", severity="warning"
                )

    def put_join(self, item: LocatedMap, node: LocatedMap) -> None:
        rule = item.get("trigger_rule", "all_success")
        if rule not in TRIGGER_RULES:
            message = f"Unknown trigger_rule {rule!r}{did_you_mean_hint(str(rule), TRIGGER_RULES)}"
            self.add(
                item.position_of_value("trigger_rule"), message, f"Write one of {', '.join(TRIGGER_RULES)}."
            )
        elif node.get("depends_on"):
            node.set_at("trigger_rule", rule, item.position_of_value("trigger_rule"))

    def put_condition(self, item: LocatedMap, node: LocatedMap) -> None:
        conditions = self.conditions_of(item)
        condition = item.get("when")
        if condition is not None and not isinstance(condition, str):
            self.add(
                item.position_of_value("when"), "'when' must be a text", "Write \"$node.output == 'text'\"."
            )
            return
        if condition is not None:
            conditions.append(translate_condition(condition, self.scope_of(item)))
        if conditions:
            joined = (
                conditions[0] if len(conditions) == 1 else " && ".join(f"({each})" for each in conditions)
            )
            node.set_at("when", joined, item.position_of_value("when"))

    # -- actions ----------------------------------------------------------------------------------

    def read_prompt(self, item: LocatedMap, node: LocatedMap) -> None:
        self.put_prompt(item, node, item, self.scope_of(item))
        if isinstance(item.get("context"), LocatedMap):
            message = "'context.resume': the conversation of a named node is not supported"
            self.add(item.position_of_value("context"), message, "Write fresh or shared.")
        thread = self.layers.thread(item)
        node.set_at("thread", thread, item.position_of_value("context"))
        if "output_format" in item:
            self.put_retry(item, node, TRANSIENT_CRASH, DEFAULT_AGENT_RETRIES)
        else:
            node["on_idle"] = "finish_with_text"
            self.put_retry(item, node, TRANSIENT_CRASH_OR_SILENCE, DEFAULT_AGENT_RETRIES)

    def put_prompt(self, item: LocatedMap, node: LocatedMap, source: LocatedMap, scope: TextScope) -> None:
        """Set the fields of a prompt; `source` has its text or its command."""
        node["kind"] = "prompt"
        if "command" in source:
            bindings = self.read_bindings(item, scope)
            if bindings:
                node.set_at("args", bindings, item.position_of_value("with"))
                scope = scope.with_inputs({name: member("args", name) for name in bindings})
            if (name := self.read_command_name(source)) is not None:
                node.set_from("file", name, source, "command")
                self.prompt_scopes[id(node)] = replace(scope, is_command=True)
        elif isinstance(text := source.get("prompt"), str) and text.strip():
            node.set_from("text", translate_template(text, scope, is_prompt=True), source, "prompt")
        else:
            self.add(source.position_of_value("prompt"), "'prompt' must be a text", "Write the prompt.")
        self.put_agent_settings(item, node)

    def read_command_name(self, source: LocatedMap) -> str | None:
        name = source["command"]
        try:
            return check_file_name(name.strip()) if isinstance(name, str) else check_file_name("")
        except FileRefused as error:
            self.add(
                source.position_of_value("command"),
                str(error),
                "Name a file in .archon/commands, without '.md'.",
            )
            return None

    def read_bindings(self, item: LocatedMap, scope: TextScope) -> LocatedMap:
        """Return the values of `with`, by name."""
        values = item.get("with")
        bindings = LocatedMap((), item.position_of_value("with"))
        if values is None:
            return bindings
        if not isinstance(values, LocatedMap):
            self.add(
                item.position_of_value("with"), "'with' must be a mapping", "Write 'name: value' below it."
            )
            return bindings
        for name, value in values.items():
            bindings.set_from(name, self.read_binding(value, scope), values, name)
        return bindings

    def read_binding(self, value: Any, scope: TextScope) -> Any:
        """Return a value of `with`: a text is a template, and a whole reference has the type of its value."""
        if isinstance(value, LocatedMap) and isinstance(reference := value.get("from"), str):
            match = re.fullmatch(r"\$([a-zA-Z_][\w-]*)\.output(?:\.(\w+))?", reference.strip())
            if match is None:
                raise UnreadableReference(f"'from' must be one $node.output, got {reference!r}")
            node = scope.find_node(match[1])
            read = node.field_value(match[2]) if match[2] else node.text()
            if "if_skipped" not in value:
                return f"{{{{ {read} }}}}"
            other = json.dumps(value["if_skipped"])
            return f"{{{{ {member('steps', match[1])}?.status === 'completed' ? {read} : {other} }}}}"
        return translate_template(value, scope) if isinstance(value, str) else value

    def put_agent_settings(self, item: LocatedMap, node: LocatedMap) -> None:
        """Set the fields that every agent step has."""
        node.copy_from(item, "provider", output_schema="output_format")
        self.put_model(item, node)
        allowed, denied = self.read_names(item, "allowed_tools"), self.read_names(item, "denied_tools")
        if allowed is not None or denied:
            permissions = LocatedMap((), item.position_of_value("allowed_tools"))
            if allowed is not None:
                permissions.update({"allow": allowed, "otherwise": "deny"})
            if denied:
                permissions["deny"] = denied
            node.set_at("permissions", permissions, permissions.position)
        self.put_world(item, node)
        if (budget := item.get("maxBudgetUsd")) is not None:
            node.set_from("limits", LocatedMap({"cost": budget}), item, "maxBudgetUsd")
        node["idle_timeout"] = self.read_seconds(item, "idle_timeout", IDLE_SECONDS)

    def put_world(self, item: LocatedMap, node: LocatedMap) -> None:
        """Set the effort, skills, hooks, MCP servers and system prompt of an agent step."""
        node.copy_from(item, "effort", "skills", "hooks")
        if self.effort and "effort" not in node:
            node["effort"] = self.effort
        self.put_subagents(item, node)
        if isinstance(text := item.get("systemPrompt"), str):
            node.set_from("system", translate_template(text, self.scope_of(item)), item, "systemPrompt")
        if "mcp" not in item or self.read_json is None:
            return
        try:
            node.set_from("mcp", read_mcp_servers(self.read_json(str(item["mcp"]))), item, "mcp")
        except FileNotFoundError:
            message = f"The MCP servers of '{item['id']}' are in '{item['mcp']}', which does not exist"
            raise FailingReference(message, "Create the file.") from None
        except ValueError as error:
            message = f"The MCP servers of '{item['mcp']}' cannot be read: {error}"
            self.add(item.position_of_value("mcp"), message, "Fix the file.")

    def put_subagents(self, item: LocatedMap, node: LocatedMap) -> None:
        """Set the agents that the agent of a step can give tasks to."""
        agents, position = item.get("agents"), item.position_of_value("agents")
        if agents is None:
            return
        provider = node.get("provider", self.provider)
        if provider in ("codex", "pi"):
            message = f"'agents' has no effect with provider {provider}, as in Archon"
            self.add_note(item.key_positions.get("agents"), message, severity="warning")
            return
        if provider == "opencode":
            message = "'agents' of a step of OpenCode are not supported: Archon asks each of them the prompt"
            self.add(item.key_positions.get("agents"), message, "Write a step for each of them.")
            return
        if not isinstance(agents, LocatedMap) or not agents:
            self.add(position, "'agents' must be a mapping of names to agents", "Write 'name:' below it.")
            return
        subagents = LocatedMap((), position)
        for name, agent in agents.items():
            if not SUBAGENT_NAME.fullmatch(name):
                message = f"'agents': '{name}' must be lowercase letters, digits and single hyphens"
                self.add(agents.key_positions.get(name), message, "Rename it.")
            elif not isinstance(agent, LocatedMap):
                self.add(
                    agents.position_of_value(name), f"'agents.{name}' must be a mapping", "Write its prompt."
                )
            elif "skills" in agent:
                message = f"'agents.{name}.skills': skills of an agent inside a step are not supported"
                self.add(agent.key_positions.get("skills"), message, "Remove it.")
            else:
                subagent = LocatedMap((), agents.position_of_value(name))
                subagent.copy_from(agent, "description", "prompt", "model", "tools")
                subagent.copy_from(agent, denied_tools="disallowedTools", max_turns="maxTurns")
                subagents.set_from(name, subagent, agents, name)
        node.set_from("subagents", subagents, item, "agents")

    def put_model(self, source: LocatedMap, target: LocatedMap) -> None:
        """Set the model; an alias of the configuration is a model, and may be of another provider."""
        target.copy_from(source, "model")
        name = source.get("model")
        if not isinstance(name, str) or not name.startswith("@") or self.config is None:
            return
        aliases = self.config.get("aliases")
        alias = aliases.get(name) if isinstance(aliases, dict) else None
        if isinstance(alias, str):
            alias = {"model": alias}
        if not isinstance(alias, dict) or not isinstance(alias.get("model"), str):
            message = f"The model alias '{name}' is not in .archon/config.yaml"
            self.add(source.position_of_value("model"), message, "Add it under aliases, or name a model.")
            return
        target["model"] = alias["model"]
        if isinstance(provider := alias.get("provider"), str):
            target["provider"] = provider

    def read_names(self, item: LocatedMap, key: str) -> LocatedList | None:
        value = item.get(key)
        if value is None:
            return None
        if not isinstance(value, LocatedList) or not all(isinstance(name, str) and name for name in value):
            self.add(item.position_of_value(key), f"'{key}' must be a list of names", "Write [Read, Edit].")
            return None
        return value

    def read_seconds(self, item: LocatedMap, key: str, default: float) -> float:
        """Return a number of milliseconds in seconds."""
        value = item.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self.add(item.position_of_value(key), f"'{key}' must be a number of milliseconds", "Write 60000.")
            return default
        return value / 1000

    def put_retry(
        self,
        item: LocatedMap,
        node: LocatedMap,
        transient: Mapping[str, tuple[str, ...]],
        default_retries: int = 0,
    ) -> None:
        """Set how often a step is tried again, and after which failures."""
        retry = item.get("retry")
        if retry is None:
            retry = LocatedMap({"max_attempts": default_retries}, item.position)
        if not isinstance(retry, LocatedMap) or not isinstance(retry.get("max_attempts"), int):
            self.add(
                item.position_of_value("retry"), "'retry' must have max_attempts", "Write max_attempts: 2."
            )
            return
        on_error = retry.get("on_error", "transient")
        if on_error not in ("transient", "all"):
            message = f"'retry.on_error' must be transient or all, got {on_error!r}"
            self.add(retry.position_of_value("on_error"), message, "Change it.")
        if retry["max_attempts"] < 1:
            return
        delay = self.read_seconds(retry, "delay_ms", RETRY_SECONDS)
        policy = LocatedMap(
            {"attempts": retry["max_attempts"] + 1, "delay": delay, "factor": 2.0}, retry.position
        )
        for key, values in (ANY_FAILURE if on_error == "all" else transient).items():
            policy[key] = LocatedList(values, retry.position)
        node.set_at("retry", policy, item.position_of_value("retry"))

    def read_bash(self, item: LocatedMap, node: LocatedMap) -> None:
        script = item["bash"]
        if not isinstance(script, str) or not script.strip():
            self.add(item.position_of_value("bash"), "'bash' must be a script", "Write a shell script.")
            return
        node["kind"] = "bash"
        translated = ScriptTranslator(script, self.scope_of(item)).translate()
        node.set_from("command", translated.command, item, "bash")
        self.put_environment(node, translated.env, item.position_of_value("bash"))
        self.note_unsafe_script(item["id"], translated, item.position_of_value("bash"))
        self.put_script_settings(item, node)

    def put_environment(self, node: LocatedMap, env: Mapping[str, str], position: Position | None) -> None:
        """Set the variables of a script, which reads them like Archon's."""
        if env:
            node.set_at("env", LocatedMap(env, position), position)
        if trusted := [name for name, value in env.items() if "{{" in value]:
            node.set_at("trusted", LocatedList(trusted, position), position)

    def put_script_settings(self, item: LocatedMap, node: LocatedMap) -> None:
        node["input"] = ""
        node["timeout"] = self.read_seconds(item, "timeout", SCRIPT_SECONDS)
        self.put_retry(item, node, TRANSIENT_SCRIPT_FAILURE)

    def read_script(self, item: LocatedMap, node: LocatedMap) -> None:
        """Read a script of TypeScript or Python: its source, or the name of a file in .archon/scripts."""
        script, runtime = item["script"], item.get("runtime")
        if not isinstance(script, str) or not script.strip() or runtime not in SCRIPT_RUNTIMES:
            message = "'script' must be a source or a name, with 'runtime: bun' or 'runtime: uv'"
            self.add(item.position_of_value("script"), message, "Add the runtime.")
            return
        scope, position = self.scope_of(item), item.position_of_value("script")
        deps = "".join(f" --with {shlex.quote(dep)}" for dep in self.read_names(item, "deps") or ())
        is_inline = "\n" in script or re.search(r"[;(){}&|<>$`\"' ]", script)
        names = set(VARIABLE_NAME.findall(script)) if is_inline else set(FILE_VARIABLES)
        env = script_environment(names, scope)
        for name, value in self.read_bindings(item, scope).items():
            env[input_variable(name)] = value if isinstance(value, str) else json.dumps(value)
        if is_inline:
            env["NERVE_SCRIPT"] = translate_template(script, replace(scope, is_source=True))
            uv = f'uv run{deps} python -c "$NERVE_SCRIPT"'
            command = 'bun --no-env-file -e "$NERVE_SCRIPT"' if runtime == "bun" else uv
        elif not re.fullmatch(r"[\w.-]+", script):
            self.add(position, f"{script!r} is not the name of a script", "Name a file in .archon/scripts.")
            return
        else:
            suffixes = ("py",) if runtime == "uv" else ("ts", "js")
            patterns = " -o ".join(f"-name {script}.{suffix}" for suffix in suffixes)
            missing = f'{{ echo "Script not found: .archon/scripts/{script}" >&2; exit 1; }}'
            run = f'uv run{deps} "$file"' if runtime == "uv" else 'bun --no-env-file run "$file"'
            command = (
                f'file=$(find .archon/scripts {patterns} | head -n 1)\n[ -n "$file" ] || {missing}\n{run}'
            )
        node["kind"] = "bash"
        node.set_from("command", folder_prelude(env) + command, item, "script")
        self.put_environment(node, env, position)
        self.put_script_settings(item, node)

    def read_cancel(self, item: LocatedMap, node: LocatedMap) -> None:
        node["kind"] = "cancel"
        node.set_from("reason", translate_template(str(item["cancel"]), self.scope_of(item)), item, "cancel")

    # -- approvals --------------------------------------------------------------------------------

    def decision_id(self, item: LocatedMap, approval: LocatedMap) -> str:
        return f"{item['id']}-decision" if approval.get("on_reject") else str(item["id"])

    def read_approval(self, item: LocatedMap, node: LocatedMap) -> None:
        approval = item["approval"]
        if not isinstance(approval, LocatedMap) or not isinstance(approval.get("message"), str):
            self.add(
                item.position_of_value("approval"), "'approval' must have a message", "Write message: …."
            )
            return
        if "decisions" in approval:
            message = "'approval.decisions' is not supported"
            self.add(approval.position_of_value("decisions"), message, "Use approve and reject.")
        scope = self.scope_of(item)
        gate = LocatedMap({"kind": "gate"}, item.position_of_value("approval"))
        gate.set_from("prompt", translate_template(approval["message"], scope), approval, "message")
        answers = "options" if approval.get("capture_response") is True else "choices"
        gate[answers] = LocatedList(["approve", "reject"])
        rework = approval.get("on_reject")
        if rework is None:
            node.update({**gate, "reject": LocatedList(["reject"])})
            node.value_positions.update(gate.value_positions)
        elif not isinstance(rework, LocatedMap) or not isinstance(rework.get("prompt"), str):
            self.add(
                approval.position_of_value("on_reject"), "'on_reject' must have a prompt", "Write prompt: …."
            )
        else:
            self.put_rework(item, node, gate, rework, scope)

    def put_rework(
        self, item: LocatedMap, node: LocatedMap, gate: LocatedMap, rework: LocatedMap, scope: TextScope
    ) -> None:
        """Set a loop that asks, and after a rejection works again; the last rejection cancels the run."""
        id, position = item["id"], item.position_of_value("approval")
        decision, reason = f"{id}-decision", f"{id}-reason"
        attempts = rework.get("max_attempts", 3)
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= 10:
            self.add(rework.position_of_value("max_attempts"), "'max_attempts' must be 1 to 10", "Write 3.")
            attempts = 3
        prompt = LocatedMap({"id": f"{id}-on_reject", "thread": "fresh"}, position)
        texts = scope.with_variables(REJECTION_REASON=member("outputs", reason))
        self.put_prompt(LocatedMap({"id": id}, position), prompt, rework, texts)
        ask_reason = {"kind": "gate", "id": reason, "prompt": "What should change?"}
        stop = {"kind": "cancel", "reason": f"'{id}' was rejected {attempts} times"}
        again = {"kind": "sequence", "steps": [LocatedMap(ask_reason, position), prompt]}
        rejected = {
            "kind": "branch",
            "condition": f"iteration >= {attempts - 1}",
            "then": LocatedMap(stop, position),
            "otherwise": LocatedMap(again, position),
        }
        was_rejected = f"{member('outputs', decision)} === 'reject'"
        branch = {"kind": "branch", "condition": was_rejected, "then": LocatedMap(rejected, position)}
        steps = LocatedList([gate.set_at("id", decision, position), LocatedMap(branch, position)], position)
        body = LocatedMap({"kind": "sequence", "steps": steps}, position)
        until = f"{member('outputs', decision)} !== 'reject'"
        node.update({"kind": "loop", "until": until, "max_iterations": attempts + 1, "body": body})

    # -- loops ------------------------------------------------------------------------------------

    def read_loop(self, item: LocatedMap, node: LocatedMap) -> None:
        loop = item["loop"]
        if not isinstance(loop, LocatedMap) or not {"prompt", "command"} & loop.keys():
            self.add(item.position_of_value("loop"), "'loop' must have a prompt or a command", "Add one.")
            return
        thread = self.layers.thread(item)
        self.put_loop(item, node, loop, self.scope_of(item), "fresh" if loop.get("fresh_context") else thread)

    def put_loop(
        self, item: LocatedMap, node: LocatedMap, loop: LocatedMap, scope: TextScope, thread: str
    ) -> None:
        """Set a loop that asks an agent until it, a script or a field of its answer says that it is done."""
        id, position = item["id"], item.position_of_value("loop")
        turn_id, check_id, feedback_id = f"{id}-turn", f"{id}-check", f"{id}-feedback"
        interactive = loop.get("interactive") is True
        previous = f"iteration > 0 ? {member('outputs', turn_id)} : ''"
        answer = member("outputs", feedback_id)
        said = f"iteration > 0 ? ({answer} === 'approve' ? 'Approved' : {answer}) : ''"
        texts = scope.with_variables(
            LOOP_PREV_OUTPUT="''" if interactive else previous, LOOP_USER_INPUT=said if interactive else "''"
        )
        turn = LocatedMap({"id": turn_id, "thread": thread}, position)
        self.put_prompt(item, turn, loop, texts)
        if "output_format" not in item:
            turn["on_idle"] = "finish"
        channels: list[str] = []
        steps = LocatedList([turn], position)
        if isinstance(field_name := loop.get("until_field"), str):
            channels.append(f"{member(member('fields', turn_id), field_name)} === true")
        if isinstance(signal := loop.get("until"), str) and signal.strip():
            turn.set_from("signal", signal, loop, "until")
            channels.append(f"{member('steps', turn_id)}.attributes.signal")
        if isinstance(script := loop.get("until_bash"), str) and script.strip():
            kept = member("outputs", f"{id}-previous")
            kept_texts = texts if interactive else texts.with_variables(LOOP_PREV_OUTPUT=kept)
            steps.insert(0, self.previous_step(id, previous, position))
            for check in self.check_steps(check_id, script, kept_texts, position, channels):
                steps.append_at(check, position)
            channels.append(has_passed(check_id))
        if not channels:
            self.add(position, "The loop has no end", "Add until, until_bash or until_field.")
            channels = ["true"]
        maximum = self.read_maximum(loop)
        done = " || ".join(channels)
        until = done
        if interactive:
            until = self.put_feedback(loop, steps, done, turn_id, feedback_id)
        if len(steps) > 1:
            value = f"results[{quote(turn_id)}]"
            steps.append_at(LocatedMap({"kind": "transform", "expression": value}, position), position)
        body = turn if len(steps) == 1 else LocatedMap({"kind": "sequence", "steps": steps}, position)
        node.update({"kind": "loop", "until": until, "max_iterations": maximum, "body": body})

    def put_feedback(
        self, loop: LocatedMap, steps: LocatedList, done: str, turn_id: str, feedback_id: str
    ) -> str:
        """Add the question after an iteration, and return when the loop ends.

        The first iteration always asks, unless `signal_completes`; a bare approval then accepts a finished
        iteration, and any other answer starts the next one.
        """
        position = loop.position
        if not isinstance(message := loop.get("gate_message"), str):
            self.add(position, "An interactive loop needs 'gate_message'", "Write what the person decides.")
            message = ""
        ends_alone = done if loop.get("signal_completes") is True else f"iteration > 0 && ({done})"
        excerpt = f"{{{{ {member('outputs', turn_id)}.slice(0, 500) }}}}"
        literal = message.replace("{{", "\\{{")
        question = {
            "kind": "gate",
            "id": feedback_id,
            "prompt": f"{excerpt}\n\n{literal}",
            "options": LocatedList(["approve", "reject"]),
            "reject": LocatedList(["reject"]),
        }
        nothing = {"kind": "transform", "expression": "null"}
        branch = {
            "kind": "branch",
            "condition": ends_alone,
            "then": LocatedMap(nothing, position),
            "otherwise": LocatedMap(question, position),
        }
        steps.append_at(LocatedMap(branch, position), position)
        ends = done if loop.get("signal_completes") is True else f"iteration > 1 && ({done})"
        return f"({ends}) || (({done}) && {member('outputs', feedback_id)} === 'approve')"

    def read_loop_group(self, item: LocatedMap, node: LocatedMap) -> None:
        """Read a loop over nodes, which ends by the text of its last node or by a script."""
        group, position, id = item["loop_group"], item.position_of_value("loop_group"), item["id"]
        raw = group.get("nodes") if isinstance(group, LocatedMap) else None
        parts = [part for part in raw if isinstance(part, LocatedMap)] if isinstance(raw, list) else []
        if not parts or not all(isinstance(part.get("id"), str) for part in parts):
            self.add(position, "'loop_group' must have nodes", "Write nodes: with '- id: name'.")
            return
        if group.get("interactive"):
            self.add(
                position, "An interactive loop_group is not supported", "Use a loop, or an approval in it."
            )
        outer_layers, outer_ids, outer_previous = self.layers, self.outer_ids, self.previous
        previous = PreviousOutputs(f"{id}-previous-nodes", frozenset(part["id"] for part in parts))
        self.outer_ids, self.previous = outer_ids | outer_layers.earlier(id), previous
        self.layers = LayeredNodes(parts)
        steps = LocatedList.of([(self.read_node(part), part.position) for part in parts], position)
        script_scope = replace(self.scope_of(parts[0]), earlier=None, own_id=id)
        sinks = self.layers.sinks
        self.layers, self.outer_ids, self.previous = outer_layers, outer_ids, outer_previous
        body = LocatedMap({"kind": "graph", "id": f"{id}-nodes", "steps": steps}, position)
        all_steps = LocatedList([body], position)
        if previous.kept:
            keep = {"kind": "transform", "id": previous.step_id, "expression": previous.expression()}
            all_steps.insert(0, LocatedMap(keep, position))
        until = self.put_group_end(id, group, all_steps, sinks, script_scope)
        loop_body = LocatedMap({"kind": "sequence", "steps": all_steps}, position)
        node.update(
            {"kind": "loop", "until": until, "max_iterations": self.read_maximum(group), "body": loop_body}
        )

    def put_group_end(
        self, id: str, group: LocatedMap, steps: LocatedList, sinks: list[str], scope: TextScope
    ) -> str:
        """Add the steps after an iteration of a group, and return when the loop ends.

        The output is that of the first last node that has one; a script runs only if it has no signal.
        """
        position, channels = group.position, []
        texts = ", ".join(member("outputs", sink) for sink in sinks)
        expression = f"[{texts}].find(text => text.trim() !== '') ?? ''"
        output = LocatedMap({"kind": "transform", "id": f"{id}-output", "expression": expression}, position)
        steps.append_at(output, position)
        has_signal = f"{member('steps', f'{id}-output')}.attributes.signal"
        if isinstance(signal := group.get("until"), str) and signal.strip():
            output.set_from("signal", signal, group, "until")
            channels.append(has_signal)
        if isinstance(script := group.get("until_bash"), str) and script.strip():
            last_text = member("outputs", f"{id}-output")
            steps.insert(0, self.previous_step(id, f"iteration > 0 ? {last_text} : ''", position))
            variables = scope.with_variables(LOOP_PREV_OUTPUT=member("outputs", f"{id}-previous"))
            checks = self.check_steps(f"{id}-check", script, variables, position, channels)
            result = {"kind": "transform", "expression": f"results[{quote(f'{id}-output')}]"}
            for step in (*checks, LocatedMap(result, position)):
                steps.append_at(step, position)
            channels.append(has_passed(f"{id}-check"))
        if not channels:
            self.add(position, "The loop has no end", "Add until or until_bash.")
        return " || ".join(channels) or "true"

    def previous_step(self, id: str, expression: str, position: Position | None) -> LocatedMap:
        """Return the step that keeps the output of the previous iteration for the script after this one."""
        step = {"kind": "transform", "id": f"{id}-previous", "expression": expression}
        return LocatedMap(step, position)

    def check_steps(
        self, id: str, script: str, scope: TextScope, position: Position | None, others: list[str]
    ) -> list[LocatedMap]:
        """Return the steps of an `until_bash`: its failure continues the loop, its timeout fails it.

        They are skipped if one of the `others` has ended the loop.
        """
        translated = ScriptTranslator(script, scope).translate()
        step = {"kind": "bash", "id": id, "command": translated.command, "input": "", "on_error": "skip"}
        node = LocatedMap({**step, "timeout": SCRIPT_SECONDS}, position)
        self.put_environment(node, translated.env, position)
        self.note_unsafe_script(id, translated, position)
        message = f"'until_bash' has timed out after {SCRIPT_SECONDS} seconds"
        fail = {"kind": "bash", "command": f"echo {shlex.quote(message)} >&2; exit 1", "input": ""}
        timed_out = f"{member('steps', id)}.attributes.error_type === 'TimeoutError'"
        branch = {"kind": "branch", "condition": timed_out, "then": LocatedMap(fail, position)}
        steps = [node, LocatedMap(branch, position)]
        for step in steps if others else ():
            step["when"] = f"!({' || '.join(others)})"
        return steps

    def note_unsafe_script(self, id: str, script: TranslatedScript, position: Position | None) -> None:
        if script.warning:
            message = f"The script of '{id}' may run an output as code, as in Archon: {script.warning}"
            self.add_note(position, message, "Check the script.", severity="warning")

    def read_maximum(self, loop: LocatedMap) -> int:
        maximum = loop.get("max_iterations")
        if isinstance(maximum, int) and not isinstance(maximum, bool) and maximum >= 1:
            return maximum
        message = "'loop.max_iterations' must be an integer of at least 1"
        self.add(loop.position_of_value("max_iterations"), message, "Write max_iterations: 10.")
        return 1

    # -- called workflows -------------------------------------------------------------------------

    def read_workflow(self, item: LocatedMap, node: LocatedMap) -> None:
        name = item["workflow"]
        if not isinstance(name, str) or not name.strip():
            self.add(item.position_of_value("workflow"), "'workflow' must be a name", "Name a workflow.")
            return
        scope = self.scope_of(item)
        text = item.get("input")
        given = translate_template(text, scope) if isinstance(text, str) else ""
        params = self.read_bindings(item, scope)
        called = LocatedMap({"kind": "workflow"}, item.position)
        called.set_from("workflow", slugify(name), item, "workflow")
        self.put_isolation(item, called)
        self.check_called_worktree(item, name)
        fan_out = item.get("fan_out")
        if fan_out is None:
            node.update({**called, "input": given, **({"params": params} if params else {})})
            node.value_positions.update(called.value_positions)
            return
        self.put_fan_out(item, node, called, params, scope)

    def put_isolation(self, item: LocatedMap, called: LocatedMap) -> None:
        """Set the workspace of a called run; without `isolation`, it works where its caller does."""
        value = item.get("isolation")
        if value == "worktree":
            called.set_from("workspace", self.read_worktree(), item, "isolation")
        elif value not in (None, "inherit"):
            message = f"'isolation' must be worktree or inherit, got {value!r}"
            self.add(item.position_of_value("isolation"), message, "Change it.")

    def check_called_worktree(self, item: LocatedMap, name: str) -> None:
        """Refuse to call a workflow whose files would not be those that it has in Archon."""
        child = None if self.find_source is None else self.find_source(name)
        if child is None:
            return
        position = item.position_of_value("workflow")
        if asks_for_worktree(child):
            message = f"'{name}' has worktree.enabled: true, which Archon ignores in a called workflow"
            self.add(position, message, "Remove it there, and write isolation: worktree here.")
        elif (self.has_worktree or "isolation" in item) and any(
            "STATE_DIR" in text for text in texts_of(child)
        ):
            message = f"'{name}' uses $STATE_DIR, which is not supported in a worktree"
            self.add(position, message, "Remove the worktree, or the variable.")

    def put_fan_out(
        self, item: LocatedMap, node: LocatedMap, called: LocatedMap, params: LocatedMap, scope: TextScope
    ) -> None:
        """Set a map over the items; a failed item of `all_done` becomes an object that says so."""
        fan_out, position = item["fan_out"], item.position_of_value("fan_out")
        if not isinstance(fan_out, LocatedMap) or not isinstance(fan_out.get("items"), str):
            self.add(position, "'fan_out' must have items", "Write items: $node.output.")
            return
        items = template_expression(translate_template(fan_out["items"].strip(), scope))
        join = fan_out.get("join", "all_done")
        if join not in ("all_done", "all_success"):
            message = f"'fan_out.join' must be all_done or all_success, got {join!r}"
            self.add(position, message, "Change it.")
            return
        item_text = "{{ typeof item === 'string' ? item : JSON.stringify(item) }}"
        child = f"{item['id']}-child"
        call = LocatedMap({**called, "id": child, "input": item_text}, position)
        if isinstance(name := fan_out.get("as"), str):
            params = LocatedMap({**params, name: "{{ item }}"}, position)
        if params:
            call["params"] = params
        result = member("results", child)
        is_line = f"typeof {result} === 'string' && {result}.endsWith('\\n')"
        line = {"kind": "transform", "expression": f"{is_line} ? {result}.slice(0, -1) : {result}"}
        steps = LocatedList([call, LocatedMap(line, position)], position)
        body = LocatedMap({"kind": "sequence", "steps": steps}, position)
        if join == "all_done":
            failed = f"{{archon_failed: true, error: {member('steps', child)}.error, status: 'failed'}}"
            body["on_error"] = LocatedMap({"kind": "transform", "expression": failed}, position)
        width = fan_out.get("max_parallel", 5)
        node.update({"kind": "map", "over": f"JSON.parse({items})", "body": body, "max_parallel": width})

    # -- older forms ------------------------------------------------------------------------------

    def read_steps(self, source: LocatedMap) -> LocatedMap:
        """Read a chain of commands: one conversation, unless a step clears it."""
        position = source.position_of_value("steps")
        raw = source["steps"]
        steps = LocatedList((), position)
        names = self.unused_ids()
        is_fresh = True
        for item in raw if isinstance(raw, list) else ():
            if not isinstance(item, LocatedMap) or not {"command", "parallel"} & item.keys():
                self.add(
                    getattr(item, "position", position),
                    "A step must have a command",
                    "Write '- command: name'.",
                )
                continue
            if "parallel" in item:
                parallel = item["parallel"] if isinstance(item["parallel"], list) else []
                parts = [self.read_step(part, next(names)(part), "fresh") for part in parallel]
                branches = LocatedList.of([(part, part.position) for part in parts], item.position)
                steps.append_at(
                    LocatedMap({"kind": "parallel", "branches": branches}, item.position), item.position
                )
                is_fresh = True
                continue
            is_fresh = is_fresh or item.get("clearContext") is True
            step = self.read_step(item, next(names)(item), "fresh" if is_fresh else "shared")
            steps.append_at(step, item.position)
            is_fresh = False
        if not steps:
            self.add(position, "'steps' must be a list of commands", "Write '- command: name'.")
        return LocatedMap({"kind": "sequence", "steps": steps}, position)

    def unused_ids(self) -> Iterator[Callable[[Any], str]]:
        """Yield functions that return a new id for a step."""

        def new_id(item: Any) -> str:
            name = str(item.get("command", "step")) if isinstance(item, dict) else "step"
            id, number = name, 1
            while id in self.outputs:
                number += 1
                id = f"{name}-{number}"
            self.outputs[id] = NodeOutput(id)
            return id

        while True:
            yield new_id

    def read_step(self, item: Any, id: str, thread: str) -> LocatedMap:
        step = LocatedMap({"id": id, "thread": thread}, getattr(item, "position", None))
        if isinstance(item, LocatedMap) and "command" in item:
            scope = TextScope(
                {}, frozenset(), variables=self.variables(), own_id=id, on_variable=self.use_variable
            )
            self.put_prompt(LocatedMap({"id": id}, item.position), step, item, scope)
        else:
            self.add(step.position, "A step must have a command", "Write '- command: name'.")
        return step

    def read_whole_loop(self, source: LocatedMap) -> LocatedMap:
        """Read a workflow that is one prompt in a loop."""
        position = source.position_of_value("loop")
        body = LocatedMap({"id": "loop"}, position)
        loop = source.get("loop")
        if not isinstance(loop, LocatedMap) or not isinstance(source.get("prompt"), str):
            self.add(source.position, "The workflow has neither nodes nor a prompt in a loop", "Add 'nodes'.")
            return body
        whole = LocatedMap(loop, loop.position)
        whole.set_from("prompt", source["prompt"], source, "prompt")
        item = LocatedMap({"id": "loop", "loop": whole}, position)
        scope = TextScope(
            {}, frozenset(), variables=self.variables(), own_id="loop", on_variable=self.use_variable
        )
        try:
            self.put_loop(item, body, whole, scope, "fresh" if loop.get("fresh_context") else "loop")
        except UnreadableReference as error:
            self.add(source.position_of_value("prompt"), error.message, error.fix)
        return body


FILE_VARIABLES = ("ARTIFACTS_DIR", "STATE_DIR", "WORKFLOW_ID", "USER_MESSAGE", "ARGUMENTS")
"""The variables of a script in a file, which the reader does not see."""
ACTIONS: Mapping[str, tuple[NodeReader, frozenset[str]]] = {
    "prompt": (ArchonReader.read_prompt, AGENT_KEYS),
    "command": (ArchonReader.read_prompt, AGENT_KEYS),
    "bash": (ArchonReader.read_bash, frozenset({"timeout", "retry"})),
    "script": (ArchonReader.read_script, frozenset({"runtime", "deps", "timeout", "retry", "with"})),
    "loop": (ArchonReader.read_loop, AGENT_KEYS - {"context", "with", "retry"}),
    "approval": (ArchonReader.read_approval, frozenset()),
    "cancel": (ArchonReader.read_cancel, frozenset()),
    "loop_group": (ArchonReader.read_loop_group, frozenset({"provider", "model"})),
    "workflow": (
        ArchonReader.read_workflow,
        frozenset({"input", "with", "fan_out", "output_format", "isolation"}),
    ),
}
"""The actions of a node: the reader, and the keys in addition to those of every node."""
KNOWN_NODE_KEYS = frozenset(
    {*BASE_KEYS, *REFUSED_NODE_KEYS, *ACTIONS, "include"}.union(*(keys for _, keys in ACTIONS.values()))
)
KNOWN_WORKFLOW_KEYS = WORKFLOW_KEYS | REFUSED_WORKFLOW_KEYS.keys()


def has_passed(check_id: str) -> str:
    """Return the expression of whether a check of this iteration has run and has passed."""
    step = member("steps", check_id)
    return f"({step}.status === 'completed' && {step}.success)"


def asks_for_worktree(source: LocatedMap) -> bool:
    """Return whether a workflow always works in a worktree."""
    worktree = source.get("worktree")
    return isinstance(worktree, LocatedMap) and worktree.get("enabled") is True


def texts_of(value: Any) -> Iterator[str]:
    """Yield the strings of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_of(item)
