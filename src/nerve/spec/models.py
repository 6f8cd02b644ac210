"""The models of the spec: plain data that JSON represents exactly.

Only annotations with `Node`, which is defined last, are strings: pydantic compiles each of those at import.
"""

import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Json = Any
"""A JSON value. Strings in it are templates: `{{ expression }}` is evaluated when the node runs."""

Expr = str
"""An expression, as `nerve.expr` reads it."""

Text = str
"""A template."""

Name = Annotated[str, Field(min_length=1, max_length=128)]
Pattern = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class SpecModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class RetrySpec(SpecModel):
    """Try up to `attempts` times in all."""

    attempts: Count = 3
    delay: Seconds = 0.5
    factor: Seconds = 2.0
    cap: Seconds = 60.0
    jitter: Seconds = 0.0
    on: list[str] = []
    """The types of errors after which to try again; empty means all."""
    on_text: list[Pattern] = []
    """Try again only if the error, or the standard error of a command, contains one of these."""
    not_on_text: list[Pattern] = []
    """Do not try again if it contains one of these."""


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # `schema` shadows a deprecated method of pydantic

    class ExpectSpec(SpecModel):
        """A check that the engine runs before a step counts as done; exactly one of the four."""

        file: Text | None = None
        """A file below the working folder that must exist and not be empty."""
        command: Text | None = None
        """A shell command that must succeed."""
        condition: Expr | None = None
        """An expression that must be true; `output` is the output of the step."""
        schema: dict[str, Any] | None = None  # type: ignore[assignment]
        """A JSON Schema for the output; together with `file`, for the JSON in the file."""


class PermissionsSpec(SpecModel):
    """The permissions of an agent: tool patterns such as `Read` or `Bash(git *)`, and a default."""

    allow: list[Pattern] | None = None
    ask: list[Pattern] | None = None
    deny: list[Pattern] | None = None
    otherwise: Literal["allow", "ask", "deny"] | None = None
    mode: Literal["ask", "edits", "all", "read"] | None = None
    """The rule for all other tools by what they do."""


class McpServerSpec(SpecModel):
    """An MCP server: a program, or the address of a server that runs."""

    type: Literal["stdio", "http"] | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    """Variables of the program; `${NAME}` is replaced when the agent starts."""
    url: str | None = None
    headers: dict[str, str] | None = None
    """Headers of every request; `${NAME}` is replaced when the agent starts."""


class HookSpec(SpecModel):
    """What the agent's program does at an event: it runs a command, or gets a response."""

    matcher: str | None = None
    """A regular expression for the names of tools, as the agent's program reads it."""
    command: str | None = None
    """A shell command that gets the event as JSON on its standard input."""
    response: dict[str, Any] | None = None
    """The JSON that a command would print."""
    timeout: Seconds | None = None


class SubagentSpec(SpecModel):
    """An agent that the agent of a step can give tasks to."""

    description: Text
    """When to give it a task."""
    prompt: Text
    """Its system prompt."""
    model: str | None = None
    """By default that of the agent which gives it a task."""
    tools: list[Name] | None = None
    """The tools that it has; by default all."""
    denied_tools: list[Name] | None = None
    max_turns: Count | None = None


class StepLimitsSpec(SpecModel):
    """The budget of a step over all attempts; when it is spent, the run is held until it is raised."""

    tokens: Annotated[int, Field(ge=0)] | None = None
    cost: Seconds | None = None
    """In US dollars."""
    turns: Annotated[int, Field(ge=0)] | None = None
    """The number of agent turns."""


class WorkspaceSpec(SpecModel):
    """A checkout of its own for a node, or for the run if it is that of the body."""

    kind: Literal["shared", "worktree", "copy"] = "worktree"
    base: Text | None = None
    """The branch, tag or commit to start from; `.` for the files as they are, committed or not."""
    branch: Text | None = None
    files: list[Pattern] = []
    """Untracked files to copy, such as `.env`."""
    setup: str | None = None
    """A shell command that prepares it."""
    merge: Literal["files", "ff", "squash", "rebase", "none"] | None = None
    """How its work is merged: into the files, or as commits; the default is `files`, and `none` for a run."""
    on_conflict: 'Literal["ask", "fail"] | Node' = "ask"
    """What happens to a conflict: a person is asked, the node fails, or another node resolves it."""


