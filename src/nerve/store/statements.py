"""The SQL of the store, read from `sql/*.sql` by name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

_NAME_MARK = "-- name: "
_FRAGMENTS = ("run_columns", "run_filters", "run_order")
"""Parts that statements share; a statement contains `:name` in place of each."""


def _load_statements() -> Iterator[tuple[str, str]]:
    for file in Path(__file__).with_name("sql").glob("*.sql"):
        for block in file.read_text("utf-8").split(_NAME_MARK)[1:]:
            name, _, text = block.partition("\n")
            yield name.strip(), text.strip()


def _insert_fragments(statements: dict[str, str]) -> dict[str, str]:
    fragments = {f":{name}": statements.pop(name) for name in _FRAGMENTS}
    for name in statements:
        for mark, text in fragments.items():
            statements[name] = statements[name].replace(mark, text)
    return statements


SQL = _insert_fragments(dict(_load_statements()))


@cache
def statement_for_rows(name: str, width: int, count: int) -> str:
    """Return the named statement with `:rows` replaced by `count` rows of `width` values each."""
    row = f"({','.join('?' * width)})"
    return SQL[name].replace(":rows", ",".join([row] * count))
