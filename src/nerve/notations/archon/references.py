"""Translate the texts of Archon, with `$x.output` and `$NAME`, into templates of the spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass

NODE_NAME = r"[a-zA-Z_][a-zA-Z0-9_-]*"
FIELD_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
CONTEXT_VARIABLES = ("CONTEXT", "EXTERNAL_CONTEXT", "ISSUE_CONTEXT")
"""The variables with the text of an issue, which a run of Nerve does not have."""
ENGINE_VARIABLES = ("WORKFLOW_ID", "ARTIFACTS_DIR", "STATE_DIR", "BASE_BRANCH", "DOCS_DIR")
"""The variables that Archon also replaces in the text of scripts."""
LOOP_VARIABLES = ("LOOP_USER_INPUT", "REJECTION_REASON", "LOOP_PREV_OUTPUT")
USER_VARIABLES = ("USER_MESSAGE", "ARGUMENTS", *LOOP_VARIABLES, *CONTEXT_VARIABLES)
"""The variables that a script reads from its environment only."""
TOKEN = re.compile(
    r"(?P<braces>\{\{)"
    rf"|\$LOOP_PREV\.(?P<previous>{NODE_NAME})\.output(?:\.(?P<previous_field>{FIELD_NAME}))?"
    rf"|\$INPUTS\.(?P<input>{NODE_NAME})"
    rf"|\$(?P<node>{NODE_NAME})\.output(?:\.(?P<field>{FIELD_NAME}))?"
    rf"|\$(?P<name>{'|'.join((*ENGINE_VARIABLES, 'USER_MESSAGE', 'ARGUMENTS', *LOOP_VARIABLES))})"
    rf"|\$(?P<context>{'|'.join(CONTEXT_VARIABLES)})(?![A-Za-z0-9_])"
    r"|(?P<digit>\$[1-9](?![0-9]))"
)
BASE_BRANCH_ID = "_base_branch"
STATE_DIR = ".archon/state"
DEFAULT_DOCS_FOLDER = "docs/"


def quote(text: str) -> str:
    """Return a string literal of the expression language."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


