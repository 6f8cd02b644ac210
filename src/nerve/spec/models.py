"""The models of the spec: plain data, exactly representable as JSON."""

from __future__ import annotations

import warnings
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Json = Any
"""A JSON value. Strings in it are templates: `{{ expression }}` is filled in when it is needed."""

Expr = str
"""An expression, as `nerve.expr` reads it."""

Text = str
"""A template."""

Name = Annotated[str, Field(min_length=1, max_length=128)]
Pattern = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class SpecModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RetrySpec(SpecModel):
    """Try up to `attempts` times in all."""

    attempts: Count = 3
    delay: Seconds = 0.5
    factor: Seconds = 2.0
    cap: Seconds = 60.0
    jitter: Seconds = 0.0
    on: list[str] = []


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # `schema` is a method of pydantic that nobody uses

    class ExpectSpec(SpecModel):
        """A check that the engine makes itself before it believes that a step is done; one of the four."""

        file: Text | None = None
        """A file that must be there and not empty, below the working folder."""
        command: Text | None = None
        """A shell command that must succeed."""
        condition: Expr | None = None
        """An expression that must hold; `output` is what the step gave."""
        schema: dict[str, Any] | None = None  # type: ignore[assignment]
        """A JSON Schema that the output must fit; beside a file, the JSON in it."""


class PermissionsSpec(SpecModel):
    """What the agent may do: patterns of tools, as `Read` or `Bash(git *)`, and what of all others."""

    allow: list[Pattern] | None = None
    ask: list[Pattern] | None = None
    deny: list[Pattern] | None = None
    otherwise: Literal["allow", "ask", "deny"] | None = None


class StepLimitsSpec(SpecModel):
    """What a step may spend, in all its attempts; then the run is held until it is raised."""

    tokens: Annotated[int, Field(ge=0)] | None = None
    cost: Seconds | None = None
    """In US dollars."""
    turns: Annotated[int, Field(ge=0)] | None = None
    """How often agents are asked."""


class NodeBase(SpecModel):
    """What every node may carry."""

    id: Name | None = None
    """Its name, by which expressions see its result as `steps.<id>`."""
    description: str = ""
    depends_on: list[Name] = []
    """In a graph: the steps that must be done before it."""
    when: Expr | None = None
    """It is skipped when this does not hold."""
    retry: RetrySpec | None = None
    timeout: Seconds | None = None
    idle_timeout: Seconds | None = None
    on_error: Literal["fail", "skip"] | Node | None = None
    """What a failure comes to: the failure of what is around it, nothing, or another node instead."""
    effect: Literal["repeat", "once"] | None = None
    expect: list[ExpectSpec] = []


class CallSpec(NodeBase):
    """A node, graph, workflow or agent by its name."""

    kind: Literal["call"]
    target: Name
    input: Json = "{{ given }}"
    cwd: Text | None = None
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the answer, which is the output then."""
    limits: StepLimitsSpec | None = None


class PromptSpec(NodeBase):
    """A prompt for an agent. It has a `text`, or a `file` whose text is read when the workflow is loaded."""

    kind: Literal["prompt"]
    text: Text | None = None
    file: str | None = None
    """A name in the `steps` or `commands` folder beside the workflow, without `.md`."""
    args: dict[str, Json] = {}
    """Values that the text sees as `args.<name>`."""
    agent: Name | None = None
    """A node of the session, an agent file, or a provider; the workflow's provider if there is none."""
    provider: Name | None = None
    model: str | None = None
    thread: Name = "shared"
    """The agent's conversation to go on with: `shared`, `fresh` for a new one, or the name of another."""
    role: Name | None = None
    """Who answers: expressions see the last answer as `roles.<role>`."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the answer, which is the output then."""
    permissions: PermissionsSpec | None = None
    tools: list[Name] | None = None
    """The tools that may be used without asking, by the provider's own names."""
    max_turns: Count | None = None
    """How often the agent may ask its model in one turn, where the provider can bound that."""
    fallback: Name | None = None
    """The provider to ask while the first is limited."""
    limits: StepLimitsSpec | None = None
    tag: Name | None = None
    """The request id under which the answer is asserted as a fact."""
    detach: bool = False
    """Go on without the answer; a wait for the tag, or the end of the state, joins it."""


class BashSpec(NodeBase):
    """A shell command. Values get in as environment variables, never by being pasted."""

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
    """A JSON Schema that the answer fits, instead of choices."""
    reject: list[str] = []
    """Answers that end the run as cancelled, whatever handles errors around it."""
    default: str | None = None
    """The answer that is taken when the time is up; without one the gate fails then."""
    output: Literal["answer", "approved"] = "answer"
    """What it gives: the answer, or an object whose `approved` says whether that was a yes."""


class ConditionSpec(SpecModel):
    """Something in the dataspace to wait for or to test: a signal, the answer to a request, or a fact."""

    name: Name | None = None
    """By which the result says which of several it was."""
    signal: Text | None = None
    key: Text | None = None
    response: Name | None = None
    """The tag of a prompt."""
    fact: Json = None
    """A pattern: a record in which `?name` captures and `_` matches anything."""


