"""The agents of a project: what executes them, what limits them, and the files that configure them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nerve.api import models
from nerve.text.source import InvalidDefinition

if TYPE_CHECKING:
    from nerve.session import Session


async def agents(session: Session, request: models.EmptyRequest) -> models.AgentOverviewResponse:
    # In a thread: it reads the agent files and searches the PATH.
    files, problems = await asyncio.to_thread(read_agent_files, session)
    configured = await asyncio.to_thread(find_configured_providers, session)
    slots = session.provider_slots.snapshot()
    for name in {*slots, *session.providers} - {provider.name for provider in configured}:
        configured.append(models.ProviderResponse(name=name, found="registered by the code of the project"))
    for provider in configured:
        figures = slots.get(provider.name, {})
        provider.slots = int(figures.get("slots", session.provider_slots.slots_of(provider.name)))
        provider.busy, provider.limited_until = int(figures.get("busy", 0)), figures.get("limited_until")
    configured.sort(key=lambda provider: (provider.found is None, provider.name))
    return models.AgentOverviewResponse(providers=configured, agents=files, problems=problems)


def find_configured_providers(session: Session) -> list[models.ProviderResponse]:
    """Return the installed providers, and those that the configuration of the project adds."""
    from nerve.agents.installations import find_installations

    installed = {
        each.provider: models.ProviderResponse(
            name=each.provider, kind=each.provider, found=each.found, fix="" if each.found else each.fix
        )
        for each in find_installations()
    }
    try:
        settings = session.config.providers
    except InvalidDefinition:
        settings = {}
    for name, values in settings.items():
        kind = str(values.get("kind", name))
        base = installed.get(kind, models.ProviderResponse(name=name, found="part of Nerve"))
        update = {"name": name, "kind": kind, "is_configured": True}
        installed[name] = base.model_copy(update=update)
    return list(installed.values())


def read_agent_files(session: Session) -> tuple[list[models.AgentFileResponse], list[str]]:
    from nerve.project.agent_files import discover_agents

    discovered = discover_agents(session.project)
    names = ("name", "description", "provider", "model", "tools", "max_turns", "fallback", "limits")
    files = [
        models.AgentFileResponse(
            path=str(agent.path.relative_to(agent.root) if agent.path.is_absolute() else agent.path),
            **{name: value for name in names if (value := getattr(agent, name)) is not None},
        )
        for agent in discovered.agents
    ]
    return files, [str(problem) for problem in discovered.problems]
