"""The inbox: the gates that wait for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from nerve.web.site import Site, Visit


def add_pages(site: Site) -> None:
    site.get("/inbox/badge", show_badge)


async def show_badge(visit: Visit) -> Response:
    """Return the number of open gates, which a page in the background asks for."""
    return visit.fragment("parts/inbox_badge.html", inbox_count=await visit.count_open_gates())
