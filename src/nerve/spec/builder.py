"""Build the node tree of one run from a spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from nerve.core.nodes.base import ControlNode, Node, NodeRegistry, node_role, with_changes
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.control.branch_node import BranchNode
from nerve.core.nodes.control.gate_node import POLICY_SETTINGS, GateNode, answer_result
from nerve.core.nodes.control.loop_node import LoopNode, LoopState
from nerve.core.nodes.control.machine_node import MachineNode, State
from nerve.core.nodes.control.map_node import MapNode
from nerve.core.nodes.control.parallel_node import ParallelNode
from nerve.core.nodes.control.reduce_node import ReduceNode
from nerve.core.nodes.control.switch_node import SwitchNode
from nerve.core.nodes.control.while_node import WhileNode, WhileState
from nerve.core.nodes.control.workspace_node import MergeNode, OnConflict
from nerve.core.nodes.fact_nodes import AssertNode, RetractNode
from nerve.core.nodes.workspace import WorkspaceKind, WorkspaceSettings
from nerve.core.policy import Policy
from nerve.core.result import REJECTED_ERROR_TYPE, Result, is_final_rejection, is_rejected
from nerve.spec import models
from nerve.spec.dataspace_nodes import asserted_fact, prepare_wait, retracted_pattern
from nerve.spec.expectations import WithExpectations
from nerve.spec.file_nodes import ReadFile
from nerve.spec.inline_nodes import (
    ComputeNode,
    Iteration,
    MapItemBody,
    PreparedCall,
    ScopedGraph,
    ScopedStep,
    SequenceNode,
    StateBody,
    StepInWorkspace,
    WithTimeout,
    WrappedNode,
    limits_policy,
)
from nerve.spec.prompt_nodes import fill_prompt, fill_settings_of, prepare_prompt
from nerve.spec.retry_conditions import retry_of_spec
from nerve.spec.scope import ConversationScopes, Scope, ScopeView
from nerve.spec.signals import result_with_signal
from nerve.spec.template_values import (
    evaluate_expression,
    fill_templates,
    is_condition_true,
    render_command,
    render_text,
)
from nerve.spec.walk import filled_variables

ControlNodeT = TypeVar("ControlNodeT", bound=ControlNode)
Value = TypeVar("Value")

PrepareCall = Callable[[ScopeView], PreparedCall]
METHOD_NAMES = {"while": "while_", "assert": "assertion", "retract": "retraction"}
"""The methods that build kinds whose names are words of Python; the others have the name of their kind."""
DRY_RUN_TIMES: int | None = 1
"""The number of iterations of a loop whose number a dry run cannot compute."""
NO_SESSION_NAMES = cast("NodeRegistry", None)
"""Nodes built from a spec are not registered in a session: two files may both have a step `test`."""


class NodeBuilder:
    """Builds the nodes of one run, one method for each kind of node."""

    def __init__(self, scope: Scope, names: NodeRegistry) -> None:
        self.scope, self.names = scope, names

    def with_scope(self, scope: Scope) -> NodeBuilder:
        return type(self)(scope, self.names)

    def step(self, spec: models.NodeBase, is_run: bool = False) -> ScopedStep:
        """Return the node of a spec as a step, with its condition, checks, workspace and policy.

        The workspace of the body of a workflow is that of the run.
        """
        kind = spec.kind
        name = spec.id or getattr(spec, "role", None) or kind
        make, policy = self.preparer(spec, name), self._policy(spec, kind)
        schema = getattr(spec, "output_schema", None)

        def prepare(view: ScopeView) -> PreparedCall:
            prepared = make(view)
            prepared.shares_files = shares_files
            # An agent gets the schema with its request and repairs its own answer.
            is_agent_request = getattr(prepared.node, "takes_request", False) or getattr(
                spec, "detach", False
            )
            required_schema = None if is_agent_request else schema
            if spec.expect or required_schema is not None:
                checked = WithExpectations(name, prepared, spec.expect, view, required_schema)
                prepared = PreparedCall(checked, view["given"])
            if policy.timeout is not None and getattr(prepared.node, "inline", False):
                prepared.node = WithTimeout(prepared.node, self.scope)
            return prepared

        shares_files = spec.workspace is not None and workspace_kind(spec) == "shared"
        is_plain = not shares_files and not spec.expect and schema is None and policy.timeout is None
        prepare_step = make if is_plain else prepare
        if self.has_workspace(spec) and not getattr(spec, "detach", False):
            return self._step_in_workspace(spec, name, prepare_step, policy, is_run)
        return ScopedStep(name, self.scope, prepare_step, when=spec.when, policy=policy, result_id=spec.id)

    def has_workspace(self, spec: models.NodeBase) -> bool:
        """Return whether a node works in a checkout of its own."""
        return workspace_kind(spec) != "shared"

    def _step_in_workspace(
        self, spec: models.NodeBase, name: str, prepare: PrepareCall, policy: Policy, is_run: bool
    ) -> ScopedStep:
        """Return a step in a workspace; retries and timeouts apply to the step, and not to the merge."""
        handlers = Policy(on_error=policy.on_error, on_timeout=policy.on_timeout)
        inner = ScopedStep(name, self.scope, prepare, policy=replace(policy, on_error=None, on_timeout=None))

        def prepare_outer(view: ScopeView) -> PreparedCall:
            return PreparedCall(self._in_workspace(spec, name, inner, view, is_run), view["given"])

        return ScopedStep(
            *(name, self.scope, prepare_outer),
            when=spec.when,
            policy=handlers,
            result_id=spec.id,
            workspace_kind=workspace_kind(spec),
        )

    def _in_workspace(
        self, spec: models.NodeBase, name: str, body: Node, view: ScopeView, is_run: bool = False
    ) -> StepInWorkspace:
        workspace = spec.workspace
        given = workspace if isinstance(workspace, models.WorkspaceSpec) else models.WorkspaceSpec()
        branch = render_text(given.branch, view) if given.branch is not None else None
        base = render_text(given.base, view) if given.base is not None else None
        if is_run:
            variables = self.scope.run_variables
            branch, base = variables.branch if variables.has_own_branch else branch, base or "HEAD"
        settings = WorkspaceSettings(
            cast("WorkspaceKind", workspace_kind(spec)),
            base,
            branch,
            tuple(given.files),
            given.setup,
            given.merge or ("none" if is_run else "files"),
        )
        artifacts = self.scope.run_variables.artifacts
        return StepInWorkspace(name, body, settings, self._on_conflict(given.on_conflict), artifacts, is_run)

    def _on_conflict(self, on_conflict: models.NodeBase | str) -> OnConflict:
        if isinstance(on_conflict, models.NodeBase):
            return self.step(on_conflict)
        return cast("OnConflict", on_conflict)

    def preparer(self, spec: models.NodeBase, name: str) -> PrepareCall:
        """Return the function that prepares the call of a node from the values of its scope."""
        build: Callable[[models.NodeBase, str], PrepareCall] = getattr(
            self, METHOD_NAMES.get(spec.kind, spec.kind)
        )
        return build(spec, name)

    def _policy(self, spec: models.NodeBase, kind: str) -> Policy:
        """Return the policy of a node; gates and waits handle their timeout themselves."""
        on_error = spec.on_error if isinstance(spec.on_error, str | None) else self.step(spec.on_error)
        policy = Policy.of(
            retry=retry_of_spec(spec.retry) if spec.retry else None,
            timeout=None if kind in ("gate", "wait") else spec.timeout,
            idle_timeout=spec.idle_timeout,
            on_error=on_error,
            effect=spec.effect,
        )
        if not isinstance(spec, models.SequenceSpec) or spec.on_timeout is None:
            return policy
        on_timeout = spec.on_timeout if isinstance(spec.on_timeout, str) else self.step(spec.on_timeout)
        return replace(policy, on_timeout=on_timeout)

    # -- what a dry run changes ----------------------------------------------------------------

    def evaluate(self, name: str, compute: Callable[[], Value], default: Value) -> Value:
        """Return a value that the step `name` computes; a dry run has the default if that fails."""
        return compute()

    def find_target(self, target: str, is_workflow: bool = False) -> Node:
        """Return what a step calls; a dry run has a stub for everything except declarative workflows."""
        node: Node | None = self.names.get_workflow(target) if is_workflow else self.names.find(target)
        if node is None:
            raise ValueError(
                f"Workflow '{target}' not found" if is_workflow else f"Agent not found: {target}"
            )
        return node

    def should_repeat(self, description: str) -> bool:
        """Return whether a loop whose condition says so runs again."""
        return True

    def choose_gate_answer(self, spec: models.GateSpec, name: str) -> str | None:
        """Return the answer of a gate that asks no person."""
        return None

    def evaluate_items(self, over: str, name: str, view: ScopeView) -> list[dict[str, Any]]:
        """Return the items of a list with their positions."""
        value = evaluate_expression(over, view)
        if not isinstance(value, list):
            raise ValueError(f"'{over}' must be a list, got {type(value).__name__}")
        return [{"index": n, "item": item} for n, item in enumerate(value)]

    def select_case(self, spec: models.SwitchSpec, name: str, view: ScopeView) -> str:
        """Return the key of the case that a switch selects."""
        return render_text(f"{{{{ {spec.key} }}}}", view)

    # -- leaves and waits ----------------------------------------------------------------------

    def in_directory(
        self, prepared: PreparedCall, directory: str | None, name: str, view: ScopeView
    ) -> PreparedCall:
        """Set the working directory of a call.

        A literal path may point anywhere; a path from a template must stay inside the project.
        """
        if directory is not None and "{{" in directory:
            prepared.is_cwd_confined = True
            prepared.cwd = self.evaluate(name, lambda: render_text(directory, view), None)
        else:
            prepared.cwd = directory
        return prepared

    def call(self, spec: models.CallSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            node = self.find_target(spec.target)
            if getattr(node, "takes_request", False):
                schema = {} if spec.output_schema is None else {"output_schema": spec.output_schema}
                settings = fill_settings_of(spec, view)
                node = with_changes(node, schema | ({"step_settings": settings} if settings else {}))
            input_value = self.evaluate(name, lambda: fill_templates(spec.input, view), None)
            if spec.cwd is not None and node_role(node) == "workflow":
                raise ValueError(f"'{name}' calls the workflow '{spec.target}', which cannot have a cwd")
            prepared = PreparedCall(node, input_value, policy=limits_policy(spec))
            return self.in_directory(prepared, spec.cwd, name, view)

        return make

    def workflow(self, spec: models.WorkflowCallSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            workflow = self.find_target(spec.workflow, is_workflow=True)
            input_value = self.evaluate(name, lambda: fill_templates(spec.input, view), None)
            params: dict[str, Any] = self.evaluate(name, lambda: fill_templates(spec.params, view), {})
            return PreparedCall(workflow, input_value, params, policy=limits_policy(spec))

        return make

    def prompt(self, spec: models.PromptSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            def finish(prepared: PreparedCall) -> PreparedCall:
                prepared = self.in_directory(prepared, spec.cwd, name, view)
                if not (spec.detach and self.has_workspace(spec)):
                    return prepared
                # The prompt itself is over at once; its answer is the work.
                body = ScopedStep(name, self.scope, lambda _: prepared)
                return PreparedCall(self._in_workspace(spec, name, body, view), view["given"])

            return prepare_prompt(spec, name, view, self.names, finish)

        return make

    def bash(self, spec: models.BashSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            command, values = render_command(spec.command, view, filled_variables(spec))
            env = {key: render_text(value, view) for key, value in spec.env.items()}
            # A literal path may point anywhere; a path from a template must stay inside the project.
            is_filled = "{{" in (spec.cwd or "")
            cwd = render_text(spec.cwd, view) if spec.cwd else None
            return PreparedCall(
                BashNode(name, None, command, cwd, env | values, is_filled), fill_templates(spec.input, view)
            )

        return make

    def file(self, spec: models.FileSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            path = self.evaluate(name, lambda: fill_prompt(spec.path, view), spec.path)
            return PreparedCall(ReadFile(name, None), {"path": path, "optional": spec.optional})

        return make

    def merge(self, spec: models.MergeSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            on_conflict = self._on_conflict(spec.on_conflict)
            node = MergeNode(
                name, NO_SESSION_NAMES, render_text(spec.of, view), spec.method, on_conflict=on_conflict
            )
            return PreparedCall(node, view["given"])

        return make

    def gate(self, spec: models.GateSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            answer = self.choose_gate_answer(spec, name)
            gate = GateNode(
                name,
                NO_SESSION_NAMES,
                self.evaluate(name, lambda: render_text(spec.prompt, view), spec.prompt),
                spec.options,
                spec.timeout,
                auto_answer=answer,
                choices=spec.choices,
                form=spec.form if answer is None else None,
                reject=spec.reject,
                **gate_policy_settings(spec, view),
            )
            return PreparedCall(WrappedNode(gate, lambda result: gate_result(spec, result)), view["given"])

        return make

    def cancel(self, spec: models.CancelSpec, name: str) -> PrepareCall:
        return lambda view: PreparedCall(
            ComputeNode(name, lambda _: None),
            map_result=lambda _: Result.failed(render_text(spec.reason, view), REJECTED_ERROR_TYPE),
        )

    def wait(self, spec: models.WaitSpec, name: str) -> PrepareCall:
        return lambda view: prepare_wait(spec, name, view)

    # -- computed values ------------------------------------------------------------------------

    def transform(self, spec: models.TransformSpec, name: str) -> PrepareCall:
        find_signal = None if spec.signal is None else partial(result_with_signal, signal=spec.signal)
        return lambda view: PreparedCall(
            ComputeNode(name, lambda _: evaluate_expression(spec.expression, view)), map_result=find_signal
        )

    def emit(self, spec: models.EmitSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            data = fill_templates(spec.data, view)

            def emit_event(context: Any) -> Any:
                context.emit(spec.event, data)
                return view["given"]

            return PreparedCall(ComputeNode(name, emit_event))

        return make

    def goto(self, spec: models.GotoSpec, name: str) -> PrepareCall:
        def request_goto(view: ScopeView) -> Any:
            self.scope.goto(spec.state)
            return view["given"]

        return lambda view: PreparedCall(ComputeNode(name, lambda _: request_goto(view)))

    def assertion(self, spec: models.AssertSpec, name: str) -> PrepareCall:
        return lambda view: PreparedCall(AssertNode(name), asserted_fact(spec, view))

    def retraction(self, spec: models.RetractSpec, name: str) -> PrepareCall:
        return lambda view: PreparedCall(RetractNode(name), retracted_pattern(spec, view))

    def reduce(self, spec: models.ReduceSpec, name: str) -> PrepareCall:
        def make(view: ScopeView) -> PreparedCall:
            items = self.evaluate_items(spec.over, name, view)

            def fold(acc: Any, pair: dict[str, Any]) -> Any:
                return evaluate_expression(spec.expression, view.with_values(acc=acc, **pair))

            node = ReduceNode(name, NO_SESSION_NAMES, fold, fill_templates(spec.initial, view))
            return PreparedCall(mark_inline(node), items)

        return make

    # -- control -------------------------------------------------------------------------------

    def sequence(self, spec: models.SequenceSpec, name: str) -> PrepareCall:
        asides = frozenset(n for n, step in enumerate(spec.steps) if is_aside_test(step))
        node = SequenceNode(name, self.scope, map(self.step, spec.steps), asides)
        return lambda view: PreparedCall(node, view["given"])

    def graph(self, spec: models.GraphSpec, name: str) -> PrepareCall:
        node, conversation_scopes = (
            ScopedGraph(name, NO_SESSION_NAMES, self.scope),
            ConversationScopes(self.scope),
        )
        for part in spec.steps:
            scope = conversation_scopes.scope_for(part.id or part.kind, part.depends_on)
            step = self.with_scope(scope).step(part)
            inherit = partial(conversation_scopes.inherit_threads, step.id or "")
            wrapped = WrappedNode(step, set_up=inherit)
            node.add_step(wrapped, step.id, part.depends_on, trigger_rule=part.trigger_rule)

        def make(view: ScopeView) -> PreparedCall:
            conversation_scopes.clear()
            return PreparedCall(mark_inline(node), view["given"], map_result=conversation_scopes.hand_back)

        return make

    def iteration(self, body: models.NodeBase, name: str) -> Iteration:
        scope = self.scope.for_iteration()
        return Iteration(name, scope, self.with_scope(scope).step(body))

    def while_(self, spec: models.WhileSpec, name: str) -> PrepareCall:
        body = self.iteration(spec.body, name)

        def should_continue(state: WhileState) -> bool:
            current_output = getattr(state.current_value, "output", state.current_value)
            view = self.scope.view(given=current_output, iteration=state.iteration)
            if self.scope.pending_goto.is_leaving or not self.evaluate(
                name, lambda: is_condition_true(spec.condition, view), True
            ):
                return False
            return state.iteration == 0 or self.should_repeat(f"the loop '{name}'")

        def make(view: ScopeView) -> PreparedCall:
            node = WhileNode(name, NO_SESSION_NAMES, should_continue, body, spec.max_iterations, spec.on_max)
            return PreparedCall(WrappedNode(mark_inline(node), set_up=body.reset), view["given"])

        return make

    def loop(self, spec: models.LoopSpec, name: str) -> PrepareCall:
        body = self.iteration(spec.body, name)

        def is_finished(state: LoopState) -> bool:
            if self.scope.pending_goto.is_leaving:
                return True
            view, until = self.scope.view(given=state.result.output, iteration=state.iteration), spec.until
            if until is not None and self.evaluate(name, lambda: is_condition_true(until, view), True):
                return True
            return not self.should_repeat(f"the loop '{name}'")

        def make(view: ScopeView) -> PreparedCall:
            times: int | None = self.evaluate(name, lambda: evaluate_times(spec.times, view), DRY_RUN_TIMES)
            bound = spec.max_iterations if times is None else None
            node = LoopNode(
                name, NO_SESSION_NAMES, body, times, is_finished, bound, spec.accumulate, spec.on_max
            )
            return PreparedCall(WrappedNode(mark_inline(node), set_up=body.reset), view["given"])

        return make

    def branch(self, spec: models.BranchSpec, name: str) -> PrepareCall:
        then = self.step(spec.then)
        otherwise = self.step(spec.otherwise) if spec.otherwise else None

        def make(view: ScopeView) -> PreparedCall:
            def is_true(_: Any) -> bool:
                return self.evaluate(name, lambda: is_condition_true(spec.condition, view), True)

            node = BranchNode(name, NO_SESSION_NAMES, is_true, then, otherwise)
            return PreparedCall(mark_inline(node), view["given"])

        return make

    def switch(self, spec: models.SwitchSpec, name: str) -> PrepareCall:
        cases = {key: self.step(case) for key, case in spec.cases.items()}
        default = self.step(spec.default) if spec.default else None

        def make(view: ScopeView) -> PreparedCall:
            node = SwitchNode(
                name, NO_SESSION_NAMES, lambda _: self.select_case(spec, name, view), cases, default
            )
            return PreparedCall(mark_inline(node), view["given"])

        return make

    def map(self, spec: models.MapSpec, name: str) -> PrepareCall:
        kind = workspace_kind(spec.body) if self.has_workspace(spec.body) else None
        body = MapItemBody(name, self.scope, lambda scope: self.with_scope(scope).step(spec.body), kind)

        def make(view: ScopeView) -> PreparedCall:
            node = MapNode(name, NO_SESSION_NAMES, body, spec.max_parallel, spec.require)
            return PreparedCall(mark_inline(node), self.evaluate_items(spec.over, name, view))

        return make

    def parallel(self, spec: models.ParallelSpec, name: str) -> PrepareCall:
        conversation_scopes = ConversationScopes(self.scope)
        branches = {
            branch_name: self.with_scope(conversation_scopes.scope_for(branch_name)).step(part)
            for part in spec.branches
            if (branch_name := part.id or part.kind)
        }
        node = ParallelNode(name, NO_SESSION_NAMES, cast("dict[str, Node]", branches), spec.require)

        def make(view: ScopeView) -> PreparedCall:
            conversation_scopes.clear()
            parallel_node = (
                WrappedNode(mark_inline(node), partial(parallel_result, spec))
                if spec.outputs == "list"
                else mark_inline(node)
            )
            return PreparedCall(parallel_node, view["given"])

        return make

    def machine(self, spec: models.MachineSpec, name: str) -> PrepareCall:
        transitions = MachineTransitions(self.scope)
        states = {}
        for state in spec.states:
            body = StateBody(state.name, self.scope, self.step(state.body) if state.body else None)
            states[state.name] = State(body, partial(transitions.next_state, state))

        def make(view: ScopeView) -> PreparedCall:
            node = MachineNode(name, NO_SESSION_NAMES, states, spec.start, max(1, spec.max_transitions))
            transitions.reset()
            return PreparedCall(WrappedNode(mark_inline(node), transitions.outcome), view["given"])

        return make


class MachineTransitions:
    """The transitions of one machine in one run."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._remembered_failure: Result | None = None

    def next_state(self, state: models.StateSpec, result: Result) -> str | None:
        scope = self._scope
        if scope.pending_goto.is_leaving:
            scope.pending_goto.is_leaving = False
            return scope.pending_goto.target
        if not result.success:
            if is_final_rejection(result) or (state.on_error is None and state.after_failure == "fail"):
                return None
            if state.on_error is not None:
                return state.on_error
            if state.after_failure == "remember":
                if is_rejected(result):
                    return None
                self._remembered_failure = Result.failed(
                    f"state '{state.name}' failed: {result.error}",
                    result.error_type,
                    result.output,
                    result.attributes,
                )
        view = scope.view(given=result.output)
        targets = (
            transition.to
            for transition in state.next
            if transition.when is None or is_condition_true(transition.when, view)
        )
        return next(targets, None)

    def reset(self) -> None:
        """Forget the failure of the previous execution of the machine."""
        self._remembered_failure = None

    def outcome(self, result: Result) -> Result:
        """Return the result of the machine: a remembered failure, if there is one."""
        return self._remembered_failure if self._remembered_failure is not None and result.success else result


