"""Markdown as HTML: what agents write is formatted, and nothing of it is executed."""

from html.parser import HTMLParser

import pytest

from nerve.ui.display_values import display_value
from nerve.web.markdown import MAX_MARKDOWN_CHARS, render_markdown
from nerve.web.rendering import make_environment

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "![picture](https://evil.example/pixel.png)",
    "<a href=\"x\" onclick='alert(1)'>x</a>",
    '[x](https://a.example "\\" onmouseover=alert(1)")',
    "<iframe src=//evil.example></iframe>",
    "```html\n<script>alert(1)</script>\n```",
    "<style>body{display:none}</style>",
]


class DangerFinder(HTMLParser):
    """Collects elements and attributes that a browser would execute or load."""

    def __init__(self) -> None:
        super().__init__()
        self.dangers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "iframe", "img", "object", "svg"):
            self.dangers.append(tag)
        for name, value in attrs:
            is_address = name in ("href", "src", "action")
            if name.startswith("on") or name == "style" or (is_address and not str(value).startswith("http")):
                self.dangers.append(f"{name}={value}")


def find_dangers(html: str) -> list[str]:
    finder = DangerFinder()
    finder.feed(html)
    return finder.dangers


def test_headings_lists_tables_code_and_links_are_formatted() -> None:
    html = render_markdown("# Plan\n\n- one\n- `two`\n\n|a|b|\n|-|-|\n|1|2|\n\n[docs](https://a.example/x)")
    for part in ("<h1>Plan</h1>", "<li>one</li>", "<code>two</code>", "<td>1</td>"):
        assert part in html
    assert '<a href="https://a.example/x" rel="noopener noreferrer nofollow">docs</a>' in html


@pytest.mark.parametrize("attack", ATTACKS)
def test_markup_in_markdown_is_not_executed(attack: str) -> None:
    assert find_dangers(render_markdown(attack)) == []


def test_a_long_text_is_shown_as_it_is() -> None:
    html = render_markdown("<b>" + "*" * MAX_MARKDOWN_CHARS)
    assert html.startswith("<pre>&lt;b&gt;***")


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"a": [1, {"b": None}]}, '<span class="key">a</span>'),
        ([{"name": "x", "size": 1}], "<th>name</th>"),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n", '<span class="added">+new'),
        ("data:image/png;base64,iVBORw0KGgo=", '<img src="data:image/png;base64,iVBORw0KGgo="'),
        ({"path": "/tmp/report.pdf"}, "<code>/tmp/report.pdf</code>"),
        ("plain", "<pre>plain</pre>"),
        (None, "Nothing."),
        ("# Title", "<h1>Title</h1>"),
    ],
)
def test_every_kind_of_value_has_its_form(value: object, part: str) -> None:
    source = '{% from "parts/values.html" import value with context %}{{ value(shown) }}'
    assert part in make_environment().from_string(source).render(shown=display_value(value))


@pytest.mark.parametrize("attack", ATTACKS)
def test_values_are_escaped_in_every_form(attack: str) -> None:
    source = '{% from "parts/values.html" import value with context %}{{ value(shown) }}'
    template = make_environment().from_string(source)
    diff = f"--- a\n+++ b\n@@ -1 +1 @@\n+{attack}\n"
    for value in (attack, {attack: attack}, [{attack: attack}], [[attack]], diff, {"path": attack}):
        assert find_dangers(template.render(shown=display_value(value))) == []
