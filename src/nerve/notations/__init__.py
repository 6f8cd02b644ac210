"""Notations: the file formats of workflows, all parsed into one spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nerve.core.notation_table import NOTATION_BY_FIRST_CHARACTER, TABLE, NotationInfo
from nerve.text.source import Document, InvalidDefinition, Position, Problem

MAX_FILE_BYTES = 1024 * 1024
"""Maximum size of a workflow file."""


class Notation(NotationInfo):
    """A notation whose module is imported on first use."""

    __slots__ = ()

    def read(self, text: str, file: str = "<text>") -> Document:
        """Parse a document; raises `InvalidDefinition` with every problem, or if it is another notation."""
        reader: Callable[[str, str], Document] = import_module(self.module).read_document
        try:
            return reader(text, file)
        except InvalidDefinition:
            other = sniff_notation(text)
            if other is None or other is self or (other.name, self.name) == ("json", "yaml"):
                raise
            message = f"This looks like {other.name}, but is parsed as {self.name}"
            fix = f"Give the file the suffix {other.suffixes[0]}, or fix its first line."
            raise InvalidDefinition([Problem(file, Position(), message, fix)]) from None

    def write(self, data: Mapping[str, Any]) -> str:
        """Write the spec itself, the full form, in this notation."""
        writer: Callable[[Mapping[str, Any]], str] = import_module(self.module).write_document
        return writer(data)

    def starter_text(self, name: str) -> str:
        """Return a small example workflow with a name."""
        text: str = import_module(self.module).STARTER_TEXT
        return text.replace("NAME", name)


NOTATIONS: dict[str, Notation] = {
    each.name: Notation(each.name, each.suffixes, each.first_characters, each.module) for each in TABLE
}
SUFFIXES = {suffix: notation for notation in NOTATIONS.values() for suffix in notation.suffixes}


def get_notation(notation: str) -> Notation:
    if notation not in NOTATIONS:
        raise ValueError(f"Unknown notation '{notation}'. Available: {', '.join(NOTATIONS)}")
    return NOTATIONS[notation]


def read_source(text: str, file: str = "<text>", notation: str | None = None) -> Document:
    """Parse a workflow; without a notation, detect it from the file suffix or the text."""
    by_suffix = SUFFIXES.get(Path(file).suffix.lower())
    detected = by_suffix or sniff_notation(text) or NOTATIONS["yaml"]
    return (get_notation(notation) if notation else detected).read(text, file)


def sniff_notation(text: str) -> Notation | None:
    """Return the notation that the first character of a text implies, or None."""
    name = NOTATION_BY_FIRST_CHARACTER.get(text.lstrip("\ufeff \t\r\n")[:1])
    return NOTATIONS[name] if name else None


def open_document(
    source: str | os.PathLike[str], project: Path, notation: str | None = None
) -> tuple[Document, str]:
    """Parse a file or a text with its prompt files; return it and the name of its project folder."""
    from nerve.notations.yaml_prompts import attach_prompts
    from nerve.project.paths import PROJECT_FOLDER_NAMES

    path = as_path(source)
    if path is None:
        document = read_source(str(source), notation=notation)
        document.warnings += attach_prompts(document, project, project)
        return document, ""
    document = read_source(read_notation_file(path), str(path), notation)
    document.warnings += attach_prompts(document)
    folder = next((part for part in reversed(path.absolute().parts) if part in PROJECT_FOLDER_NAMES), "")
    return document, folder


def definition_in(path: Path) -> dict[str, Any]:
    """Return the definition of a workflow file for another process: its text and its prompts."""
    from nerve.notations.yaml_prompts import prompt_texts

    document, _ = open_document(path, Path())
    definition = {"source": document.text, "notation": document.notation, "file": str(path)}
    return {**definition, "prompts": prompt_texts(document)}


def as_path(source: str | os.PathLike[str]) -> Path | None:
    """Return the path that a source names, or None if it is the text of a workflow."""
    if not isinstance(source, str):
        return Path(source)
    looks_like_path = (
        "\n" not in source and len(source) < 4096 and source.lstrip()[:1] not in NOTATION_BY_FIRST_CHARACTER
    )
    return (
        Path(source)
        if looks_like_path and (Path(source).suffix.lower() in SUFFIXES or os.path.exists(source))
        else None
    )


def read_notation_file(path: Path) -> str:
    """Return the text of a file; raises `InvalidDefinition` if it cannot be read."""
    from nerve.project.discovery import explain_open_error
    from nerve.project.safe_files import FileRefused, read_user_file

    try:
        return read_user_file(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        raise InvalidDefinition(
            [Problem(str(path), Position(), "File not found", "Check the path.")]
        ) from None
    except (OSError, FileRefused) as error:
        raise InvalidDefinition([explain_open_error(path, error)]) from None
