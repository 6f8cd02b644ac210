"""How to add something: the tables that CONTRIBUTING names are where it says."""

import re
from importlib import import_module
from typing import get_args

import pytest

from docs.pages import ROOT, page
from nerve.written import NAMES, TABLE, NotationName

TEXT = page("CONTRIBUTING.md")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("TABLE", "nerve.written"),
        ("NotationName", "nerve.written"),
        ("VERBS", "nerve.cli"),
        ("CHECKS", "nerve.spec.check"),
        ("Builder.kinds", "nerve.spec.build"),
        ("Node", "nerve.spec.models"),
        ("parts", "nerve.spec.walk"),
        ("_own", "nerve.spec.walk"),
        ("UsageError", "nerve.cli.usage"),
        ("COMMANDS", "nerve.commander.core.commands"),
        ("Unknown", "nerve.commander.core.naming"),
        ("KEYS", "nerve.commander.tui.keys"),
    ],
)
def test_a_table_is_where_it_is_said_to_be(name: str, module: str) -> None:
    assert f"`{name}`" in TEXT
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)


def test_everything_that_can_be_added_has_a_paragraph() -> None:
    assert re.findall(r"^\*\*an? (.+?)\.\*\*", TEXT, re.MULTILINE) == [
        "node",
        "store",
        "notation",
        "kind of node in the spec",
        "check of workflows",
        "function of the expression language",
        "provider",
        "verb of the command line",
        "command of the Commander",
        "key of the full screen",
        "event",
    ]


def test_the_table_is_the_only_place_outside_of_a_notation_that_names_it() -> None:
    ours = sorted((ROOT / "src/nerve").rglob("*.py"))
    naming = [path.relative_to(ROOT / "src/nerve") for path in ours if '"lisp"' in path.read_text()]
    assert [str(path) for path in naming if "lisp" not in path.parts] == ["written.py"]


def test_every_notation_of_the_table_has_what_a_notation_needs() -> None:
    assert get_args(NotationName) == NAMES
    for each in TABLE:
        module = import_module(each.module)
        assert all(hasattr(module, part) for part in ("read", "write", "BEGINNING"))
        assert f"test_{each.name}.py" in {path.name for path in (ROOT / "tests/notations/mistakes").iterdir()}
        assert (ROOT / f"docs/notations/{each.name}.md").is_file()
