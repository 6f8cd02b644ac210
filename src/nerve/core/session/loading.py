"""Loading: workflows that were written down, and the agents they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.core.checks import a_mapping
from nerve.core.nodes.base import Node
from nerve.core.workflow.workflow import Workflow
from nerve.written import NAMES

if TYPE_CHECKING:
    from nerve.agents.port import Provider
    from nerve.core.session.session import Session
    from nerve.notations.agents import AgentFile
    from nerve.spec.checks.names import Known
    from nerve.spec.models import WorkflowSpec
    from nerve.spec.source import Document, Problem
    from nerve.spec.workflow import DefinedWorkflow
    from nerve.store.port import Definition

KINDS = {"claude-code": "claude"}
"""Other names that people use for a provider."""
DEFAULT = "claude"
"""The provider of an agent file that names none."""
EXTRAS = ("acp", "claude", "codex", "llm")
"""The providers that come with an extra of the package."""


class Read(NamedTuple):
    """A workflow that was read and found right."""

    name: str
    spec: WorkflowSpec
    document: Document
    problems: list[Problem]


def load(session: Session, given: str | os.PathLike[str], notation: str | None = None) -> DefinedWorkflow:
    """Read a workflow from a file or a text, check it, and register it."""
    from nerve.notations import open_document

    return define(session, free(session, read(*open_document(given, session.project, notation))))


def read_text(
    session: Session,
    text: str,
    notation: str | None = None,
    file: str | None = None,
    prompts: Mapping[str, str] | None = None,
) -> Read:
    """Read a workflow from a text, which is never taken for the name of a file, and check it.

    Problems call it by its `file`, which is not read; `prompts` are the texts of those that it names.
    """
    from nerve.notations import read as read_source
    from nerve.notations.prompts import attach_prompts

    document = read_source(text, file or "<text>", notation)
    document.notes += attach_prompts(document, session.project, session.project, prompts)
    found = free(session, read(document, ""))
    document.file = f"<{file}>" if file else document.file
    return found


def read(document: Document, folder: str) -> Read:
    from nerve.spec.check import check
    from nerve.spec.workflow import refuse, slug

    checked = check(document)
    refuse(checked.problems)
    assert checked.spec is not None
    spec = checked.spec.model_copy(update={"folder": folder})
    return Read(slug(spec.name), spec, document, checked.problems)


def free(session: Session, given: Read) -> Read:
    """A workflow whose id no other has that is called otherwise; Unreadable if one does."""
    from nerve.spec.source import Unreadable

    there = getattr(session.workflows.get(given.name), "title", given.spec.name)
    if there != given.spec.name:
        message = f"'{given.spec.name}' and '{there}', which is loaded, have the same id '{given.name}'"
        raise Unreadable([given.document.problem(("name",), message, "Rename one of them.")])
    return given


def define(session: Session, given: Read) -> DefinedWorkflow:
    """Register a workflow, in place of an older one; runs that are open keep what they were started from."""
    return put(session, made(session, given))


def made(session: Session, given: Read) -> DefinedWorkflow:
    """A workflow that can be registered; ValueError if its id belongs to code."""
    from nerve.spec.workflow import DefinedWorkflow

    if not isinstance(session.workflows.get(given.name), DefinedWorkflow):
        session.validate_unique_id(given.name, "workflow")
    workflow = DefinedWorkflow(given.spec, session, given.document, register=False)
    workflow.problems = given.problems
    return workflow


def put(session: Session, workflow: DefinedWorkflow) -> DefinedWorkflow:
    session.delete_workflow(workflow.name)
    session.workflows[workflow.name] = workflow
    if session._engine is not None:
        session._engine.defined(workflow)
    return workflow


def file_of(session: Session, name: str) -> str | None:
    """The file that a workflow was loaded from, if it was one."""
    document = getattr(session.workflows.get(name), "document", None)
    return document.file if document is not None and not document.file.startswith("<") else None


def pinned(session: Session, definition: Definition) -> DefinedWorkflow | None:
    """A workflow as a run was started from it, whatever its file says today; None if it is Python code."""
    if definition.notation not in NAMES:
        return None
    from nerve.core.values import decode
    from nerve.notations import read as read_source
    from nerve.spec.models import WorkflowSpec
    from nerve.spec.source import Document, Map, Unreadable
    from nerve.spec.workflow import DefinedWorkflow

    data = decode(definition.canonical)
    spec = WorkflowSpec.model_validate(data)
    file = f"<{definition.workflow}>"
    try:
        document = read_source(definition.source, file, definition.notation)
    except Unreadable:
        document = Document(Map(data), definition.notation, file, definition.source)
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
    """An agent file of the project, or a provider by its own name; Unreadable for a file that is wrong."""
    from nerve.agents.node import AgentNode
    from nerve.notations.agents import discover_agents

    file = discover_agents(session.project).usable(name)
    provider = provider_of(session, file.provider or DEFAULT if file else name)
    cwd = str(session.project.absolute())
    if file is None:
        return None if provider is None else AgentNode(name, None, provider, cwd=cwd)
    check_providers(session, file)
    return AgentNode(
        name,
        None,
        provider,
        file.model,
        file.text(),
        cwd,
        tools=file.tools,
        max_turns=file.max_turns,
        fallback=file.fallback,
        limits=file.limits,
    )


def check_providers(session: Session, file: AgentFile) -> None:
    """Raise Unreadable for a provider that an agent file names, or leaves out, and that is not there."""
    from nerve.spec.source import Unreadable

    for key, name in (("provider", file.provider or DEFAULT), ("fallback", file.fallback)):
        if name is not None and provider_of(session, name) is None:
            how = installing(KINDS.get(name, name))
            raise Unreadable([file.missing(key, name, providers(session), how)])


def providers(session: Session) -> list[str]:
    """The names of all providers that a workflow or an agent file can name."""
    from nerve.agents import registry

    return list({**session.providers, **session.config.providers, **dict.fromkeys(registry.names())})


def provider_of(session: Session, name: str) -> Provider | None:
    """A provider that the session was given, or else one that an installed package offers, made once.

    Raises UnknownProvider or Unavailable for one that is offered and cannot be made.
    """
    from nerve.agents import registry

    if name not in session.providers and name not in session.config.providers:
        name = KINDS.get(name, name)
    if name not in session.providers:
        settings = session.config.providers.get(name)
        if settings is None and name not in registry.names():
            return None
        made = registry.make(name, settings)
        if (check := getattr(made, "check", None)) is not None:
            check()
        session.providers[name] = made
    return session.providers[name]


def known(session: Session) -> Known:
    from nerve.agents.port import Unavailable
    from nerve.agents.registry import UnknownProvider
    from nerve.notations.agents import discover_agents
    from nerve.spec.checks.names import Known

    why: dict[str, str] = {}

    def has(name: str) -> bool:
        try:
            return find(session, name) is not None
        except (Unavailable, UnknownProvider) as error:
            why[name] = f"{error}."
            return False

    def getting(name: str) -> str:
        return why.get(name) or installing(KINDS.get(name, name))

    def inputs(workflow: str) -> Mapping[str, Any]:
        spec = getattr(session.workflows.get(workflow), "spec", None)
        return {} if spec is None else spec.inputs

    agents = [file.name for file in discover_agents(session.project).agents]
    names = [*session.nodes, *session.graphs, *session.workflows, *agents, *providers(session)]
    return Known(has, list(session.workflows), names, session.config.refusal, getting, inputs)


def installing(name: str) -> str:
    return f"Install it: pip install 'nerve[{name}]'." if name in EXTRAS else ""


def check_start(session: Session, workflow: Workflow, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters of a run that may start: inputs as declared, and every name in it known."""
    checked = workflow.check_params({} if params is None else a_mapping("params", params))
    if why := session.why_switched_off(workflow):
        raise ValueError(why)
    check_names(session, workflow)
    return checked


def check_names(session: Session, workflow: Workflow) -> None:
    """Raise Unreadable for names that nobody has, in a workflow or in one that it calls."""
    seen: set[str] = set()
    open_ = [workflow]
    while open_:
        each = open_.pop()
        seen.add(each.name)
        each.check_names(lambda: known(session))
        found = [session.get_workflow(name) for name in each.calls if name not in seen]
        open_ += [called for called in found if called is not None]