class NodeBase(SpecModel):
    """The fields that every node may have."""

    if TYPE_CHECKING:
        kind: str
        """The name of the kind, a literal in each model."""

    id: Name | None = None
    """The name under which expressions read its result: `steps.<id>`."""
    description: str = ""
    depends_on: list[Name] = []
    """In a graph: the steps that must finish before it starts."""
    trigger_rule: Literal["all_success", "one_success", "none_failed_min_one_success", "all_done"] | None = (
        None
    )
    """In a graph: which of these steps must succeed; a skipped one is neither a success nor a failure.

    Without a rule it runs if none of them failed.
    """
    when: Expr | None = None
    """The node is skipped when this is false."""
    retry: RetrySpec | None = None
    timeout: Seconds | None = None
    idle_timeout: Seconds | None = None
    on_error: 'Literal["fail", "skip"] | Node | None' = None
    """What happens on failure: fail the enclosing node, skip this one, or run another node instead."""
    effect: Literal["repeat", "once"] | None = None
    expect: list[ExpectSpec] = []
    workspace: Literal["shared", "worktree", "copy"] | WorkspaceSpec | None = None
    """Where it works: in the files that all share, or in a checkout of its own."""


class AgentNodeBase(NodeBase):
    """The settings of the agent of a step; an agent file or the configuration may set them, too."""

    permissions: PermissionsSpec | None = None
    system: Text | None = None
    """The system prompt, instead of that of the agent."""
    effort: Name | None = None
    """How much the model thinks, as the provider names it: `low`, `medium`, `high` and so on."""
    env: dict[str, Text] | None = None
    """Variables of the agent's process; `${NAME}` is replaced when the agent starts."""
    mcp: dict[Name, McpServerSpec] | list[Name] | None = None
    """MCP servers by name, or the names of servers of the configuration."""
    skills: bool | list[Name] | None = None
    """Whether the agent may use the skills of the project, or which; by default all."""
    hooks: dict[Name, list[HookSpec]] | None = None
    """Hooks of the agent's program by event."""
    subagents: dict[Name, SubagentSpec] | None = None
    """Agents that the agent can give tasks to, by name."""
    instructions: bool | None = None
    """Whether the agent reads the instruction files of the project; by default it does."""


class CallSpec(AgentNodeBase):
    """A call of a node, graph, workflow or agent by name."""

    kind: Literal["call"]
    target: Name
    input: Json = "{{ given }}"
    cwd: Text | None = None
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the answer; the parsed answer becomes the output."""
    limits: StepLimitsSpec | None = None


class PromptSpec(AgentNodeBase):
    """A prompt for an agent: a `text`, or a `file` that is read when the workflow is loaded."""

    kind: Literal["prompt"]
    text: Text | None = None
    file: str | None = None
    """A file name in the `steps` or `commands` folder next to the workflow, without `.md`."""
    args: dict[str, Json] = {}
    """Values that the text reads as `args.<name>`."""
    cwd: Text | None = None
    agent: Name | None = None
    """A node of the session, an agent file, or a provider; the default is the provider of the workflow."""
    provider: Name | None = None
    model: str | None = None
    thread: Name = "shared"
    """The conversation to continue: `shared`, `fresh` for a new one, or the name of another."""
    role: Name | None = None
    """The role that answers; expressions read its last answer as `roles.<role>`."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the answer; the parsed answer becomes the output."""
    tools: list[Name] | None = None
    """The tools that the agent may use without approval, as the provider names them."""
    max_turns: Count | None = None
    """The number of model calls in one turn, if the provider supports a limit."""
    fallback: Name | None = None
    """The provider to use while the first one is rate limited."""
    limits: StepLimitsSpec | None = None
    tag: Name | None = None
    """The request id of the fact with the answer."""
    signal: Pattern | None = None
    """A word with which the agent says that it is done.

    `steps.<id>.attributes.signal` is whether the answer has it in a tag, on its own line or at the end. The
    tag is removed from the output.
    """
    on_idle: Literal["fail", "finish", "finish_with_text"] | None = None
    """What `idle_timeout` means: the step fails, or what the agent has written so far is its answer.

    With `finish_with_text`, it fails if the agent has not written anything; with a schema, it always fails.
    """
    detach: bool = False
    """Continue without the answer; a wait for the tag, or the end of the state, joins it."""


class BashSpec(NodeBase):
    """A shell command. Values are passed as environment variables, never inserted into the script."""

    kind: Literal["bash"]
    command: Text
    input: Json = "{{ given }}"
    cwd: Text | None = None
    env: dict[str, Text] = {}
    trusted: list[Name] = []
    """The variables of `env` whose values the command may run as code."""


class EscalationSpec(SpecModel):
    """People and roles who may answer a gate, too, when it is open for some seconds."""

    after: float
    to: list[str]


