"""How values are displayed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.ui.display_values import MAX_TABLE_ROWS, MAX_TEXT_CHARS, JsonNode, display_value, json_tree

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "empty"),
        ("", "empty"),
        ([], "empty"),
        (0, "text"),
        (False, "text"),
        ("just words", "text"),
        ("2 * 3 * 4 = 24", "text"),
        ("# Plan\n\nText", "markdown"),
        ("- one\n- two", "markdown"),
        ("see `flow.py`", "markdown"),
        ("```\ncode\n```", "markdown"),
        (DIFF, "diff"),
        ("diff --git a/x b/x\nindex 1..2", "diff"),
        ('{"a": [1, {"b": 2}]}', "json"),
        ("{not json", "text"),
        ({"a": {"b": 1}}, "json"),
        ([1, 2, 3], "json"),
        ([{"a": 1}, {"a": 2, "b": "x"}], "table"),
        ([{"a": [1]}], "json"),
        ([{"a": 1}, 2], "json"),
        (f"data:image/png;base64,{PIXEL}", "image"),
        ("data:image/svg+xml;base64,AAAA", "text"),
        ("data:text/html;base64,AAAA", "text"),
        ({"media_type": "image/png", "data": PIXEL}, "image"),
        ({"media_type": "text/html", "data": PIXEL}, "json"),
        ({"path": "artifacts/report.pdf", "size": 10}, "file"),
        ({"path": "x", "answer": 1}, "json"),
    ],
)
def test_the_kind_of_a_value_decides_how_it_is_displayed(value: Any, kind: str) -> None:
    assert display_value(value).kind == kind


def test_an_image_in_a_file_is_named_by_its_path() -> None:
    shown = display_value({"path": "artifacts/shot.PNG"})
    assert (shown.kind, shown.text, shown.is_path) == ("image", "artifacts/shot.PNG", True)
    assert not display_value(f"data:image/png;base64,{PIXEL}").is_path


def test_a_table_has_all_columns_and_a_bounded_number_of_rows() -> None:
    rows: list[dict[str, Any]] = [{"n": number} for number in range(MAX_TABLE_ROWS + 7)]
    table = display_value([*rows[:-1], {"n": None, "note": "last"}])
    assert table.columns == ["n", "note"]
    assert (len(table.rows), table.left_out) == (MAX_TABLE_ROWS, 7)
    assert table.rows[0] == ["0", ""]


def test_a_long_text_is_truncated() -> None:
    shown = display_value("x" * (MAX_TEXT_CHARS + 5))
    assert (len(shown.text), shown.left_out) == (MAX_TEXT_CHARS, 5)


def test_a_tree_shows_types_and_sizes() -> None:
    tree = json_tree({"a": [1, None], "b": "x", "c": True})
    assert [(child.key, child.kind, child.text) for child in tree.children] == [
        ("a", "array", "2"),
        ("b", "string", '"x"'),
        ("c", "boolean", "true"),
    ]


def count_nodes(node: JsonNode) -> int:
    return 1 + sum(map(count_nodes, node.children))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=40,
)


@given(JSON_VALUES, st.integers(1, 20))
def test_a_tree_is_bounded_and_says_what_it_leaves_out(value: Any, limit: int) -> None:
    tree = json_tree(value, limit)
    assert count_nodes(tree) <= limit
    stack = [tree]
    while stack:
        node = stack.pop()
        stack += node.children
        if node.kind in ("object", "array"):
            assert len(node.children) + node.left_out == int(node.text)


@given(JSON_VALUES)
def test_every_value_can_be_displayed(value: Any) -> None:
    display_value(value)
