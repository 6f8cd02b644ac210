"""Loading of workflow files, and lookup of the agents and providers that they name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.agents.registry import EXTRA_PROVIDERS, PROVIDER_ALIASES
from nerve.core.nodes.base import Node
from nerve.core.notation_table import NOTATION_NAMES
from nerve.core.validation import require_mapping
from nerve.core.workflow.workflow import Workflow

if TYPE_CHECKING:
    from nerve.agents.provider import Provider
    from nerve.project.agent_files import AgentFile
    from nerve.project.agent_settings import AgentSettings
    from nerve.session.session import Session
    from nerve.spec.checks.names import KnownNames
    from nerve.spec.defined_workflow import DefinedWorkflow
    from nerve.spec.models import WorkflowSpec
    from nerve.store.port import Definition
    from nerve.text.source import Document, Problem

DEFAULT_PROVIDER = "claude"
"""The provider of an agent file without `provider`."""


class CheckedDefinition(NamedTuple):
    """A workflow definition without errors."""

    name: str
    spec: WorkflowSpec
    document: Document
    problems: list[Problem]


def load_workflow(
    session: Session, source: str | os.PathLike[str], notation: str | None = None
) -> DefinedWorkflow:
    """Read a workflow from a file or a string, check it, and register it."""
    from nerve.notations import open_document

    return define_workflow(
        session,
        check_id_free(session, definition_from_document(*open_document(source, session.project, notation))),
    )


def read_checked_definition(
    session: Session,
    text: str,
    notation: str | None = None,
    file: str | None = None,
    prompts: Mapping[str, str] | None = None,
) -> CheckedDefinition:
    """Read a workflow from a string, which is never interpreted as a file name, and check it.

    `file` names it in problems and is not read; `prompts` has the contents of the prompts that it names.
    """
    from nerve.notations import read_source
    from nerve.notations.yaml_prompts import attach_prompts

    document = read_source(text, file or "<text>", notation)
    document.warnings += attach_prompts(document, session.project, session.project, prompts)
    definition = check_id_free(session, definition_from_document(document, ""))
    document.file = f"<{file}>" if file else document.file
    return definition


def definition_from_document(document: Document, folder: str) -> CheckedDefinition:
    from nerve.spec.checker import check_document
    from nerve.spec.defined_workflow import raise_on_errors, slugify

    checked = check_document(document)
    raise_on_errors(checked.problems)
    assert checked.spec is not None
    spec = checked.spec.model_copy(update={"folder": folder})
    return CheckedDefinition(slugify(spec.name), spec, document, checked.problems)


def check_id_free(session: Session, definition: CheckedDefinition) -> CheckedDefinition:
    """Return the definition; InvalidDefinition if a workflow of another name has the same id."""
    from nerve.text.source import InvalidDefinition

    existing = getattr(session.workflows.get(definition.name), "title", definition.spec.name)
    if existing != definition.spec.name:
        message = f"'{definition.spec.name}' and the loaded '{existing}' have the same id '{definition.name}'"
        raise InvalidDefinition([definition.document.problem(("name",), message, "Rename one of them.")])
    return definition


def define_workflow(session: Session, definition: CheckedDefinition) -> DefinedWorkflow:
    """Register a workflow, replacing an older one; open runs keep the definition they were started from."""
    return install_workflow(session, make_defined_workflow(session, definition))


def make_defined_workflow(session: Session, definition: CheckedDefinition) -> DefinedWorkflow:
    """Return a workflow to register; ValueError if its id is used by a node, graph or Python workflow."""
    from nerve.spec.defined_workflow import DefinedWorkflow

    if not isinstance(session.workflows.get(definition.name), DefinedWorkflow):
        session.validate_unique_id(definition.name, "workflow")
    workflow = DefinedWorkflow(definition.spec, session, definition.document, register=False)
    workflow.problems = definition.problems
    return workflow


def install_workflow(session: Session, workflow: DefinedWorkflow) -> DefinedWorkflow:
    session.delete_workflow(workflow.name)
    session.workflows[workflow.name] = workflow
    if session._engine is not None:
        session._engine.on_workflow_defined(workflow)
    return workflow


def workflow_file(session: Session, name: str) -> str | None:
    """Return the file that a workflow was loaded from, or None."""
    document = getattr(session.workflows.get(name), "document", None)
    return document.file if document is not None and not document.file.startswith("<") else None


def workflow_from_definition(session: Session, definition: Definition) -> DefinedWorkflow | None:
    """Return the workflow that a run was started from, whatever its file says now; None for Python code."""
    if definition.notation not in NOTATION_NAMES:
        return None
    from nerve.core.json_codec import decode_json
    from nerve.notations import read_source
    from nerve.spec.defined_workflow import DefinedWorkflow
    from nerve.spec.models import WorkflowSpec
    from nerve.text.source import Document, InvalidDefinition, LocatedMap

    data = decode_json(definition.canonical)
    spec = WorkflowSpec.model_validate(data)
    file = f"<{definition.workflow}>"
    try:
        document = read_source(definition.source, file, definition.notation)
    except InvalidDefinition:
        document = Document(LocatedMap(data), definition.notation, file, definition.source)
    return DefinedWorkflow(spec, session, document, register=False)


def find_call_target(session: Session, name: str) -> Node | None:
    """Return what a workflow can call by a name: a node, a graph, a workflow, an agent file, a provider."""
    own, _, workflow = name.rpartition("workflow:")
    if workflow != name:
        return session.get_workflow(workflow) if not own else None
    node: Node | None = session.get_node(name) or session.get_graph(name) or session.get_workflow(name)
    return node or find_agent(session, name)


def find_agent(session: Session, name: str) -> Node | None:
    if name not in session._agents and (node := make_agent(session, name)) is not None:
        session._agents[name] = node
    return session._agents.get(name)


def make_agent(session: Session, name: str) -> Node | None:
    """Return the node of an agent file or of a provider; InvalidDefinition for an invalid agent file."""
    from nerve.agents.agent_node import AgentNode
    from nerve.project.agent_files import discover_agents

    file = discover_agents(session.project).get_valid(name)
    provider = find_provider(session, file.provider or DEFAULT_PROVIDER if file else name)
    cwd = str(session.project.absolute())
    if file is None:
        return None if provider is None else AgentNode(name, None, provider, cwd=cwd)
    check_agent_providers(session, file)
    node = AgentNode(
        name,
        None,
        provider,
        cwd=cwd,
        tools=file.tools,
        max_turns=file.max_turns,
        fallback=file.fallback,
        limits=file.limits,
    )
    node.settings = replace(file.settings, system=file.read_prompt() or None)
    return node


def check_agent_providers(session: Session, file: AgentFile) -> None:
    """Raise InvalidDefinition for an agent file whose provider or fallback is not available."""
    from nerve.text.source import InvalidDefinition

    for key, name in (("provider", file.provider or DEFAULT_PROVIDER), ("fallback", file.fallback)):
        if name is not None and find_provider(session, name) is None:
            how = install_hint(PROVIDER_ALIASES.get(name, name))
            raise InvalidDefinition([file.missing_provider_problem(key, name, provider_names(session), how)])


def provider_names(session: Session) -> list[str]:
    """Return the names of all providers that a workflow or an agent file can use."""
    from nerve.agents import registry

    return list(
        {
            **session.providers,
            **session.config.providers,
            **dict.fromkeys(registry.installed_provider_names()),
        }
    )


def find_provider(session: Session, name: str) -> Provider | None:
    """Return a provider of the session, or create one from an installed package and cache it.

    Raises UnknownProvider or Unavailable for one that cannot be created.
    """
    from nerve.agents import registry

    # A provider that the user named like an alias takes precedence over the alias.
    if name not in session.providers and name not in session.config.providers:
        name = PROVIDER_ALIASES.get(name, name)
    if name not in session.providers:
        settings = session.config.providers.get(name)
        if settings is None and name not in registry.installed_provider_names():
            return None
        provider = registry.create_provider(name, settings)
        if (check := getattr(provider, "check", None)) is not None:
            check()
        session.providers[name] = provider
    provider = session.providers[name]
    if session.codec is not None and (files := getattr(provider, "thread_files", None)) is not None:
        files.codec = session.codec  # its conversations are payloads too
    return provider


def known_names(session: Session) -> KnownNames:
    from nerve.agents.provider import Unavailable
    from nerve.agents.registry import UnknownProvider
    from nerve.project.agent_files import discover_agents
    from nerve.spec.checks.names import KnownNames

    problems: dict[str, str] = {}

    def is_known(name: str) -> bool:
        try:
            return find_call_target(session, name) is not None
        except (Unavailable, UnknownProvider) as error:
            problems[name] = f"{error}."
            return False

    def explain_missing(name: str) -> str:
        return problems.get(name) or install_hint(PROVIDER_ALIASES.get(name, name))

    def find_spec(workflow: str) -> WorkflowSpec | None:
        return getattr(session.workflows.get(workflow), "spec", None)

    def list_names() -> list[str]:
        agents = [file.name for file in discover_agents(session.project).agents]
        return [*session.nodes, *session.graphs, *session.workflows, *agents, *provider_names(session)]

    return KnownNames(
        is_known,
        list(session.workflows),
        list_names,
        session.config.refusal,
        explain_missing,
        find_spec,
        lambda name, step, tools: find_agent_problems(session, name, step, tools),
        lambda name, step, tools: edits_files(session, name, step, tools),
    )


def edits_files(session: Session, name: str, step: AgentSettings, tools: Sequence[str] | None) -> bool:
    """Return whether a name is that of an agent which may edit files that others use."""
    from nerve.agents.agent_node import AgentNode

    node = find_call_target(session, name)
    return isinstance(node, AgentNode) and node.may_edit_files(session, step, tools)


def find_agent_problems(
    session: Session, name: str, step: AgentSettings, tools: Sequence[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the settings of a step that its agent cannot honour: the key, the message, the fix."""
    from nerve.agents.agent_node import AgentNode
    from nerve.agents.setting_support import check_settings, tool_problem

    node = find_call_target(session, name)
    if isinstance(node, AgentNode):
        provider = find_provider(session, node.provider) if isinstance(node.provider, str) else node.provider
        folder = Path(node.cwd or session.project)
        if provider is not None:
            yield from check_settings(provider, session.config, step, node.settings, folder)
            names = node.options.tools or () if tools is None else tools
            problem = tool_problem([*node.tools, *session.tools], names, provider)
            yield from () if problem is None else (problem,)
    elif node is not None and not getattr(node, "takes_request", False):
        for key in step.to_dict().keys() - {"model", "permissions"}:
            yield key, f"'{name}' is not an agent, so it has no {key}", f"Remove '{key}'."


