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


class StepLimitsSpec(SpecModel):
    """The budget of a step over all attempts; when it is spent, the run is held until it is raised."""

    tokens: Annotated[int, Field(ge=0)] | None = None
    cost: Seconds | None = None
    """In US dollars."""
    turns: Annotated[int, Field(ge=0)] | None = None
    """The number of agent turns."""


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
    when: Expr | None = None
    """The node is skipped when this is false."""
    retry: RetrySpec | None = None
    timeout: Seconds | None = None
    idle_timeout: Seconds | None = None
    on_error: 'Literal["fail", "skip"] | Node | None' = None
    """What happens on failure: fail the enclosing node, skip this one, or run another node instead."""
    effect: Literal["repeat", "once"] | None = None
    expect: list[ExpectSpec] = []


class CallSpec(NodeBase):
    """A call of a node, graph, workflow or agent by name."""

    kind: Literal["call"]
    target: Name
    input: Json = "{{ given }}"
    cwd: Text | None = None
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the answer; the parsed answer becomes the output."""
    limits: StepLimitsSpec | None = None


class PromptSpec(NodeBase):
    """A prompt for an agent: a `text`, or a `file` that is read when the workflow is loaded."""

    kind: Literal["prompt"]
    text: Text | None = None
    file: str | None = None
    """A file name in the `steps` or `commands` folder next to the workflow, without `.md`."""
    args: dict[str, Json] = {}
    """Values that the text reads as `args.<name>`."""
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
    permissions: PermissionsSpec | None = None
    tools: list[Name] | None = None
    """The tools that the agent may use without approval, as the provider names them."""
    max_turns: Count | None = None
    """The number of model calls in one turn, if the provider supports a limit."""
    fallback: Name | None = None
    """The provider to use while the first one is rate limited."""
    limits: StepLimitsSpec | None = None
    tag: Name | None = None
    """The request id of the fact with the answer."""
    detach: bool = False
    """Continue without the answer; a wait for the tag, or the end of the state, joins it."""


class BashSpec(NodeBase):
    """A shell command. Values are passed as environment variables, never inserted into the script."""

    kind: Literal["bash"]
    command: Text
    input: Json = "{{ given }}"
    cwd: Text | None = None
    env: dict[str, Text] = {}


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


Node = Annotated[
    CallSpec
    | PromptSpec
    | BashSpec
    | GateSpec
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
    | WorkflowCallSpec,
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
