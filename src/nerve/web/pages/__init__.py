"""The pages, one module each with a function `add_pages(site)`."""

from __future__ import annotations

from nerve.web.pages import inbox, run, runs, sign_in
from nerve.web.site import Site

PAGE_MODULES = (sign_in, runs, run, inbox)


def add_all_pages(site: Site) -> None:
    for module in PAGE_MODULES:
        module.add_pages(site)
