"""Sign-in of a browser with OpenID Connect: authorization code with PKCE, state and nonce.

What the browser has to bring back is in a signed cookie, so that any server of the session can finish a
sign-in that another one has begun.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from nerve.api.errors import ApiError
from nerve.core.people import find_by_contact
from nerve.notifications.delivery import ERROR_CODE, SecretReader
from nerve.server.auth import Auth, Holder, header_values, holder_of, session_cookie_name
from nerve.server.oidc_provider import INSTALL_HINT, OidcProvider, SignInRefused

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from nerve.project.sign_in_settings import OidcSettings
    from nerve.web.site import Site

SIGN_IN_PATH, CALLBACK_PATH = "/sign-in/oidc", "/sign-in/oidc/callback"
OIDC_WAY = "oidc"
ATTEMPT_TTL_S = 600
"""Seconds in which a person has to sign in with the provider."""


class OidcSignIn:
    """The two routes of the sign-in with one provider."""

    def __init__(
        self, settings: OidcSettings, project: Path, public_url: str | None, auth: Auth, site: Site
    ) -> None:
        self._provider = OidcProvider(settings, SecretReader(project))
        self._public_url, self._auth, self._site = public_url, auth, site
        self.name = settings.name

    def routes(self) -> list[Route]:
        return [Route(SIGN_IN_PATH, self.begin), Route(CALLBACK_PATH, self.finish)]

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider."""
        attempt: dict[str, Any] = {
            "state": secrets.token_urlsafe(24),
            "nonce": secrets.token_urlsafe(24),
            "verifier": secrets.token_urlsafe(48),
            "until": int(time.time()) + ATTEMPT_TTL_S,
        }
        try:
            url = await self._provider.make_sign_in_url(
                self._redirect_uri(request), attempt["state"], attempt["nonce"], attempt["verifier"]
            )
        except ImportError as error:
            return self._refuse(SignInRefused(f"authlib is missing: {error}", INSTALL_HINT, is_provider=True))
        except SignInRefused as error:
            return self._refuse(error)
        return RedirectResponse(url, 303, {"set-cookie": self._format_cookie(request, self._seal(attempt))})

    async def finish(self, request: Request) -> Response:
        """Sign in the person whom the provider names, and lead the browser to the inbox."""
        try:
            holder = await self._find_holder(request)
        except ApiError as error:
            return self._refuse(SignInRefused(error.message, error.fix))
        except SignInRefused as error:
            response = self._refuse(error)
        else:
            # Not a redirect: a browser that comes from another site would not send the new cookie with it.
            values = {"title": "Signed in", "target": self._site.url("/inbox")}
            response = HTMLResponse(self._site.render("signed_in.html", values))
            response.headers.append("set-cookie", self._auth.make_cookie(request.scope, holder))
        response.headers.append("set-cookie", self._format_cookie(request, "", 0))
        return response

    async def _find_holder(self, request: Request) -> Holder:
        attempt, query = self._read_attempt(request), request.query_params
        if not hmac.compare_digest(attempt["state"].encode(), query.get("state", "").encode()):
            raise SignInRefused("The reply belongs to another sign-in: its state is wrong")
        if query.get("iss", self._provider.settings.issuer) != self._provider.settings.issuer:
            raise SignInRefused("The reply is of another provider")
        if (problem := query.get("error")) is not None:
            code = problem if ERROR_CODE.fullmatch(problem) else "unknown error"
            raise SignInRefused(f"The provider has not signed you in ({code})")
        claims = await self._provider.read_identity(
            query.get("code", ""), self._redirect_uri(request), attempt["nonce"], attempt["verifier"]
        )
        name, kind = self._provider.find_name(claims), self._provider.settings.contact
        people = await self._auth.read_people()
        person = find_by_contact(people.values(), kind, name)
        if person is None:
            fix = f"An administrator adds them: nerve people change NAME --contact {kind}={name}"
            raise SignInRefused(f"'{name}' is not a person of this project", fix)
        return holder_of(person)._replace(way=OIDC_WAY)

    def _redirect_uri(self, request: Request) -> str:
        """Return the address to which the provider sends the browser back."""
        base = self._public_url
        if base is None:
            [host] = header_values(request.scope, b"host")
            base = f"{request.scope['scheme']}://{host}{self._site.server.prefix}"
        return base + CALLBACK_PATH

    def _refuse(self, error: SignInRefused) -> Response:
        values = {"title": "Sign in", "problem": f"{error}.", "fix": error.fix}
        status = 503 if error.is_provider else 403
        return HTMLResponse(self._site.render("sign_in.html", values), status)

    # -- the cookie of an attempt ----------------------------------------------------------------------

    def _seal(self, attempt: dict[str, Any]) -> str:
        text = base64.urlsafe_b64encode(json.dumps(attempt).encode()).decode().rstrip("=")
        return f"{text}.{self._auth.sign(f'oidc:{text}')}"

    def _read_attempt(self, request: Request) -> dict[str, Any]:
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load("; ".join(header_values(request.scope, b"cookie")))
        except CookieError:
            pass
        morsel = jar.get(self._cookie_name(request))
        text, _, seal = ("" if morsel is None else morsel.value).partition(".")
        if text and hmac.compare_digest(self._auth.sign(f"oidc:{text}").encode(), seal.encode()):
            attempt: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            if attempt["until"] > time.time():
                return attempt
        raise SignInRefused("The sign-in was begun in another browser, or too long ago")

    def _cookie_name(self, request: Request) -> str:
        return f"{session_cookie_name(request.scope)}_oidc"

    def _format_cookie(self, request: Request, value: str, max_age: int = ATTEMPT_TTL_S) -> str:
        """Return the Set-Cookie header of an attempt; Lax, because the provider sends the browser back."""
        secure = "; Secure" if request.scope["scheme"] == "https" else ""
        return (
            f"{self._cookie_name(request)}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}"
        )


def make_oidc_sign_in(
    settings: OidcSettings, project: Path, public_url: str | None, auth: Auth, site: Site
) -> OidcSignIn:
    """Return the sign-in with a provider, and add its routes to the site."""
    sign_in = OidcSignIn(settings, project, public_url, auth, site)
    site.routes += sign_in.routes()
    site.oidc_name = sign_in.name
    return sign_in
