"""Loading: workflows that were written down, and the agents they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nerve.core.nodes.base import Node
from nerve.core.workflow.workflow import Workflow

if TYPE_CHECKING:
    from nerve.core.session.session import Session
    from nerve.spec.checks.names import Known
    from nerve.spec.source import Document
    from nerve.spec.workflow import DefinedWorkflow
    from nerve.store.port import Definition

KINDS = {"claude-code": "claude"}
"""Other names that people use for a provider."""


def load(session: Session, given: str | os.PathLike[str], notation: str | None = None) -> DefinedWorkflow:
    """Read a workflow from a file or a text, check it, and register it."""
    from nerve.notations import open_document
    from nerve.spec.check import check
    from nerve.spec.workflow import DefinedWorkflow, refuse

    document, folder = open_document(given, session.project, notation)
    checked = check(document)
    refuse(checked.problems)
    assert checked.spec is not None
    forget(session, document, checked.spec.name)
    spec = checked.spec.model_copy(update={"folder": folder})
    workflow = DefinedWorkflow(spec, session, document)
    workflow.problems = checked.problems
    return workflow


def forget(session: Session, document: Document, name: str) -> None:
    """Make room for a workflow that is loaded again; runs that are open keep what they were started from."""
    from nerve.spec.workflow import DefinedWorkflow, slug

    known = session.workflows.get(slug(name))
    if isinstance(known, DefinedWorkflow):
        session.delete_workflow(slug(name))


def pinned(session: Session, definition: Definition) -> DefinedWorkflow | None:
    """A workflow as a run was started from it, whatever its file says today; None if it is Python code."""
    if definition.notation not in ("json", "yaml", "lisp"):
        return None
    from nerve.core.values import decode
    from nerve.spec.models import WorkflowSpec
    from nerve.spec.source import Document, Map
    from nerve.spec.workflow import DefinedWorkflow

    data = decode(definition.canonical)
    document = Document(Map(data), definition.notation, text=definition.source)
    spec = WorkflowSpec.model_validate(data)
    return DefinedWorkflow(spec, session, document, register=False)


def find(session: Session, name: str) -> Node | None:
    """What a workflow can call by a name: a node, a graph, a workflow, an agent file, a provider."""
    own, _, workflow = name.rpartition("workflow:")
    if workflow != name:
        return session.get_workflow(workflow) if not own else None
    found: Node | None = session.get_node(name) or session.get_graph(name) or session.get_workflow(name)
    return found or agent(session, name)


def agent(session: Session, name: str) -> Node | None:
    if name not in session._agents and (made := make_agent(session, name)) is not None:
        session._agents[name] = made
    return session._agents.get(name)


def make_agent(session: Session, name: str) -> Node | None:
    """An agent file of the project, or a provider by its own name."""
    from nerve.agents.node import AgentNode
    from nerve.notations.agents import discover_agents

    file = discover_agents(session.project).get(name)
    driven_by = file.provider or "claude" if file else name
    provider = session.providers.get(KINDS.get(driven_by, driven_by))
    if provider is None:
        return None
    cwd = str(session.project.absolute())
    return AgentNode(name, None, provider, file.model if file else None, file.text() if file else None, cwd)


def known(session: Session) -> Known:
    from nerve.spec.checks.names import Known

    names = [*session.nodes, *session.graphs, *session.workflows, *session.providers]
    return Known(lambda name: find(session, name) is not None, list(session.workflows), names)


def check_start(session: Session, workflow: Workflow, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of a run that may start: inputs as declared, and every name in it known."""
    checked = workflow.check_params(params or {})
    workflow.check_names(lambda: known(session))
    return checked
