"""Names that must be known to the project: nodes, agents, workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from nerve.core.nodes.graph import suggest
from nerve.spec import models
from nerve.spec.checks.rules import Wrong
from nerve.spec.walk import Found

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
        yield ((*each.loc, key) if getattr(node, key) else each.loc), *nobody(name, known)


def nobody(name: str, known: Known) -> tuple[str, str]:
    return (
        f"Agent not found: {name}{suggest(name, known.names)}",
        "Register a node or a provider of that name, or add an agent file.",
    )
