"""The site: its routes, its templates, and the visit that every page handler gets."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from nerve.api.callers import Caller, Grant, Scope
from nerve.api.errors import ApiError
from nerve.api.permissions import ALLOWED_SCOPES, require_scope
from nerve.client import Client
from nerve.core.events import GATE_EVENTS
from nerve.lazy_dataclass import dataclass
from nerve.web.live import LivePage, LiveView, events_of_all_runs
from nerve.web.rendering import KEY_PLACE, make_environment, make_partial
from nerve.web.static_files import STATIC_PREFIX, serve_static_file, static_path

if TYPE_CHECKING:
    from collections.abc import Collection

    from jinja2 import Environment
    from starlette.requests import Request

    from nerve.api.models import EventResponse

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
MAX_COUNTED_GATES = 99
"""The largest number that the badge of the inbox shows."""
INBOX_KEY = "inbox"
FORM_TYPE = "application/x-www-form-urlencoded"
FORM_FIX = f"Send the form of the page, with Content-Type: {FORM_TYPE}"
ERROR_TITLES = {
    "unauthorized": "Sign in",
    "forbidden": "Not allowed",
    "not_found": "Not found",
    "not_allowed": "Not possible",
    "busy": "Not available",
}


class NavigationEntry(NamedTuple):
    """A link in the navigation."""

    name: str
    path: str
    key: str
    """The key that opens it, after `g`."""


NAVIGATION = (
    NavigationEntry("Runs", "/runs", "r"),
    NavigationEntry("Inbox", "/inbox", "i"),
    NavigationEntry("Workflows", "/workflows", "w"),
    NavigationEntry("Ask", "/ask", "a"),
    NavigationEntry("Agents", "/agents", "n"),
    NavigationEntry("Facts", "/facts", "f"),
    NavigationEntry("Usage", "/usage", "u"),
)


@dataclass(frozen=True, slots=True)
class ServerPort:
    """What the site needs of the server that mounts it."""

    find_caller: Callable[[Request], Caller | None]
    """Returns the caller of a request; None if it is not signed in."""
    open_client: Callable[[Caller], Client]
    read_body: Callable[[Request, str], Awaitable[bytes]]
    """Reads a body of a content type, within the limits of the server."""
    respond_with_stream: Callable[[AsyncGenerator[bytes, None]], Response]
    """Responds with server-sent events until they end or the server stops."""
    sign_in: Callable[[Request, str], Awaitable[str]]
    """Returns the cookie that signs a browser in with a token."""
    sign_out: Callable[[Request], str]
    """Returns the cookie that signs a browser out."""
    prefix: str = ""
    """The path under which a proxy serves the site, such as `/nerve`."""


Handler = Callable[["Visit"], Awaitable[Response]]
ViewKey = tuple[str, tuple[tuple[str, str], ...], Grant | None, str | None]
"""What browsers with the same page have in common: the address and query of the stream, scope and person."""


class Site:
    """All pages of one server. A page module adds its routes with `get` and `post`."""

    def __init__(self, server: ServerPort) -> None:
        self.server = server
        self.routes: list[Route] = [Route(f"{STATIC_PREFIX}{{name:path}}", serve_static_file)]
        self._live_views: dict[ViewKey, LiveView] = {}
        self.oidc_name: str | None = None
        """What the page calls the provider with which people sign in; None without one."""

    @cached_property
    def environment(self) -> Environment:
        """The templates, loaded when the first page is requested."""
        environment = make_environment()
        environment.globals |= {
            "url": self.url,
            "static": lambda name: self.url(static_path(name)),
            "navigation": NAVIGATION,
            "oidc": self.oidc_name,
        }
        return environment

    def url(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """Return the address of a path on this server; empty values of the query are left out."""
        fields = {name: value for name, value in (query or {}).items() if value not in (None, "", [])}
        return self.server.prefix + path + (f"?{urlencode(fields, doseq=True)}" if fields else "")

    def get(self, path: str, handler: Handler) -> None:
        """Add a page or a fragment."""

        async def respond(request: Request) -> Response:
            return await handler(Visit(self, request, self._require_caller(request)))

        self.routes.append(Route(path, respond))

    def live(self, path: str, open_page: Callable[[Visit], Awaitable[LivePage]]) -> None:
        """Add the stream of a page, which `open_page` keeps up to date."""
        self.get(path, lambda visit: visit.stream(lambda: open_page(visit)))

    def post(self, path: str, handler: Handler, scope: Scope = "run") -> None:
        """Add an action that needs a scope, which is checked before its form is read."""

        async def respond(request: Request) -> Response:
            caller = self._require_caller(request)
            require_scope(caller, scope)
            return await handler(Visit(self, request, caller))

        self.routes.append(Route(path, respond, methods=["POST"]))

    def _require_caller(self, request: Request) -> Caller:
        caller = self.server.find_caller(request)
        if caller is None:
            raise ApiError("unauthorized", "This browser is not signed in", "Run: nerve web")
        return caller

    def find_live_view(self, key: ViewKey) -> LiveView | None:
        """Return the view that browsers with the same page open share; those that are over are dropped."""
        self._live_views = {each: view for each, view in self._live_views.items() if not view.is_over}
        return self._live_views.get(key)

    def add_live_view(self, key: ViewKey, view: LiveView) -> LiveView:
        """Keep a view; return the one that another request has added in the meantime."""
        return self._live_views.setdefault(key, view)

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        return self.environment.get_template(template).render(values)

    def error_response(self, request: Request, error: ApiError) -> Response:
        """Return an error as a page, or as a notice on the page that is already open."""
        values = {"error": error, "title": ERROR_TITLES.get(error.code, "Something went wrong")}
        if "hx-request" in request.headers:
            return HTMLResponse(self.render("parts/error_notice.html", values), error.status)
        if error.code == "unauthorized":
            return HTMLResponse(self.render("sign_in.html", values), error.status)
        # A link from another site is refused, since it may come from an attacker; the user may follow it.
        retry = ""
        if error.code == "forbidden" and request.method == "GET":
            retry = self.url(request.scope["path"]) + (f"?{request.url.query}" if request.url.query else "")
        return HTMLResponse(self.render("error.html", values | {"retry": retry}), error.status)


class FormFields:
    """The fields of a submitted form."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        return next((value for field, value in reversed(self.fields) if field == name), default)

    def get_all(self, name: str) -> list[str]:
        return [value for field, value in self.fields if field == name]


