"""Rendering a text while it grows gives the same lines as rendering it at once."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
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
        "A sentence that is long enough to wrap on a narrow screen.",
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
@example(["```python\n", "```python\n", "\n", "# Title\n\n", "word "])
@example(["    indented\n", "\n\n", "```python\n", "```\n", "**bold** ", "# Title\n\n", "\n\n", "word "])
@example(["word ", "\n\n", "\n", "x = 1\n", "\n\n", "word "])
@example(["# Title\n\n", "~~~\n", "\n", "x = 1\n", "~~~\n", "\n", "word ", "\n\n", "word "])
def test_rendering_piece_by_piece_equals_rendering_at_once(pieces: list[str]) -> None:
    growing, text = IncrementalMarkdown(), ""
    for piece in pieces:
        text += piece
        grown = lines(growing, text)
    assert not pieces or grown == lines(IncrementalMarkdown(), text)


def test_final_lines_are_not_rendered_again() -> None:
    growing = IncrementalMarkdown()
    growing.render(app(), "First part.\n\nSecond", 30)
    settled = growing.final_lines
    growing.render(app(), "First part.\n\nSecond part grows", 30)
    assert growing.final_lines is settled


def test_a_code_block_is_not_split_at_its_blank_lines() -> None:
    growing = IncrementalMarkdown()
    drawn = lines(growing, "```\na = 1\n\nb = 2\n```\n\nafter")
    assert drawn == ["  a = 1", "", "  b = 2", "", "after"]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("```python\n```python\n\n# no title\n\nmore\n```", id="a fence with an info string"),
        pytest.param("````\n```\n\n# no title\n\nmore\n````", id="a shorter fence"),
        pytest.param("~~~\n```\n\n# no title\n\nmore\n~~~", id="a fence of another character"),
    ],
)
def test_a_fence_line_that_does_not_close_is_code(code: str) -> None:
    drawn = lines(IncrementalMarkdown(), f"{code}\n\nafter")
    assert drawn[-6:] == ["", "  # no title", "", "  more", "", "after"]
    assert MarkdownIt().parse(code)[0].content == code.split("\n", 1)[1].rsplit("\n", 1)[0] + "\n"


def test_a_different_text_or_width_restarts_rendering() -> None:
    growing = IncrementalMarkdown()
    lines(growing, "one\n\ntwo")
    assert lines(growing, "other\n\ntext") == ["other", "", "text"]
