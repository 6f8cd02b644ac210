"""The first page: signs a browser in with the code of its address or a token, or leads to the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from nerve.api.errors import ApiError
from nerve.text import with_full_stop
from nerve.web.site import read_form

if TYPE_CHECKING:
    from starlette.requests import Request

    from nerve.web.site import Site


def add_pages(site: Site) -> None:
    async def show_first_page(request: Request) -> Response:
        if site.server.find_caller(request) is not None:
            return RedirectResponse(site.url("/runs"), 303)
        return HTMLResponse(site.render("sign_in.html", {"title": "Sign in"}))

    async def sign_in(request: Request) -> Response:
        """Sign a browser in with the token of its form."""
        token = (await read_form(site, request)).get("token").strip()
        try:
            cookie = await site.server.sign_in(request, token)
        except ApiError as error:
            problem = (
                "This token is not valid." if error.code == "unauthorized" else with_full_stop(error.message)
            )
            values = {"title": "Sign in", "problem": problem}
            return HTMLResponse(site.render("sign_in.html", values), error.status)
        return RedirectResponse(site.url("/inbox"), 303, {"set-cookie": cookie})

    async def sign_out(request: Request) -> Response:
        return RedirectResponse(site.url("/"), 303, {"set-cookie": site.server.sign_out(request)})

    site.routes.append(Route("/", show_first_page))
    site.routes.append(Route("/sign-in", sign_in, methods=["POST"]))
    site.routes.append(Route("/sign-out", sign_out, methods=["POST"]))