GATE_POLICY_KEYS = {
    *("approvers", "quorum", "veto", "self_approval", "author", "claim", "remind", "escalate"),
}
"""The keys of a gate that several people decide."""


class GateSpec(NodeBase):
    """A question to a person."""

    kind: Literal["gate"]
    prompt: Text = "Approve?"
    choices: list[str] | None = None
    options: list[str] | None = None
    form: dict[str, Any] | None = None
    """A JSON Schema for the answer, instead of choices."""
    reject: list[str] = []
    """Answers that cancel the run, regardless of error handlers."""
    default: str | None = None
    """The answer after a timeout; without one the gate fails."""
    approvers: list[str] = []
    """People and roles who may answer; without any, everyone may."""
    quorum: int | str = 1
    """How many people have to give the same answer, or `2 of [lead, security]`: one of each role."""
    veto: list[str] = []
    """People and roles who can reject alone."""
    self_approval: bool = False
    """Whether the person who started the run, or the author, may approve."""
    author: Text | None = None
    """The person whose change it is."""
    claim: bool = False
    """Whether the first approver who claims the gate answers it."""
    remind: list[float] = []
    """Seconds after which the approvers are reminded."""
    escalate: list[EscalationSpec] = []
    """Further approvers after some time."""
    output: Literal["answer", "approved"] = "answer"
    """The output: the answer, or an object whose `approved` says whether the answer approves."""


class ConditionSpec(SpecModel):
    """Something in the dataspace to wait for or to test: a signal, the answer to a request, or a fact."""

    name: Name | None = None
    """The name in the result that identifies this condition."""
    signal: Text | None = None
    key: Text | None = None
    response: Name | None = None
    """The tag of a prompt."""
    fact: Json = None
    """A pattern: a record in which `?name` captures and `_` matches anything."""


class CancelSpec(NodeBase):
    """Cancel the run, like the rejection of a gate."""

    kind: Literal["cancel"]
    reason: Text


class WaitSpec(NodeBase):
    """A wait for the first of several conditions, or for some seconds.

    With `test` it does not wait: the output is whether a condition holds now.
    """

    kind: Literal["wait"]
    any: list[ConditionSpec] = []
    seconds: Seconds | Expr | None = None
    test: bool = False
    on_timeout: Name | None = None
    """The condition name in the result after a timeout; without one the wait fails."""


class GraphSpec(NodeBase):
    """Steps that start when their dependencies are done."""

    kind: Literal["graph"]
    steps: "list[Node]"


class SequenceSpec(NodeBase):
    """Steps in order; the output is that of the last step."""

    kind: Literal["sequence"]
    steps: "list[Node]"
    on_timeout: 'Literal["skip"] | Node | None' = None
    """What to do after its own `timeout`; `on_error` handles all other failures."""


class WhileSpec(NodeBase):
    """Repeat the body while a condition holds."""

    kind: Literal["while"]
    condition: Expr
    body: "Node"
    max_iterations: Count = 100
    on_max: Literal["fail", "return"] = "fail"


class LoopSpec(NodeBase):
    """Repeat the body a number of times, or until a condition holds."""

    kind: Literal["loop"]
    body: "Node"
    times: Annotated[int, Field(ge=0)] | Expr | None = None
    until: Expr | None = None
    max_iterations: Count = 100
    on_max: Literal["fail", "return"] = "fail"
    accumulate: bool = False


class BranchSpec(NodeBase):
    """One of two nodes, selected by a condition."""

    kind: Literal["branch"]
    condition: Expr
    then: "Node"
    otherwise: "Node | None" = None


class SwitchSpec(NodeBase):
    """One of several nodes, selected by a key."""

    kind: Literal["switch"]
    key: Expr
    cases: "dict[str, Node]"
    default: "Node | None" = None


class MapSpec(NodeBase):
    """Run the body for each item of a list; expressions read `item` and `index`."""

    kind: Literal["map"]
    over: Expr = "given"
    body: "Node"
    max_parallel: Count = 5
    require: int | None = None


class ReduceSpec(NodeBase):
    """One value from a list: an expression over `acc`, `item` and `index`."""

    kind: Literal["reduce"]
    over: Expr = "given"
    initial: Json = None
    expression: Expr


class ParallelSpec(NodeBase):
    """Parallel branches; a failure does not cancel the other branches."""

    kind: Literal["parallel"]
    branches: "list[Node]"
    require: Annotated[int, Field(ge=0)] | None = None
    outputs: Literal["object", "list"] = "object"
    """The output: an object with the output of each branch by id, or a list of branch outcomes."""


class TransitionSpec(SpecModel):
    """A transition, taken when its condition holds; `to` is a state, or null for the end."""

    when: Expr | None = None
    to: Name | None = None


