"""The page about the dataspace: its examples run, and its tables match the code."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from nerve.dataspace import Record
from nerve.dataspace.record import IDENTITY_FIELDS

PAGE = (Path(__file__).parents[2] / "docs/guides/dataspace.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_prints_what_the_page_says(code: str, output: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "dataspace.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert printed.getvalue() == output


def test_text_and_json_of_the_table_are_the_same_record() -> None:
    table = PAGE.split("| text | JSON |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(.*?)` \| `(.*?)` \|$", table, re.MULTILINE)
    assert len(rows) == 4
    for text, value in rows:
        assert Record.parse(text) == Record.from_json(json.loads(value))


def test_every_identity_is_in_the_table() -> None:
    table = PAGE.split("| record | identity |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `\(([a-z/-]+) ", table, re.MULTILINE)) == set(IDENTITY_FIELDS)
