"""The pages, one module each with a function `add_pages(site)`."""

from __future__ import annotations

from nerve.web.pages import ask, inbox, run, runs, sign_in, workflows
from nerve.web.site import Site

PAGE_MODULES = (sign_in, runs, run, inbox, workflows, ask)


def add_all_pages(site: Site) -> None:
    for module in PAGE_MODULES:
        module.add_pages(site)
