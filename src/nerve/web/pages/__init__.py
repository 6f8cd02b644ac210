"""The pages, one module each with a function `add_pages(site)`."""

from __future__ import annotations

from nerve.web.pages import (
    agents,
    ask,
    compare,
    facts,
    inbox,
    notifications,
    rerun,
    run,
    runs,
    sign_in,
    triggers,
    usage,
    workflows,
)
from nerve.web.site import Site

PAGE_MODULES = (
    sign_in,
    runs,
    rerun,
    run,
    inbox,
    notifications,
    workflows,
    ask,
    agents,
    facts,
    triggers,
    usage,
    compare,
)


def add_all_pages(site: Site) -> None:
    for module in PAGE_MODULES:
        module.add_pages(site)