def workspace_kind(spec: models.NodeBase) -> str:
    """Return where a node works: `shared`, `worktree` or `copy`."""
    workspace = spec.workspace
    return workspace.kind if isinstance(workspace, models.WorkspaceSpec) else workspace or "shared"


def is_aside_test(spec: models.NodeBase) -> bool:
    """Whether a step is a test that a notation inserted before the branch that uses its result."""
    return isinstance(spec, models.WaitSpec) and spec.test and (spec.id or "").startswith("_")


def mark_inline(node: ControlNodeT) -> ControlNodeT:
    node.inline = True
    return node


def evaluate_times(times: int | str | None, view: ScopeView) -> int | None:
    if not isinstance(times, str):
        return times
    value = evaluate_expression(times, view)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise ValueError(f"times '{times}' must be a non-negative integer, got {value!r}")
    return int(value)


def parallel_result(spec: models.ParallelSpec, result: Result) -> Result:
    """Return the outcome of each branch as a list; a failure lists the failed branches and their errors."""
    parts: dict[str, Result] = result.attributes["results"]
    reports = [
        {
            "stepId": id,
            "status": "fulfilled" if part.success else "rejected",
            "result": part.output,
            "error": part.get("error"),
        }
        for id, part in parts.items()
    ]
    if result.success:
        return Result.ok(reports, result.attributes)
    failed = {id: part.error for id, part in parts.items() if not part.success}
    failure_texts = "; ".join(f"{id}: {error}" for id, error in failed.items())
    too_few = len(parts) - len(failed) < (spec.require or 0)
    needed = f", {spec.require} must succeed" if too_few else ""
    error = f"{len(failed)} of {len(parts)} failed{needed} ({failure_texts})"
    return Result.failed(error, result.error_type, reports, result.attributes)


def gate_policy_settings(spec: models.GateSpec, view: ScopeView) -> dict[str, Any]:
    """Return the settings of a gate that make its policy; empty if it has none."""
    settings = spec.model_dump(include=set(POLICY_SETTINGS), exclude_defaults=True)
    if spec.author is not None:
        settings["author"] = render_text(spec.author, view).strip()
    return settings


def gate_result(spec: models.GateSpec, result: Result) -> Result:
    """Return the result of a gate; after a timeout, the default answer counts if there is one."""
    if not result.success and result.error_type == "TimeoutError" and spec.default is not None:
        result = answer_result(spec.default, spec.reject, {"timed_out": True})
    if not result.success and not is_rejected(result):
        return result
    approved = result.output not in (spec.reject or ("reject", "no"))
    output = {"approved": approved} if spec.output == "approved" else result.output
    return Result({**result, "output": output, "attributes": {**result.attributes, "approved": approved}})
