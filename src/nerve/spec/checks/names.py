"""Checks of names that the project must know: nodes, agents and workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_settings import AgentSettings
from nerve.spec import models
from nerve.spec.checks.node_rules import LocatedProblem, agent_settings_of
from nerve.spec.walk import SpecNode

CHILD_WORKFLOW_PREFIX = "workflow:"
DEFAULT_PROVIDER = "claude"
"""The provider of a prompt that does not name one."""


SettingProblems = Callable[[str, AgentSettings, Sequence[str] | None], Iterable[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names of a project that a workflow may call."""

    has_name: Callable[[str], bool]
    """Whether a node, graph, workflow, agent or provider has this name."""
    workflows: list[str] = field(default_factory=list)
    list_names: Callable[[], list[str]] = list
    """Returns the candidates for suggestions."""
    call_refusal: Callable[[str, str], str] = lambda workflow, caller: ""
    """The reason why a workflow may not call another; empty if it may."""
    install_hint: Callable[[str], str] = lambda name: ""
    """How to install an agent that is known but not installed; empty for an unknown agent."""
    find_spec: Callable[[str], models.WorkflowSpec | None] = lambda workflow: None
    """Returns the definition of a workflow; None for one in Python, or an unknown one."""
    setting_problems: SettingProblems = lambda agent, settings, tools: ()
    """The settings and tools that an agent cannot honour: the key, the message and the fix of each."""
    edits_files: Callable[[str, AgentSettings, Sequence[str] | None], bool] = lambda agent, step, tools: False
    """Whether an agent may edit files with the settings and tools of a step; false for all other names."""


def called_name(node: models.NodeBase) -> str | None:
    """Return the name that a node calls, with a prefix if it is a child workflow."""
    match node:
        case models.CallSpec(target=name) | models.PromptSpec(agent=name):
            return name
        case models.WorkflowCallSpec(workflow=name):
            return CHILD_WORKFLOW_PREFIX + name
    return None


def find_forbidden_calls(
    caller_id: str, spec_nodes: list[SpecNode], known: KnownNames
) -> Iterator[LocatedProblem]:
    """Yield calls of workflows that `caller_id` may not call."""
    for spec_node in spec_nodes:
        name = called_name(spec_node.spec)
        id = (name or "").removeprefix(CHILD_WORKFLOW_PREFIX)
        if name and (name != id or id in known.workflows) and (reason := known.call_refusal(id, caller_id)):
            key = next(key for key in ("target", "agent", "workflow") if hasattr(spec_node.spec, key))
            yield (*spec_node.loc, key), reason, "Change the configuration, or call another workflow."


def find_wrong_call_inputs(spec_nodes: list[SpecNode], known: KnownNames) -> Iterator[LocatedProblem]:
    """Yield missing and unknown inputs of workflow calls."""
    for spec_node in spec_nodes:
        node = spec_node.spec
        if not isinstance(node, models.WorkflowCallSpec):
            continue
        called = known.find_spec(node.workflow)
        if called is None or not (declared := called.inputs):
            continue
        for name, input in declared.items():
            if input.required and name not in node.params:
                message = f"Workflow '{node.workflow}' needs the input '{name}' ({input.type})"
                yield (*spec_node.loc, "workflow"), message, f"Add it to params: {{{name}: …}}."
        for name in node.params:
            if name not in declared:
                message = (
                    f"Workflow '{node.workflow}' has no input '{name}'{did_you_mean_hint(name, declared)}"
                )
                yield (*spec_node.loc, "params", name), message, f"Inputs: {', '.join(declared)}."


def find_unknown_names(
    spec: models.WorkflowSpec, spec_nodes: list[SpecNode], known: KnownNames
) -> Iterator[LocatedProblem]:
    for spec_node in spec_nodes:
        match spec_node.spec:
            case models.CallSpec(target=target) if not known.has_name(target):
                yield (*spec_node.loc, "target"), *describe_unknown_agent(target, known)
            case models.PromptSpec() as node:
                key = "agent" if node.agent else "provider"
                name = node.agent or node.provider or spec.provider or DEFAULT_PROVIDER
                if not known.has_name(name):
                    default = ("provider",) if spec.provider else spec_node.loc
                    loc = (*spec_node.loc, key) if getattr(node, key) else default
                    yield loc, *describe_unknown_agent(name, known)
                if node.fallback is not None and not known.has_name(node.fallback):
                    yield (*spec_node.loc, "fallback"), *describe_unknown_agent(node.fallback, known)
            case models.WorkflowCallSpec(workflow=name) if name != spec.name and name not in known.workflows:
                yield (
                    (*spec_node.loc, "workflow"),
                    f"Unknown workflow '{name}'{did_you_mean_hint(name, known.workflows)}",
                    "Load it first.",
                )


def find_unsupported_settings(
    spec: models.WorkflowSpec, spec_nodes: list[SpecNode], known: KnownNames
) -> Iterator[LocatedProblem]:
    """Yield the settings of steps that their agents or fallbacks cannot honour."""
    for spec_node in spec_nodes:
        if not isinstance(node := spec_node.spec, models.CallSpec | models.PromptSpec):
            continue
        settings = AgentSettings.of(agent_settings_of(node))
        names, tools = [node.target] if isinstance(node, models.CallSpec) else [], None
        if isinstance(node, models.PromptSpec):
            settings, tools = replace(settings, model=node.model or spec.model), node.tools
            names = [node.agent or node.provider or spec.provider or DEFAULT_PROVIDER]
            names += [node.fallback] if node.fallback else []
        for name in names:
            if known.has_name(name):
                for key, message, fix in known.setting_problems(name, settings, tools):
                    has_key = getattr(node, key, None) is not None
                    yield ((*spec_node.loc, key) if has_key else spec_node.loc), message, fix


def describe_unknown_agent(name: str, known: KnownNames) -> tuple[str, str]:
    if hint := known.install_hint(name):
        return f"Agent not found: {name}", hint
    return (
        f"Agent not found: {name}{did_you_mean_hint(name, known.list_names())}",
        "Register a node or a provider with this name, or add an agent file.",
    )
