"""Read pages: the text of an element, without its tags."""

import html
import re


def text_of(page: str) -> str:
    """Return the text of a page or fragment on one line."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page))).strip()


def element(page: str, id: str, tag: str = "div") -> str:
    """Return the text from the start of an element with an id on."""
    found = re.search(rf'<{tag}[^>]*\bid="{re.escape(id)}".*', page, re.DOTALL)
    assert found is not None, id
    return found[0]
