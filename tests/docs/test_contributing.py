"""How to add something: the tables that CONTRIBUTING names are where it says."""

import re
from importlib import import_module

import pytest

from docs.pages import ROOT, page

TEXT = page("CONTRIBUTING.md")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("NOTATIONS", "nerve.notations"),
        ("VERBS", "nerve.cli"),
        ("CHECKS", "nerve.spec.check"),
        ("Builder.kinds", "nerve.spec.build"),
        ("Node", "nerve.spec.models"),
        ("parts", "nerve.spec.walk"),
        ("_own", "nerve.spec.walk"),
        ("pinned", "nerve.core.session.loading"),
        ("UsageError", "nerve.cli.usage"),
        ("Kind", "nerve.core.workflow.workflow"),
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


def test_every_file_that_names_the_notations_is_told_of() -> None:
    ours = sorted((ROOT / "src/nerve").rglob("*.py"))
    naming = [path.relative_to(ROOT) for path in ours if '"lisp"' in path.read_text()]
    others = [path for path in naming if "lisp" not in path.parts]
    assert [path for path in others if f"`{path}`" not in TEXT] == []
