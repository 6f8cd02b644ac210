"""The site: its routes, its templates, and the visit that every page handler gets."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from nerve.api.callers import Caller, Scope
from nerve.api.errors import ApiError
from nerve.api.permissions import ALLOWED_SCOPES, require_scope
from nerve.client import Client
from nerve.core.events import GATE_EVENTS
from nerve.lazy_dataclass import dataclass
from nerve.web.live import LiveStream, RenderChanges, SelectChange, events_of_all_runs, events_until_end_of
from nerve.web.rendering import make_environment, make_partial
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
    prefix: str = ""
    """The path under which a proxy serves the site, such as `/nerve`."""


Handler = Callable[["Visit"], Awaitable[Response]]


class Site:
    """All pages of one server. A page module adds its routes with `get` and `post`."""

    def __init__(self, server: ServerPort) -> None:
        self.server = server
        self.routes: list[Route] = [Route(f"{STATIC_PREFIX}{{name:path}}", serve_static_file)]

    @cached_property
    def environment(self) -> Environment:
        """The templates, loaded when the first page is requested."""
        environment = make_environment()
        environment.globals |= {
            "url": self.url,
            "static": lambda name: self.url(static_path(name)),
            "navigation": NAVIGATION,
            "new_key": lambda: secrets.token_hex(16),
        }
        return environment

    def url(self, path: str, query: Mapping[str, Any] | None = None) -> str:
        """Return the address of a path on this server; empty values of the query are left out."""
        fields = {name: value for name, value in (query or {}).items() if value not in (None, "", [])}
        return self.server.prefix + path + (f"?{urlencode(fields, doseq=True)}" if fields else "")

    def get(self, path: str, handler: Handler) -> None:
        """Add a page, a fragment or a stream."""

        async def respond(request: Request) -> Response:
            return await handler(Visit(self, request, self._require_caller(request)))

        self.routes.append(Route(path, respond))

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


class Visit:
    """One request for a page: who makes it, what they may do, and how to respond."""

    def __init__(self, site: Site, request: Request, caller: Caller) -> None:
        self.site, self.request, self.caller = site, request, caller
        self.client = site.server.open_client(caller)
        """The API as the caller may use it."""

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
        body = await self.site.server.read_body(self.request, FORM_TYPE)
        try:
            return FormFields(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body)))
        except ValueError:
            raise ApiError("bad_request", "The form is not valid", FORM_FIX) from None

    # -- the response --------------------------------------------------------------------------

    async def page(self, template: str, **values: Any) -> Response:
        """Return a whole page: a template that extends `base.html`."""
        return HTMLResponse(self.render(template, inbox_count=await self.count_open_gates(), **values))

    def fragment(self, template: str, **values: Any) -> Response:
        """Return a part of a page."""
        return HTMLResponse(self.render(template, **values))

    def render(self, template: str, **values: Any) -> str:
        """Return the text of a template."""
        return self.site.render(template, {"visit": self, "may": self.may, **values})

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

    def stream(
        self,
        select: SelectChange,
        render: RenderChanges,
        run: str | None = None,
        tick_s: float | None = None,
    ) -> Response:
        """Keep the page and the badge of the inbox up to date: see `nerve.web.live`.

        With a `run`, the stream ends when the run does. With `tick_s`, the page is also rendered that often
        while nothing happens, because it shows how long something takes.
        """
        cursor = self.request.headers.get("last-event-id", "") or self.query.get("after", "")
        open_events = (
            events_of_all_runs(self.client) if run is None else events_until_end_of(self.client, run)
        )
        selected, rendered = self._with_inbox_badge(select, render)
        live = LiveStream(open_events, cursor, selected, rendered, tick_s)
        return self.site.server.respond_with_stream(live.messages())

    def _with_inbox_badge(
        self, select: SelectChange, render: RenderChanges
    ) -> tuple[SelectChange, RenderChanges]:
        gates_changed = False

        def select_with_badge(event: EventResponse) -> str | None:
            nonlocal gates_changed
            key = select(event)
            if event.event_type not in GATE_EVENTS:
                return key
            gates_changed = True
            return key or INBOX_KEY

        async def render_with_badge(keys: Collection[str] | None) -> str:
            nonlocal gates_changed
            badge = ""
            if gates_changed or keys is None:
                gates_changed = False
                html = self.render("parts/inbox_badge.html", inbox_count=await self.count_open_gates())
                badge = make_partial("#inbox-badge", html)
            others = None if keys is None else [key for key in keys if key != INBOX_KEY]
            # Without any key, the page is rendered because time has passed.
            return badge + (await render(others) if not keys or others else "")

        return select_with_badge, render_with_badge