class WaitSpec(NodeBase):
    """A wait for the first of several conditions, or for some seconds.

    With `test` it does not wait: it gives whether a condition holds now.
    """

    kind: Literal["wait"]
    any: list[ConditionSpec] = []
    seconds: Seconds | Expr | None = None
    test: bool = False
    on_timeout: Name | None = None
    """The name that is said to have come when the time is up; without one the wait fails then."""


class GraphSpec(NodeBase):
    """Steps that start when the steps they depend on are done."""

    kind: Literal["graph"]
    steps: list[Node]


class SequenceSpec(NodeBase):
    """One after the other; the output is that of the last."""

    kind: Literal["sequence"]
    steps: list[Node]
    on_timeout: Literal["skip"] | Node | None = None
    """What to do instead when its own `timeout` is up; every other failure is for `on_error`."""


class WhileSpec(NodeBase):
    """The body again, while a condition holds."""

    kind: Literal["while"]
    condition: Expr
    body: Node
    max_iterations: Count = 100
    on_max: Literal["fail", "return"] = "fail"


class LoopSpec(NodeBase):
    """The body a number of times, or until a condition holds."""

    kind: Literal["loop"]
    body: Node
    times: Annotated[int, Field(ge=0)] | Expr | None = None
    until: Expr | None = None
    max_iterations: Count = 100
    on_max: Literal["fail", "return"] = "fail"
    accumulate: bool = False


class BranchSpec(NodeBase):
    """One of two ways."""

    kind: Literal["branch"]
    condition: Expr
    then: Node
    otherwise: Node | None = None


class SwitchSpec(NodeBase):
    """One of several ways."""

    kind: Literal["switch"]
    key: Expr
    cases: dict[str, Node]
    default: Node | None = None


class MapSpec(NodeBase):
    """The body for every item of a list, which it sees as `item`, with its `index`."""

    kind: Literal["map"]
    over: Expr = "given"
    body: Node
    max_parallel: Count = 5
    require: int | None = None


class ReduceSpec(NodeBase):
    """One value from a list: an expression over `acc`, `item` and `index`."""

    kind: Literal["reduce"]
    over: Expr = "given"
    initial: Json = None
    expression: Expr


class ParallelSpec(NodeBase):
    """Branches side by side; one failure cancels nobody."""

    kind: Literal["parallel"]
    branches: list[Node]
    require: Annotated[int, Field(ge=0)] | None = None
    outputs: Literal["object", "list"] = "object"
    """What it gives: the output of each branch by its id, or a list that says how each of them ended."""


class TransitionSpec(SpecModel):
    """A way on, taken when its condition holds; `to` is a state, or null for the end."""

    when: Expr | None = None
    to: Name | None = None


class StateSpec(SpecModel):
    """A named state: a body, and the ways on in the order in which they are tried.

    A failed body follows `on_error`. Without it, `after_failure` decides: the machine fails, or `next`
    is followed (`go_on`), or `next` is followed and the machine has failed when it ends (`remember`).
    """

    name: Name
    body: Node | None = None
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
    """Leaves the body of a state for another state; without one, the machine ends."""

    kind: Literal["goto"]
    state: Name | None = None


class TransformSpec(NodeBase):
    """The value of an expression."""

    kind: Literal["transform"]
    expression: Expr


class EmitSpec(NodeBase):
    """An event for watchers."""

    kind: Literal["emit"]
    event: Name
    data: dict[str, Json] = {}


class AssertSpec(NodeBase):
    """A fact for the dataspace: a record, or a signal."""

    kind: Literal["assert"]
    fact: Json = None
    signal: Text | None = None
    key: Text | None = None
    value: Json = None


class RetractSpec(NodeBase):
    """Takes back the facts that match a pattern, or a signal."""

    kind: Literal["retract"]
    fact: Json = None
    signal: Text | None = None
    key: Text | None = None


class WorkflowCallSpec(NodeBase):
    """A workflow as a child run."""

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
    """How far a run may go; see `nerve.core.limits`."""

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
    """A workflow, whatever it was written in."""

    name: Name
    description: str = ""
    inputs: dict[str, InputSpec] = {}
    limits: LimitsSpec = LimitsSpec()
    provider: Name | None = None
    """The provider of prompts that name neither an agent nor a provider."""
    model: str | None = None
    context: dict[str, Json] = {}
    """What expressions see as `context` before any step has run."""
    metadata: dict[str, Json] = {}
    folder: str = ""
    """The folder of the project that it belongs to, where its artifacts and logs go: `.nerve`, `.archon` …"""
    body: Node


for model in list(globals().values()):
    if isinstance(model, type) and issubclass(model, SpecModel):
        model.model_rebuild()

KINDS: dict[str, type[NodeBase]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(get_args(Node)[0])
}
"""Every kind of node, by the name it is written with."""
