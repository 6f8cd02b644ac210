"""The router of a project: its workflows, as they are offered, and the runs that come of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nerve.agents.port import Options, Provider
from nerve.core.nodes.graph import suggest
from nerve.notations.discovery import Found
from nerve.router import routing
from nerve.router.decision import Chosen, Conversation, Decision, Offered
from nerve.router.messages import starting
from nerve.spec.validate import validate
from nerve.spec.walk import steps_of
from nerve.spec.workflow import DefinedWorkflow, slug

if TYPE_CHECKING:
    from nerve.core.session import Session
    from nerve.core.workflow.run import WorkflowRun
    from nerve.core.workflow.workflow import Workflow


def offers_of(session: Session) -> list[Offered]:
    """The workflows of a session."""
    found = [session.get_workflow(name) for name in session.list_workflows()]
    return [offered(workflow) for workflow in found if workflow is not None]


def offered(workflow: Workflow) -> Offered:
    inputs = workflow.spec.inputs if isinstance(workflow, DefinedWorkflow) else {}
    return Offered(workflow.name, workflow.description, inputs, tuple(workflow.steps))


def offers_in(found: Found) -> list[Offered]:
    """The workflows of a project's files; one that could not be loaded is not offered."""
    read = [validate(each.document)[0] for each in found.workflows]
    return [
        Offered(slug(spec.name), spec.description, spec.inputs, tuple(steps_of(spec.body)))
        for spec in read
        if spec is not None
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
    return Router(lambda: offers_of(session), provider, str(session.project.absolute()))


async def start(
    session: Session, decision: Decision, conversation: str | None = None, **options: Any
) -> WorkflowRun | None:
    """Start the run that was decided for, with the intent as its input; None if there is nothing to start.

    What was written and what is answered are kept as messages of the conversation, if there is one.
    `options` are those of `session.start`.
    """
    await say(session, conversation, "user", decision.text)
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
