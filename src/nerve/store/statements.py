"""The SQL of the store, read from `sql/*.sql` by name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

_NAME_MARK = "-- name: "


def _load_statements() -> Iterator[tuple[str, str]]:
    for file in Path(__file__).with_name("sql").glob("*.sql"):
        for block in file.read_text("utf-8").split(_NAME_MARK)[1:]:
            name, _, text = block.partition("\n")
            yield name.strip(), text.strip()


SQL = dict(_load_statements())


@cache
def statement_for_rows(name: str, width: int, count: int) -> str:
    """Return the named statement with `:rows` replaced by `count` rows of `width` values each."""
    row = f"({','.join('?' * width)})"
    return SQL[name].replace(":rows", ",".join([row] * count))