VARIABLES = {
    "WORKFLOW_ID": "run.id",
    "ARTIFACTS_DIR": "run.artifacts",
    "STATE_DIR": f"'{STATE_DIR}'",
    "BASE_BRANCH": f"outputs.{BASE_BRANCH_ID}",
    "DOCS_DIR": quote(DEFAULT_DOCS_FOLDER),
    "USER_MESSAGE": "input ?? ''",
    "ARGUMENTS": "input ?? ''",
    **dict.fromkeys((*LOOP_VARIABLES, *CONTEXT_VARIABLES), "''"),
}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnreadableReference(ValueError):
    """A reference of Archon that cannot be honoured; the message and the fix."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class FailingReference(UnreadableReference):
    """A reference that fails its step in Archon, which reads the rest of the workflow."""


@dataclass(slots=True)
class NodeOutput:
    """What a reference to a node reads."""

    id: str
    expression: str | None = None
    """The text of the whole output, if it is not the output of the step itself."""
    fields: Mapping[str, Any] | None = None
    """The declared fields with their schemas; None if the output has no declared fields."""
    required: frozenset[str] = frozenset()
    is_list: bool = False
    is_absent: bool = False
    """Whether it never has an output where it is read: the text is empty, and a field cannot be read."""

    def text(self) -> str:
        """Return the expression of the whole output, a string."""
        return self.expression if self.expression is not None else member("outputs", self.id)

    def field_value(self, name: str) -> str:
        """Return the expression of a field; a field that is missing is an error when the step runs."""
        value = member(member("fields", self.id), name)
        if self.is_absent:
            message = f"'${self.id}.output.{name}' reads a node that has not run at that point"
            raise UnreadableReference(message, f"Add {self.id} to depends_on, or correct the name.")
        if self.is_list:
            raise UnreadableReference(f"'{self.id}' is a fan-out, whose output is a list without '{name}'")
        if self.fields is None:
            return value
        if name not in self.fields:
            known = did_you_mean_hint(name, self.fields)
            message = f"The output_format of '{self.id}' declares no field '{name}'{known}"
            raise FailingReference(message, "Declare it under properties.")
        if name in self.required:
            return value
        return f"(Object.keys({member('fields', self.id)}).includes('{name}') ? {value} ?? '' : '')"

    def field_type(self, name: str) -> str:
        """Return the declared type of a field, or an empty string."""
        schema = (self.fields or {}).get(name)
        declared = schema.get("type") if isinstance(schema, dict) else None
        return declared if isinstance(declared, str) and name in self.required else ""


@dataclass(slots=True)
class PreviousOutputs:
    """What the texts in a loop over nodes read of the previous iteration: a step keeps it for them."""

    step_id: str
    ids: frozenset[str]
    kept: dict[str, str] = field(default_factory=dict)
    """The names under which the step keeps the values of expressions."""

    def read(self, expression: str) -> str:
        """Return the expression of a kept value."""
        key = self.kept.setdefault(expression, f"value{len(self.kept) + 1}")
        return f"{member('results', self.step_id)}.{key}"

    def expression(self) -> str:
        """Return the expression of the object of the kept values."""
        values = ", ".join(f"{key}: iteration > 0 ? {value} : ''" for value, key in self.kept.items())
        return f"{{{values}}}"


@dataclass(slots=True)
class TextScope:
    """What the references in the texts of one node read."""

    nodes: Mapping[str, NodeOutput]
    earlier: frozenset[str] | None = None
    """The nodes that have ended when it runs; None allows all."""
    later: frozenset[str] = frozenset()
    """The nodes that have not ended when it runs."""
    variables: dict[str, str] = field(default_factory=lambda: dict(VARIABLES))
    """The expressions of the variables."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The expressions of the inputs that are not those of the run."""
    own_id: str = ""
    on_variable: Callable[[str], None] = lambda name: None
    """Called with the name of each variable that a text uses."""
    input_names: tuple[str, ...] = ()
    """The declared inputs of the workflow."""
    previous: PreviousOutputs | None = None
    """In a loop over nodes: what its texts read of the previous iteration."""
    is_source: bool = False
    """Whether the text is source code, in which only the variables of the engine are replaced."""
    is_command: bool = False
    """Whether the text is that of a command, which other workflows with other nodes may use."""
    on_warning: Callable[[str], None] = lambda message: None

    def with_variables(self, **variables: str) -> TextScope:
        """Return a scope in which some variables have other expressions."""
        return replace(self, variables={**self.variables, **variables})

    def with_inputs(self, inputs: Mapping[str, str]) -> TextScope:
        """Return a scope in which some inputs have other expressions."""
        return replace(self, inputs=inputs)

    def find_node(self, name: str) -> NodeOutput:
        """Return the node that a reference names; one that cannot have ended has an empty output."""
        if name not in self.nodes:
            message = f"'${name}.output' names no node{did_you_mean_hint(name, self.nodes)}"
            if not self.is_command:
                raise UnreadableReference(message, "Name a node of this workflow.")
        elif self.earlier is None or self.nodes[name].id in self.earlier:
            return self.nodes[name]
        else:
            message = f"'${name}.output' is read by '{self.own_id}', which does not depend on '{name}'"
            if self.nodes[name].id not in self.later:
                raise UnreadableReference(message, f"Add {name} to depends_on.")
        self.on_warning(f"{message}: it is empty, as in Archon")
        return NodeOutput(name, "''", is_absent=True)

    def previous_value(self, name: str, field_name: str | None) -> str:
        """Return the expression of an output of the previous iteration, which is empty in the first one."""
        if self.previous is None or name not in self.previous.ids:
            raise UnreadableReference(f"'$LOOP_PREV.{name}' names no node of this loop_group")
        node = self.nodes[name]
        if field_name is None:
            return self.previous.read(node.text())
        was_completed = f"{member('steps', node.id)}?.status === 'completed'"
        return self.previous.read(f"{was_completed} ? {node.field_value(field_name)} : ''")

    def variable(self, name: str) -> str:
        self.on_variable(name)
        return self.variables[name]

    def input(self, name: str) -> str:
        if name in self.inputs:
            return self.inputs[name]
        if name not in self.input_names:
            message = f"'$INPUTS.{name}' is not an input{did_you_mean_hint(name, self.input_names)}"
            raise FailingReference(message, "Declare it under inputs.")
        return member("inputs", name)

    def token_expression(self, match: re.Match[str]) -> str:
        """Return the expression of a reference or variable; its value as template text is that of Archon."""
        if match["previous"] is not None:
            return self.previous_value(match["previous"], match["previous_field"])
        if match["input"] is not None:
            return self.input(match["input"])
        if match["node"] is not None:
            node = self.find_node(match["node"])
            if match["field"] is None:
                return node.text()
            value = node.field_value(match["field"])
            return value if node.fields is not None else f"{value} ?? 'null'"
        return self.variable(match["name"] or match["context"])


def member(base: str, key: str) -> str:
    """Return the expression of a member of an object."""
    return f"{base}.{key}" if IDENTIFIER.fullmatch(key) else f"{base}[{quote(key)}]"


def translate_template(text: str, scope: TextScope, is_prompt: bool = False) -> str:
    """Return a text of Archon as a template; in a prompt, `$1` and other variables of Nerve stay literal."""
    parts: list[str] = []
    start = 0
    for match in TOKEN.finditer(text):
        parts.append(text[start : match.start()])
        start = match.end()
        if match["digit"] is not None:
            parts.append(f"\\{match[0]}" if is_prompt else match[0])
            continue
        if scope.is_source and (match["input"] or match["context"] or match["name"] in USER_VARIABLES):
            parts.append(match[0])
            continue
        backslashes = len(parts[-1]) - len(parts[-1].rstrip("\\"))
        if backslashes:
            parts[-1] = parts[-1][:-backslashes]
            literal = "\\" * backslashes + ("{{" if match["braces"] else "")
            parts.append(f"{{{{ {quote(literal)} }}}}")
            if match["braces"]:
                continue
        parts.append("\\{{" if match["braces"] else f"{{{{ {scope.token_expression(match)} }}}}")
    parts.append(text[start:])
    return "".join(parts)


def template_expression(template: str) -> str:
    """Return a template as an expression of its text."""
    parts: list[str] = []
    start = 0
    for match in re.finditer(r"(?<!\\)\{\{ (.*?) \}\}", template, re.DOTALL):
        parts += [quote(template[start : match.start()].replace("\\{{", "{{")), f"({match[1]})"]
        start = match.end()
    parts.append(quote(template[start:].replace("\\{{", "{{")))
    return " + ".join(part for part in parts if part != "''") or "''"
