"""The first page: signs a browser in with the code of its address, or leads to the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from nerve.web.site import Site


def add_pages(site: Site) -> None:
    async def show_first_page(request: Request) -> Response:
        if site.server.find_caller(request) is not None:
            return RedirectResponse(site.url("/runs"), 303)
        return HTMLResponse(site.render("sign_in.html", {"title": "Sign in"}))

    site.routes.append(Route("/", show_first_page))
