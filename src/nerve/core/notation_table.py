"""How workflows are written down: the one table of the notations, which every layer reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NotationName = Literal["json", "yaml", "lisp"]


@dataclass(frozen=True, slots=True)
class NotationInfo:
    """A notation: its name, the endings of its files, how its texts begin, and what reads and writes them."""

    name: NotationName
    suffixes: tuple[str, ...]
    first_characters: str
    """Characters by which a text without a file is known to be in it; in none of these it is YAML."""
    module: str
    limit: str = ""
    """How a file in it sets a limit of a run, where its name is not that of Python."""


TABLE = (
    NotationInfo("json", (".json",), "{", "nerve.notations.json_steps"),
    NotationInfo("yaml", (".yaml", ".yml"), "", "nerve.notations.yaml_prompts"),
    NotationInfo("lisp", (".lisp",), "(;", "nerve.notations.lisp", "(limits :{} …)"),
)
NOTATION_NAMES = tuple(each.name for each in TABLE)
LIMIT_FORMS: dict[str, str] = {each.name: each.limit for each in TABLE if each.limit}
NOTATION_BY_SUFFIX = {suffix: each.name for each in TABLE for suffix in each.suffixes}
NOTATION_BY_FIRST_CHARACTER = {character: each.name for each in TABLE for character in each.first_characters}