class StateSpec(SpecModel):
    """A named state: a body, and transitions in the order of evaluation.

    A failed body follows `on_error`. Without it, `after_failure` decides: the machine fails, or `next`
    is followed (`go_on`), or `next` is followed and the machine has failed when it ends (`remember`).
    """

    name: Name
    body: "Node | None" = None
    next: list[TransitionSpec] = []
    on_error: Name | None = None
    after_failure: Literal["fail", "go_on", "remember"] = "fail"
    terminal: bool = False


class MachineSpec(NodeBase):
    """Named states, each with a body and transitions."""

    kind: Literal["machine"]
    states: list[StateSpec]
    start: Name | None = None
    max_transitions: Annotated[int, Field(ge=0)] = 1000


class GotoSpec(NodeBase):
    """Leave the body of a state for another state; without one, end the machine."""

    kind: Literal["goto"]
    state: Name | None = None


class TransformSpec(NodeBase):
    """The value of an expression."""

    kind: Literal["transform"]
    expression: Expr
    signal: Pattern | None = None
    """A word that a text can have, as in a prompt."""


class EmitSpec(NodeBase):
    """Emit an event."""

    kind: Literal["emit"]
    event: Name
    data: dict[str, Json] = {}


class AssertSpec(NodeBase):
    """Assert a fact in the dataspace: a record, or a signal."""

    kind: Literal["assert"]
    fact: Json = None
    signal: Text | None = None
    key: Text | None = None
    value: Json = None


class RetractSpec(NodeBase):
    """Retract the facts that match a pattern, or a signal."""

    kind: Literal["retract"]
    fact: Json = None
    signal: Text | None = None
    key: Text | None = None


class WorkflowCallSpec(NodeBase):
    """Run a workflow as a child run."""

    kind: Literal["workflow"]
    workflow: Name
    input: Json = "{{ given }}"
    params: dict[str, Json] = {}
    limits: StepLimitsSpec | None = None


class MergeSpec(NodeBase):
    """Merge the work that a step has left in its workspace, because its `merge` is `none`."""

    kind: Literal["merge"]
    of: Text
    """The id of the step, or the name of the workspace."""
    method: Literal["files", "ff", "squash", "rebase"] = "files"
    on_conflict: 'Literal["ask", "fail"] | Node' = "ask"


class FileSpec(NodeBase):
    """Read a text file of the project; the names in it, if it is a folder."""

    kind: Literal["file"]
    path: Text
    """The path from the folder of the run; it must be inside."""
    optional: bool = False
    """Whether the output is null without such a file, instead of a failure."""


Node = Annotated[
    CallSpec
    | PromptSpec
    | BashSpec
    | GateSpec
    | CancelSpec
    | WaitSpec
    | GraphSpec
    | SequenceSpec
    | WhileSpec
    | LoopSpec
    | BranchSpec
    | SwitchSpec
    | MapSpec
    | ReduceSpec
    | ParallelSpec
    | MachineSpec
    | GotoSpec
    | TransformSpec
    | EmitSpec
    | AssertSpec
    | RetractSpec
    | WorkflowCallSpec
    | MergeSpec
    | FileSpec,
    Field(discriminator="kind"),
]


class InputSpec(SpecModel):
    """A declared input."""

    type: Literal["string", "number", "integer", "boolean", "array", "object", "any"] = "string"
    description: str = ""
    required: bool = False
    default: Json = None
    choices: list[Json] | None = None


class LimitsSpec(SpecModel):
    """The limits of a run; see `nerve.core.limits`."""

    steps: Annotated[int, Field(ge=0)] | None = None
    iterations: Annotated[int, Field(ge=0)] | None = None
    errors: Annotated[int, Field(ge=0)] | None = None
    wall_time: Seconds | None = None
    depth: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    cost: Seconds | None = None
    turns: Annotated[int, Field(ge=0)] | None = None
    agents: Annotated[int, Field(ge=0)] | None = None


class WorkflowSpec(SpecModel):
    """A workflow, independent of its notation."""

    name: Name
    description: str = ""
    inputs: dict[str, InputSpec] = {}
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    provider: Name | None = None
    """The provider of prompts that name neither an agent nor a provider."""
    model: str | None = None
    context: dict[str, Json] = {}
    """The initial value of `context` in expressions."""
    metadata: dict[str, Json] = {}
    folder: str = ""
    """The project folder of its artifacts and logs: `.nerve`, `.archon` …"""
    body: Node


KINDS: dict[str, type[NodeBase]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(get_args(Node)[0])
}
"""Every kind of node by its name."""