def install_hint(name: str) -> str:
    return f"Install it: pip install '.[{name}]' in the clone of Nerve." if name in EXTRA_PROVIDERS else ""


def check_start_params(
    session: Session, workflow: Workflow, params: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the checked parameters of a run; ValueError if it must not start or uses unknown names."""
    checked = workflow.check_params({} if params is None else require_mapping("params", params))
    if reason := session.disabled_reason(workflow):
        raise ValueError(reason)
    for each in called_workflows(session, workflow):
        each.check_names(lambda: known_names(session))
        each.check_shared_folders(lambda: known_names(session))
    return checked


def check_workflow_names(session: Session, workflow: Workflow) -> None:
    """Raise InvalidDefinition for unknown names in a workflow and the workflows that it calls."""
    for each in called_workflows(session, workflow):
        each.check_names(lambda: known_names(session))


def called_workflows(session: Session, workflow: Workflow) -> Iterable[Workflow]:
    """Return a workflow and all workflows that it calls."""
    return walk_calls(session, workflow) if workflow.calls else (workflow,)


def walk_calls(session: Session, workflow: Workflow) -> Iterator[Workflow]:
    visited: set[str] = set()
    pending = [workflow]
    while pending:
        current = pending.pop()
        if current.name in visited:
            continue
        visited.add(current.name)
        yield current
        callees = [session.get_workflow(name) for name in current.calls]
        pending += [called for called in callees if called is not None]
