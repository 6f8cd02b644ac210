"""The SQL of the stores, read from `sql/*.sql` and `sql/postgres/*.sql` by name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

_NAME_MARK = "-- name: "
_FRAGMENTS = ("run_columns", "run_filters", "run_order")
"""Parts that statements share; a statement contains `:name` in place of each."""


def load_statements(folder: str) -> dict[str, str]:
    """Return the statements of a folder by name, with the parts that they share."""
    return _insert_fragments(dict(_read_statements(Path(__file__).parent / folder)))


def _read_statements(folder: Path) -> Iterator[tuple[str, str]]:
    for file in folder.glob("*.sql"):
        for block in file.read_text("utf-8").split(_NAME_MARK)[1:]:
            name, _, text = block.partition("\n")
            yield name.strip(), text.strip()


def _insert_fragments(statements: dict[str, str]) -> dict[str, str]:
    fragments = {f":{name}": statements.pop(name) for name in _FRAGMENTS if name in statements}
    for name in statements:
        for mark, text in fragments.items():
            statements[name] = statements[name].replace(mark, text)
    return statements


SQL = load_statements("sql")


@cache
def statement_for_rows(name: str, width: int, count: int) -> str:
    """Return the named statement with `:rows` replaced by `count` rows of `width` values each."""
    row = f"({','.join('?' * width)})"
    return SQL[name].replace(":rows", ",".join([row] * count))
