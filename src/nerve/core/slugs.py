"""Slugs: workflow ids derived from names."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256


def slugify(name: str) -> str:
    """Return the id for a name; a valid id is returned unchanged.

    Accents are removed. A name with characters that an id cannot represent gets a hash suffix, so that
    different names have different ids.
    """
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        return name
    plain = unicodedata.normalize("NFKD", name.casefold())
    base = re.sub(r"[^a-z0-9_]+", "-", "".join(c for c in plain if not unicodedata.combining(c))).strip("-")
    is_lossy = not base or any(c.isalnum() and not c.isascii() for c in plain)
    suffix = [sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]] if is_lossy else []
    prefix = [] if base[:1].isalpha() else ["w"]
    return "-".join([*prefix, *filter(None, [base]), *suffix])
