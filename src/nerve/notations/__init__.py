"""Notations: ways to write a workflow down, each read into one spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nerve.spec.source import Document, Place, Problem, Unreadable
from nerve.written import BY_BEGINNING, TABLE, Written

LARGEST = 1024 * 1024
"""Bytes of a file that is read at all."""


class Notation(Written):
    """A notation and what its module does; that is imported when it is needed."""

    __slots__ = ()

    def read(self, text: str, file: str = "<text>") -> Document:
        reader: Callable[[str, str], Document] = import_module(self.module).read
        try:
            return reader(text, file)
        except Unreadable:
            refuse_other(self, text, file)
            raise

    def write(self, data: Mapping[str, Any]) -> str:
        """The full form: the spec itself, written in this syntax."""
        writer: Callable[[Mapping[str, Any]], str] = import_module(self.module).write
        return writer(data)

    def beginning(self, name: str) -> str:
        """A small workflow of this name to begin with."""
        text: str = import_module(self.module).BEGINNING
        return text.replace("NAME", name)


NOTATIONS: dict[str, Notation] = {
    each.name: Notation(each.name, each.suffixes, each.begins, each.module) for each in TABLE
}
SUFFIXES = {suffix: notation for notation in NOTATIONS.values() for suffix in notation.suffixes}


def named(notation: str) -> Notation:
    if notation not in NOTATIONS:
        raise ValueError(f"there is no notation '{notation}'. There are: {', '.join(NOTATIONS)}")
    return NOTATIONS[notation]


def read(text: str, file: str = "<text>", notation: str | None = None) -> Document:
    """Read a workflow; without a notation, by the ending of the file or the look of the text."""
    return (named(notation) if notation else recognised(text, file)).read(text, file)


def recognised(text: str, file: str) -> Notation:
    return SUFFIXES.get(Path(file).suffix.lower()) or looks_like(text) or NOTATIONS["yaml"]


def looks_like(text: str) -> Notation | None:
    """The notation that a text is in by its first character; None if that does not tell."""
    name = BY_BEGINNING.get(text.lstrip("\ufeff \t\r\n")[:1])
    return NOTATIONS[name] if name else None


def refuse_other(notation: Notation, text: str, file: str) -> None:
    """Say of a text that cannot be read that it looks like one in another notation, if it does."""
    other = looks_like(text)
    if other is None or other is notation or (other.name, notation.name) == ("json", "yaml"):
        return
    message = f"this looks like {other.name}, and is read as {notation.name}"
    fix = f"Give the file the ending {other.suffixes[0]}, or mend its beginning."
    raise Unreadable([Problem(file, Place(), message, fix)]) from None


def open_document(
    given: str | os.PathLike[str], project: Path, notation: str | None = None
) -> tuple[Document, str]:
    """Read a file, or a text, with the prompts it names; and the folder of the project it belongs to."""
    from nerve.notations.discovery import FOLDERS
    from nerve.notations.prompts import attach_prompts

    path = as_path(given)
    if path is None:
        document = read(str(given), notation=notation)
        document.notes += attach_prompts(document, project, project)
        return document, ""
    document = read(contents(path), str(path), notation)
    document.notes += attach_prompts(document)
    folder = next((part for part in reversed(path.absolute().parts) if part in FOLDERS), "")
    return document, folder


def definition_in(path: Path) -> dict[str, Any]:
    """What is told of a workflow in a file to define it elsewhere: its text, and those of its prompts."""
    from nerve.notations.prompts import prompt_texts

    document, _ = open_document(path, Path())
    told = {"source": document.text, "notation": document.notation, "file": str(path)}
    return {**told, "prompts": prompt_texts(document)}


def as_path(given: str | os.PathLike[str]) -> Path | None:
    """The file that is meant, or None when it is the text of a workflow."""
    if not isinstance(given, str):
        return Path(given)
    looks = "\n" not in given and len(given) < 4096 and given.lstrip()[:1] not in BY_BEGINNING
    return (
        Path(given) if looks and (Path(given).suffix.lower() in SUFFIXES or os.path.exists(given)) else None
    )


def contents(path: Path) -> str:
    """The text of a file, or one problem that says why there is none."""
    from nerve.notations.discovery import unopened
    from nerve.notations.files import Refused, read_source

    try:
        return read_source(path, LARGEST)
    except FileNotFoundError:
        raise Unreadable([Problem(str(path), Place(), "there is no such file", "Mend the path.")]) from None
    except (OSError, Refused) as error:
        raise Unreadable([unopened(path, error)]) from None
