"""The table of workflow notations that every layer reads."""

from __future__ import annotations

from typing import Literal

from nerve.lazy_dataclass import dataclass

NotationName = Literal["json", "yaml", "lisp"]


@dataclass(frozen=True, slots=True)
class NotationInfo:
    """A notation: its name, its file suffixes, its first characters, and its module."""

    name: NotationName
    suffixes: tuple[str, ...]
    first_characters: str
    """Characters that identify the notation of a source without a file name; any other means YAML."""
    module: str
    limit: str = ""
    """How a file sets a limit of a run, where that differs from the Python name."""


TABLE = (
    NotationInfo("json", (".json",), "{", "nerve.notations.json_steps"),
    NotationInfo("yaml", (".yaml", ".yml"), "", "nerve.notations.yaml_prompts"),
    NotationInfo("lisp", (".lisp", ".duet"), "(;", "nerve.notations.lisp", "(limits :{} …)"),
)
NOTATION_NAMES = tuple(notation.name for notation in TABLE)
LIMIT_FORMS: dict[str, str] = {notation.name: notation.limit for notation in TABLE if notation.limit}
NOTATION_BY_SUFFIX = {suffix: notation.name for notation in TABLE for suffix in notation.suffixes}
NOTATION_BY_FIRST_CHARACTER = {
    character: notation.name for notation in TABLE for character in notation.first_characters
}
