"""The notifications: channels with what they have sent, and messages that were not delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.web.site import Site, Visit


def add_pages(site: Site) -> None:
    site.get("/notifications", show_notifications)


async def show_notifications(visit: Visit) -> Response:
    return await visit.page("notifications.html", state=await visit.client.notifications())
