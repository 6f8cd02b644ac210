"""The router of a project: its workflows, as they are offered, and the runs that come of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nerve.agents import registry
from nerve.agents.node import AgentNode
from nerve.agents.port import Options, Provider, Unavailable
from nerve.core.suggest import suggest
from nerve.notations.agents import discover_agents
from nerve.notations.config import Config
from nerve.notations.discovery import Found
from nerve.router import routing
from nerve.router.accounted import Accounted, Missing
from nerve.router.decision import Chosen, Conversation, Decision, Offered
from nerve.router.messages import starting
from nerve.spec.source import Unreadable
from nerve.spec.validate import validate
from nerve.spec.walk import steps_of
from nerve.spec.workflow import DefinedWorkflow, slug

if TYPE_CHECKING:
    from nerve.core.session import Session
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.workflow import Workflow


def offers_of(session: Session) -> list[Offered]:
    """The workflows of a session that may be started."""
    found = [session.get_workflow(name) for name in session.list_workflows()]
    return [offered(each) for each in found if each is not None and not session.why_switched_off(each)]


def offered(workflow: Workflow) -> Offered:
    inputs = workflow.spec.inputs if isinstance(workflow, DefinedWorkflow) else {}
    return Offered(workflow.name, workflow.description, inputs, tuple(workflow.steps))


def offers_in(found: Found, config: Config | None = None) -> list[Offered]:
    """The workflows of a project's files, without those that cannot be loaded or are switched off."""
    config = config or Config()
    read = [validate(each.document)[0] for each in found.workflows]
    return [
        Offered(slug(spec.name), spec.description, spec.inputs, tuple(steps_of(spec.body)))
        for spec in read
        if spec is not None and not config.refusal(slug(spec.name))
    ]


@dataclass(frozen=True, slots=True)
class Router:
    """Routes the texts of one project; what is offered is looked up again for each."""

    offers: Callable[[], Iterable[Offered]]
    provider: Provider | None = None
    cwd: str | None = None
    options: Options = routing.OPTIONS

    async def route(self, text: str, resume: str | None = None) -> Decision:
        return await routing.route(
            text, self.offers(), self.provider, cwd=self.cwd, resume=resume, options=self.options
        )

    def stream(self, text: str, resume: str | None = None) -> AsyncGenerator[str | Decision, None]:
        return routing.stream(
            text, self.offers(), self.provider, cwd=self.cwd, resume=resume, options=self.options
        )


def session_router(session: Session, provider: Provider | str | None = None) -> Router:
    """The router of a session, which asks this provider, or the session's own of that name, or nobody."""
    if isinstance(provider, str):
        known = session.providers
        if provider not in known:
            raise ValueError(f"there is no provider '{provider}'{suggest(provider, known)}")
        provider = known[provider]
    return asking(session, provider)


def asking(session: Session, provider: Provider | None, options: Options = routing.OPTIONS) -> Router:
    asked = None if provider is None else Accounted(provider, session.accounts)
    return Router(lambda: offers_of(session), asked, str(session.project.absolute()), options)


def project_router(session: Session) -> Router:
    """The router that the project's configuration says: an agent or a provider, by its name, or nobody.

    Raises Unreadable for a name that nobody has.
    """
    named = session.config.router
    if named is None:
        return asking(session, None)
    try:
        agent = session.find(named.name)
        if not isinstance(agent, AgentNode):
            known = [*session.providers, *session.config.providers, *registry.names()]
            agents = [file.name for file in discover_agents(session.project).agents]
            raise Unreadable([named.unknown([*known, *agents])])
        provider = session.provider(agent.provider) if isinstance(agent.provider, str) else agent.provider
    except (Unavailable, registry.UnknownProvider) as error:
        return asking(session, Missing(named.name, error))
    options = replace(routing.OPTIONS, model=agent.model, system=agent.system)
    return asking(session, provider, options)


async def start(
    session: Session, decision: Decision, conversation: str | None = None, **options: Any
) -> WorkflowRun | None:
    """Start the run that was decided for, with the intent as its input; None if there is nothing to start.

    What was written, what is answered and warnings are kept as messages of the conversation, if there is one.
    `options` are those of `session.start`.
    """
    await say(session, conversation, "user", decision.text)
    for warning in decision.warnings:
        await say(session, conversation, "assistant", warning)
    if not isinstance(decision, Chosen):
        reply = decision.reply if isinstance(decision, Conversation) else decision.question
        await say(session, conversation, "assistant", reply)
        return None
    try:
        run = await session.start(
            decision.workflow, decision.intent, decision.inputs, conversation=conversation, **options
        )
    except Exception as error:
        told = f"'{decision.workflow}' could not be started: {error}"
        await say(session, conversation, "assistant", told)
        raise
    await say(session, conversation, "assistant", starting(run.workflow), run.run_id)
    return run


async def say(
    session: Session, conversation: str | None, role: str, text: str, run: str | None = None
) -> None:
    if conversation is not None and text:
        await asyncio.to_thread(session.engine.store.add_message, conversation, role, text, run)
