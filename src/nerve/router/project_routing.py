"""Routing in a project: its candidates, its router, its providers, and starting the chosen workflow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nerve.agents import registry
from nerve.agents.agent_node import AgentNode
from nerve.agents.provider import Capabilities, Chunk, Provider, QueryOptions, TurnFinished, Unavailable
from nerve.agents.provider_slots import ProviderSlots
from nerve.core.suggest import did_you_mean_hint
from nerve.notations.workflow_files import DiscoveredWorkflows
from nerve.project.agent_files import discover_agents
from nerve.project.config import Config
from nerve.router.decision import Candidate, ConversationDecision, Decision, WorkflowDecision
from nerve.router.routing import ROUTING_OPTIONS, Router, closing_chunks
from nerve.router.run_messages import start_message
from nerve.router.typed_inputs import candidate_of_function, start_arguments
from nerve.spec.defined_workflow import DefinedWorkflow, slugify
from nerve.spec.validation import validate_document
from nerve.spec.walk import visible_steps
from nerve.text.source import InvalidDefinition

if TYPE_CHECKING:
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.workflow import Workflow
    from nerve.session import Session


class RateLimitedProvider:
    """A provider that takes a slot for each turn; while it is rate-limited, turns end at once."""

    def __init__(self, provider: Provider, provider_slots: ProviderSlots) -> None:
        self.provider, self.provider_slots = provider, provider_slots
        self.name, self.capabilities = provider.name, provider.capabilities

    async def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        if not self.limited_until:
            async with self.provider_slots.acquire(self.name, resume):
                if (
                    not self.limited_until
                ):  # another turn may have hit the limit while this one waited for its slot
                    refusal_count = self.provider_slots.rate_limits.refusals(self.name)
                    async with closing_chunks(self.provider.query(prompt, cwd, resume, options)) as chunks:
                        async for chunk in chunks:
                            self.record_outcome(chunk, refusal_count)
                            yield chunk
                    return
        yield TurnFinished(
            resume or "", outcome="limited", error=f"until {format_reset_time(self.limited_until)}"
        )

    @property
    def limited_until(self) -> float:
        """When the rate limit of the provider ends; 0 if it is not limited."""
        return self.provider_slots.rate_limits.limited_until(self.name)

    def record_outcome(self, chunk: Chunk, refusal_count: int) -> None:
        """Update the shared rate limit of the provider at the end of a turn."""
        if isinstance(chunk, TurnFinished) and chunk.outcome == "limited":
            rate_limits = self.provider_slots.rate_limits
            rate_limits.mark_limited(self.name, chunk.resets_at, refusal_count, chunk.error)
        elif isinstance(chunk, TurnFinished):
            self.provider_slots.rate_limits.mark_available(self.name)


class MissingProvider:
    """Stands for a configured provider that is unavailable; a query raises the reason."""

    capabilities = Capabilities()

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.error = name, error

    def query(
        self, prompt: str, cwd: str | None, resume: str | None, options: QueryOptions
    ) -> AsyncIterator[Chunk]:
        raise self.error


def format_reset_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M")


def candidates_of(session: Session) -> list[Candidate]:
    """Return the enabled workflows of a session as candidates."""
    workflows = [session.get_workflow(name) for name in session.list_workflows()]
    return [
        candidate_of_workflow(workflow)
        for workflow in workflows
        if workflow is not None and not session.disabled_reason(workflow)
    ]


def candidate_of_workflow(workflow: Workflow) -> Candidate:
    if not isinstance(workflow, DefinedWorkflow):
        return candidate_of_function(workflow)
    return Candidate(workflow.name, workflow.description, workflow.spec.inputs, tuple(workflow.steps))


def offers_in(discovered: DiscoveredWorkflows, config: Config | None = None) -> list[Candidate]:
    """Return the candidates of workflow files, without invalid and disabled workflows."""
    config = config or Config()
    specs = [validate_document(workflow.document)[0] for workflow in discovered.workflows]
    return [
        Candidate(slugify(spec.name), spec.description, spec.inputs, tuple(visible_steps(spec.body)))
        for spec in specs
        if spec is not None and not config.refusal(slugify(spec.name))
    ]


def session_router(session: Session, provider: Provider | str | None = None) -> Router:
    """Return a router that uses a provider, a provider of the session by name, or keywords for None."""
    if isinstance(provider, str):
        known = session.providers
        if provider not in known:
            raise ValueError(f"Unknown provider '{provider}'{did_you_mean_hint(provider, known)}")
        provider = known[provider]
    return router_for_provider(session, provider)


def router_for_provider(
    session: Session, provider: Provider | None, options: QueryOptions = ROUTING_OPTIONS
) -> Router:
    limited_provider = None if provider is None else RateLimitedProvider(provider, session.provider_slots)
    return Router(lambda: candidates_of(session), limited_provider, str(session.project.absolute()), options)


def project_router(session: Session) -> Router:
    """Return the router that the project configuration names: an agent, a provider, or keywords.

    Raises `InvalidDefinition` for an unknown name.
    """
    located_name = session.config.router
    if located_name is None:
        return router_for_provider(session, None)
    try:
        agent = session.find(located_name.name)
        if not isinstance(agent, AgentNode):
            known = [*session.providers, *session.config.providers, *registry.installed_provider_names()]
            agents = [file.name for file in discover_agents(session.project).agents]
            raise InvalidDefinition([located_name.unknown_name_problem([*known, *agents])])
        provider = session.provider(agent.provider) if isinstance(agent.provider, str) else agent.provider
    except (Unavailable, registry.UnknownProvider) as error:
        return router_for_provider(session, MissingProvider(located_name.name, error))
    options = replace(ROUTING_OPTIONS, model=agent.model, system=agent.system)
    return router_for_provider(session, provider, options)


async def start(
    session: Session, decision: Decision, conversation: str | None = None, **options: Any
) -> WorkflowRun | None:
    """Start the chosen workflow with its intent and inputs; return None if the decision starts nothing.

    The message, the reply and the warnings are stored in the conversation, if there is one. `options` are
    passed to `session.start`.
    """
    await add_conversation_message(session, conversation, "user", decision.text)
    for warning in decision.warnings:
        await add_conversation_message(session, conversation, "assistant", warning)
    if not isinstance(decision, WorkflowDecision):
        reply = decision.reply if isinstance(decision, ConversationDecision) else decision.question
        await add_conversation_message(session, conversation, "assistant", reply)
        return None
    try:
        input, params = find_start_arguments(session, decision)
        run = await session.start(decision.workflow, input, params, conversation=conversation, **options)
    except Exception as error:
        message = f"Could not start '{decision.workflow}': {error}"
        await add_conversation_message(session, conversation, "assistant", message)
        raise
    await add_conversation_message(
        session, conversation, "assistant", start_message(run.workflow), run.run_id
    )
    return run


def find_start_arguments(session: Session, decision: WorkflowDecision) -> tuple[Any, dict[str, Any]]:
    """Return the input and the parameters of the run that a decision starts."""
    workflow = session.get_workflow(decision.workflow)
    if workflow is None:
        return decision.intent, dict(decision.inputs)
    return start_arguments(workflow, decision.intent, decision.inputs)


async def add_conversation_message(
    session: Session, conversation: str | None, role: str, text: str, run: str | None = None
) -> None:
    if conversation is not None and text:
        await asyncio.to_thread(session.engine.store.add_message, conversation, role, text, run)