async def read_form(site: Site, request: Request) -> FormFields:
    """Return the fields of the form of a request."""
    body = await site.server.read_body(request, FORM_TYPE)
    try:
        return FormFields(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
    except ValueError:
        raise ApiError("bad_request", "The form is not valid", FORM_FIX) from None


class Visit:
    """One request for a page: who makes it, what they may do, and how to respond."""

    def __init__(self, site: Site, request: Request, caller: Caller) -> None:
        self.site, self.request, self.caller = site, request, caller
        self.client = site.server.open_client(caller)
        """The API as the caller may use it."""
        self.is_shared = False
        """Whether several browsers get what is rendered."""

    # -- the request ---------------------------------------------------------------------------

    @property
    def is_htmx(self) -> bool:
        """Whether an open page makes the request and expects fragments."""
        return "hx-request" in self.request.headers

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def query_list(self, name: str) -> list[str]:
        """Return all values of a query parameter that are not empty."""
        return [value for value in self.request.query_params.getlist(name) if value]

    def argument(self, name: str) -> str:
        """Return a parameter of the path."""
        return unquote(self.request.path_params[name])

    def may(self, scope: Scope) -> bool:
        """Return whether the caller has a scope, so that a page shows only actions that are allowed."""
        return self.caller.scope is None or scope in ALLOWED_SCOPES[self.caller.scope]

    async def form(self) -> FormFields:
        """Return the fields of the submitted form."""
        return await read_form(self.site, self.request)

    # -- the response --------------------------------------------------------------------------

    async def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a whole page: a template that extends `base.html`."""
        return HTMLResponse(
            self.render(template, inbox_count=await self.count_open_gates(), **values), status
        )

    def fragment(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a part of a page."""
        return HTMLResponse(self.render(template, **values), status)

    def render(self, template: str, **values: Any) -> str:
        """Return the text of a template."""
        shown = {"visit": self, "may": self.may, "new_key": self.new_key, **values}
        return self.site.render(template, shown)

    def new_key(self) -> str:
        """Return the key of a form, by which a repeated request has one effect."""
        return KEY_PLACE.decode() if self.is_shared else secrets.token_hex(16)

    def redirect(self, path: str, query: Mapping[str, Any] | None = None) -> Response:
        """Let the browser show another page after a form."""
        return RedirectResponse(self.site.url(path, query), 303)

    def notice(self, text: str, problems: list[str] | None = None) -> Response:
        """Return a notice for the open page; `problems` are what failed."""
        return self.fragment("parts/notice.html", text=text, problems=problems or [])

    async def count_open_gates(self) -> str:
        """Return the text of the inbox badge, empty if there is nothing to answer."""
        page = await self.client.gates(limit=MAX_COUNTED_GATES)
        return f"{MAX_COUNTED_GATES}+" if page.more else str(len(page.gates) or "")

    async def stream(self, open_page: Callable[[], Awaitable[LivePage]]) -> Response:
        """Keep the page and the badge of the inbox up to date: see `nerve.web.live`.

        Browsers with the same address and scope share what `open_page` returned to the first of them.
        """
        query = sorted((name, value) for name, value in self.request.query_params.multi_items())
        key = self.request.scope["path"], tuple(query), self.caller.scope, self.caller.person
        view = self.site.find_live_view(key)
        if view is None:
            self.is_shared = True
            view = self.site.add_live_view(key, self._open_view(await open_page()))
        last_id = self.request.headers.get("last-event-id", "")
        return self.site.server.respond_with_stream(view.messages(last_id))

    def _open_view(self, page: LivePage) -> LiveView:
        badge = InboxBadge(self, page)
        shown = LivePage(badge.select, badge.render, badge.render_page, tick_s=page.tick_s)
        return LiveView(shown, page.open_events or events_of_all_runs(self.client))


class InboxBadge:
    """A live page with the badge of the inbox, which every page has."""

    def __init__(self, visit: Visit, page: LivePage) -> None:
        self._visit, self._page = visit, page
        self._has_changed = False

    def select(self, event: EventResponse) -> str | None:
        key = self._page.select(event)
        if event.event_type not in GATE_EVENTS:
            return key
        self._has_changed = True
        return key or INBOX_KEY

    async def render(self, keys: Collection[str] | None) -> str:
        badge = ""
        if self._has_changed or keys is None:
            self._has_changed = False
            badge = await self._render_badge()
        others = None if keys is None else [key for key in keys if key != INBOX_KEY]
        # Without any key, the page is rendered because time has passed.
        return badge + (await self._page.render(others) if not keys or others else "")

    async def render_page(self) -> str:
        render = self._page.render_page
        html = await (render() if render is not None else self._page.render(None))
        return await self._render_badge() + html

    async def _render_badge(self) -> str:
        count = await self._visit.count_open_gates()
        return make_partial("#inbox-badge", self._visit.render("parts/inbox_badge.html", inbox_count=count))
