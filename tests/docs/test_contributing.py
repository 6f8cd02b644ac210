"""CONTRIBUTING.md: the names in it exist in the modules that it names."""

import re
from importlib import import_module
from typing import get_args

import pytest

from docs.pages import ROOT, page, section
from nerve.core.notation_table import NOTATION_NAMES, TABLE, NotationName

TEXT = page("CONTRIBUTING.md")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("TABLE", "nerve.core.notation_table"),
        ("NotationName", "nerve.core.notation_table"),
        ("CLI_COMMANDS", "nerve.cli.command_table"),
        ("STRUCTURE_CHECKS", "nerve.spec.checker"),
        ("NodeBuilder", "nerve.spec.builder"),
        ("Node", "nerve.spec.models"),
        ("child_specs", "nerve.spec.walk"),
        ("_own_texts", "nerve.spec.walk"),
        ("UsageError", "nerve.cli.errors"),
        ("COMMANDS", "nerve.commander.core.command_table"),
        ("CommanderInputError", "nerve.commander.core.name_resolution"),
        ("KEYS", "nerve.commander.tui.keymap"),
        ("LocatedMap", "nerve.text.source"),
        ("LocatedList", "nerve.text.source"),
        ("InvalidDefinition", "nerve.text.source"),
        ("run_with_api", "nerve.cli.context"),
        ("TurnFinished", "nerve.agents"),
    ],
)
def test_a_name_exists_in_its_module(name: str, module: str) -> None:
    assert f"`{name}`" in TEXT
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)


NOUNS = [
    "node",
    "workflow",
    "definition",
    "run",
    "journal",
    "event",
    "path",
    "step",
    "gate",
    "workspace",
    "session",
    "provider",
    "thread",
    "fact",
    "signal",
]


def test_the_glossary_has_every_noun() -> None:
    assert re.findall(r"^\| (\w+) \|", section(TEXT, "Glossary"), re.MULTILINE) == ["noun", *NOUNS]


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


def test_only_the_table_names_a_notation_outside_of_its_package() -> None:
    ours = sorted((ROOT / "src/nerve").rglob("*.py"))
    naming = [path.relative_to(ROOT / "src/nerve") for path in ours if '"lisp"' in path.read_text()]
    assert [str(path) for path in naming if "lisp" not in path.parts] == ["core/notation_table.py"]


def test_every_notation_has_its_functions_tests_and_page() -> None:
    assert get_args(NotationName) == NOTATION_NAMES
    for each in TABLE:
        module = import_module(each.module)
        assert all(hasattr(module, part) for part in ("read_document", "write_document", "STARTER_TEXT"))
        assert f"test_{each.name}.py" in {path.name for path in (ROOT / "tests/notations/mistakes").iterdir()}
        assert (ROOT / f"docs/guides/{each.name}.md").is_file()
