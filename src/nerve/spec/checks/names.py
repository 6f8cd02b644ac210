"""Names that must be known to the project: nodes, agents, workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from nerve.core.suggest import suggest
from nerve.spec import models
from nerve.spec.checks.rules import Wrong
from nerve.spec.walk import Found

CHILD = "workflow:"
DEFAULT = "claude"
"""The provider of a prompt that nothing names one for."""


@dataclass(frozen=True, slots=True)
class Known:
    """The names a project has, for the checks of a workflow that may call them."""

    has: Callable[[str], bool]
    """Whether there is a node, graph, workflow, agent or provider of that name."""
    workflows: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """What could have been meant."""
    refusal: Callable[[str, str], str] = lambda workflow, caller: ""
    """Why a workflow may not be called by another; empty if it may."""
    getting: Callable[[str], str] = lambda name: ""
    """How to get an agent that is known but not there; empty if nobody knows it."""
    inputs: Callable[[str], Mapping[str, models.Input]] = lambda workflow: {}
    """The inputs that a workflow declares, where that can be known."""


def called(node: models.NodeBase) -> str | None:
    """What a node calls that may be a workflow."""
    match node:
        case models.Call(target=name) | models.Prompt(agent=name):
            return name
        case models.WorkflowCall(workflow=name):
            return CHILD + name
    return None


def barred(own: str, found: list[Found], known: Known) -> Iterator[Wrong]:
    """Workflows that the one of the id `own` calls and may not."""
    for each in found:
        name = called(each.spec)
        id = (name or "").removeprefix(CHILD)
        if name and (name != id or id in known.workflows) and (why := known.refusal(id, own)):
            key = next(key for key in ("target", "agent", "workflow") if hasattr(each.spec, key))
            yield (*each.loc, key), why, "Change the configuration, or call another."


def ungiven(found: list[Found], known: Known) -> Iterator[Wrong]:
    """Inputs that a called workflow needs and is not given, and those that it is given and does not have."""
    for each in found:
        node = each.spec
        if not isinstance(node, models.WorkflowCall) or not (declared := known.inputs(node.workflow)):
            continue
        for name, input in declared.items():
            if input.required and name not in node.params:
                message = f"workflow '{node.workflow}' needs the input '{name}' ({input.type})"
                yield (*each.loc, "workflow"), message, f"Add it to params: {{{name}: …}}."
        for name in node.params:
            if name not in declared:
                message = f"workflow '{node.workflow}' has no input '{name}'{suggest(name, declared)}"
                yield (*each.loc, "params", name), message, f"It has: {', '.join(declared)}."


def unknown(spec: models.WorkflowSpec, found: list[Found], known: Known) -> Iterator[Wrong]:
    for each in found:
        match each.spec:
            case models.Call(target=target) if not known.has(target):
                yield (*each.loc, "target"), *nobody(target, known)
            case models.Prompt():
                yield from prompt(each, spec, known)
            case models.WorkflowCall(workflow=name) if name != spec.name and name not in known.workflows:
                yield (
                    (*each.loc, "workflow"),
                    f"there is no workflow '{name}'{suggest(name, known.workflows)}",
                    "Load it first.",
                )


def prompt(each: Found, spec: models.WorkflowSpec, known: Known) -> Iterator[Wrong]:
    node = each.spec
    assert isinstance(node, models.Prompt)
    key = "agent" if node.agent else "provider"
    name = node.agent or node.provider or spec.provider or DEFAULT
    if not known.has(name):
        default = ("provider",) if spec.provider else each.loc
        yield ((*each.loc, key) if getattr(node, key) else default), *nobody(name, known)
    if node.fallback is not None and not known.has(node.fallback):
        yield (*each.loc, "fallback"), *nobody(node.fallback, known)


def nobody(name: str, known: Known) -> tuple[str, str]:
    if how := known.getting(name):
        return f"Agent not found: {name}", how
    return (
        f"Agent not found: {name}{suggest(name, known.names)}",
        "Register a node or a provider of that name, or add an agent file.",
    )
