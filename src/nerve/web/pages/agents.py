"""The agents: providers with what is installed, their limits and slots, agent files and conversations."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from nerve.core.events import STEP_SETTLED_EVENTS, STEP_START_EVENTS, WorkflowEventType
from nerve.web.live import LivePage
from nerve.web.rendering import make_partial

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.api.models import EventResponse, ProviderResponse
    from nerve.web.site import Site, Visit

PROVIDERS_KEY, THREADS_KEY = "providers", "threads"
SLOT_EVENTS = frozenset(
    {
        *STEP_START_EVENTS,
        *STEP_SETTLED_EVENTS,
        WorkflowEventType.PROVIDER_LIMITED,
        WorkflowEventType.PROVIDER_OPEN,
    }
)
"""Events after which a provider may have another number of busy slots, or another limit."""


def add_pages(site: Site) -> None:
    site.get("/agents", show_agents)
    site.live("/agents/stream", follow_agents)


async def show_agents(visit: Visit) -> Response:
    overview = await visit.client.agents()
    return await visit.page(
        "agents.html",
        providers=overview.providers,
        agents=overview.agents,
        problems=overview.problems,
        threads=(await visit.client.threads()).threads,
    )


async def follow_agents(visit: Visit) -> LivePage:
    """Send the providers as their slots change, and the conversations as they are opened."""
    providers = {each.name: each for each in (await visit.client.agents()).providers}

    def select(event: EventResponse) -> str | None:
        if event.event_type == WorkflowEventType.AGENT_THREAD:
            return THREADS_KEY
        return PROVIDERS_KEY if event.event_type in SLOT_EVENTS else None

    async def render(keys: Collection[str] | None) -> str:
        html = make_partial(
            "#providers", visit.render("parts/providers.html", providers=await read_slots(visit, providers))
        )
        if keys is None or THREADS_KEY in keys:
            threads = (await visit.client.threads()).threads
            html += make_partial("#threads", visit.render("parts/agent_threads.html", threads=threads))
        return html

    return LivePage(select, render)


async def read_slots(visit: Visit, providers: dict[str, ProviderResponse]) -> list[ProviderResponse]:
    """Return the providers with their slots as they are now; programs are only searched for new ones."""
    slots = (await visit.client.health()).providers
    if slots.keys() - providers.keys():
        providers.update((each.name, each) for each in (await visit.client.agents()).providers)
    return [
        each.model_copy(
            update={
                "busy": int(slots.get(name, {}).get("busy", 0)),
                "limited_until": slots.get(name, {}).get("limited_until"),
            }
        )
        for name, each in providers.items()
    ]
