"""Markdown of agents, users and files as safe HTML."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markupsafe import Markup

MAX_MARKDOWN_CHARS = 50_000
"""Longer texts are shown as they are, since parsing blocks the other pages."""
TAGS = """a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s strong table tbody td th thead
tr ul"""
ALLOWED_TAGS = frozenset(TAGS.split())
ALLOWED_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
ALLOWED_SCHEMES = frozenset({"http", "https", "mailto"})


@cache
def load_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def render_markdown(text: str) -> Markup:
    """Return the HTML of a text without scripts, styles, images and addresses of unsafe kinds."""
    from markupsafe import Markup, escape

    if len(text) > MAX_MARKDOWN_CHARS:
        return Markup("<pre>{}</pre>").format(escape(text))
    import nh3

    html = nh3.clean(
        load_parser().render(text),
        tags=set(ALLOWED_TAGS),
        attributes=ALLOWED_ATTRIBUTES,
        url_schemes=set(ALLOWED_SCHEMES),
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(html)
