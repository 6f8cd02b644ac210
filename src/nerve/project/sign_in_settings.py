"""The settings of the sign-in to the web page in `.nerve/config.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nerve.core.people import EMAIL_CONTACT, OIDC_CONTACT
from nerve.lazy_dataclass import dataclass
from nerve.project.notify_settings import LOOPBACK_HOSTS, NotifySettingsParser, SecretSource
from nerve.text.source import LocatedList, LocatedMap, Position

if TYPE_CHECKING:
    from nerve.project.config import ConfigReader

DEFAULT_CLAIM = "email"
DEFAULT_SCOPES = ("openid", "email", "profile")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The provider of OpenID Connect with which people sign in."""

    issuer: str = ""
    client_id: str = ""
    client_secret: SecretSource | None = None
    """Where the secret of the client is; a public client has none."""
    claim: str = DEFAULT_CLAIM
    """The claim of the ID token that names the person."""
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    name: str = "OpenID Connect"
    """What the page calls the provider."""

    @property
    def contact(self) -> str:
        """The kind of contact of a person that has the value of the claim."""
        return EMAIL_CONTACT if self.claim == DEFAULT_CLAIM else OIDC_CONTACT


@dataclass(frozen=True, slots=True)
class SignInSettings:
    """How people sign in to the web page, besides with tokens."""

    oidc: OidcSettings | None = None


def parse_sign_in(reader: ConfigReader, source: Any, position: Position) -> SignInSettings:
    """Return the settings of the key `sign_in`; report problems to the reader."""
    values = {
        key: parse_oidc(reader, value, at)
        for key, value, at in reader.known_entries(source, "'sign_in'", SignInSettings.__slots__, position)
    }
    return SignInSettings(**values)


def parse_oidc(reader: ConfigReader, source: Any, position: Position) -> OidcSettings:
    parser, values = NotifySettingsParser(reader), dict[str, Any]()
    for key, value, at in reader.known_entries(source, "'oidc'", OidcSettings.__slots__, position):
        what = f"{key} of 'oidc'"
        if key == "issuer":
            values[key] = parse_issuer(parser, value, at, what)
        elif key == "client_secret":
            values[key] = parser.parse_secret(value, at, what)
        elif key == "scopes":
            values[key] = parse_scopes(reader, value, at, what)
        else:
            values[key] = parser.parse_text(value, at, what)
    if isinstance(source, LocatedMap):
        for key in ("issuer", "client_id"):
            if key not in source:
                reader.add(position, f"'oidc' needs {key}")
    return OidcSettings(**values)


def parse_issuer(parser: NotifySettingsParser, value: Any, position: Position, what: str) -> str:
    """Return the address of a provider as its documents have it; without TLS only on this machine."""
    text = parser.parse_url(value, position, what)
    parts = urlsplit(text)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK_HOSTS:
        parser.reader.add(position, f"{what} must start with https://")
    if parts.query or parts.fragment:
        parser.reader.add(position, f"{what} must have neither a query nor a fragment")
    return str(value).strip() if text else ""


def parse_scopes(reader: ConfigReader, value: Any, position: Position, what: str) -> tuple[str, ...]:
    is_list = isinstance(value, LocatedList) and all(isinstance(scope, str) and scope for scope in value)
    if not is_list or "openid" not in value:
        reader.add(position, f"{what} must be a list of names with 'openid'")
        return DEFAULT_SCOPES
    return tuple(value)
