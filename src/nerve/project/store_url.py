"""The URL of a store in PostgreSQL, as options and the environment give it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from urllib.parse import parse_qs, urlsplit

from nerve.errors import DriverMissing

STORE_VARIABLE = "NERVE_STORE"
"""The environment variable with the URL of the store, which may have a password."""

URL_SCHEMES = ("postgresql://", "postgres://")


def is_store_url(store: object) -> bool:
    """Whether a store is given as the URL of a database in PostgreSQL."""
    return isinstance(store, str) and store.startswith(URL_SCHEMES)


def require_driver() -> None:
    """Raise DriverMissing if the library for PostgreSQL is not installed; does not import it, to be fast."""
    if find_spec("psycopg") is None:
        raise DriverMissing(
            "A store in PostgreSQL needs psycopg, which is not installed. "
            "Install it: pip install '.[postgres]' in the clone of Nerve."
        )


def has_password(url: str) -> bool:
    """Whether a URL has a password; also if it cannot be read."""
    try:
        parts = urlsplit(url)
        return parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:
        return True


def store_url_of_environment() -> str | None:
    """Return the URL in the environment; ValueError if the variable has something else."""
    url = os.environ.get(STORE_VARIABLE) or None
    if url is not None and not is_store_url(url):
        raise ValueError(f"{STORE_VARIABLE} must be a URL such as postgresql://USER@HOST/DATABASE")
    return url
