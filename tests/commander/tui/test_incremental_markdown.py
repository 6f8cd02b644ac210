"""A text drawn while it grows is the text drawn at its end."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App

from nerve.commander.tui.incremental_markdown import IncrementalMarkdown

PIECES = st.sampled_from(
    [
        "word ",
        "**bold** ",
        "\n",
        "\n\n",
        "- item\n",
        "1. first\n",
        "```python\n",
        "x = 1\n",
        "```\n",
        "# Title\n\n",
        "> quote\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n",
        "A sentence that is long enough to be wrapped on a narrow paper.",
        "    indented\n",
        "~~~\n",
    ]
)


@cache
def app() -> App[None]:
    return App()


def lines(growing: IncrementalMarkdown, text: str) -> list[str]:
    return [line.text.rstrip() for line in growing.render(app(), text, 30)]


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=25))
def test_a_text_drawn_piece_by_piece_is_the_text_drawn_at_once(pieces: list[str]) -> None:
    growing, text = IncrementalMarkdown(), ""
    for piece in pieces:
        text += piece
        grown = lines(growing, text)
    assert not pieces or grown == lines(IncrementalMarkdown(), text)


def test_what_is_final_is_not_drawn_again() -> None:
    growing = IncrementalMarkdown()
    growing.render(app(), "First part.\n\nSecond", 30)
    settled = growing.final_lines
    growing.render(app(), "First part.\n\nSecond part grows", 30)
    assert growing.final_lines is settled


def test_code_is_not_cut_at_its_empty_lines() -> None:
    growing = IncrementalMarkdown()
    drawn = lines(growing, "```\na = 1\n\nb = 2\n```\n\nafter")
    assert drawn == ["  a = 1", "", "  b = 2", "", "after"]


def test_another_text_or_width_begins_again() -> None:
    growing = IncrementalMarkdown()
    lines(growing, "one\n\ntwo")
    assert lines(growing, "other\n\ntext") == ["other", "", "text"]
