"""Documents of Archon, and what they need from their project: its configuration and other workflows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nerve.notations.archon.references import UnreadableReference, translate_template
from nerve.notations.archon.workflow import ArchonReader
from nerve.project.discovery import explain_open_error, list_project_files, subfolders
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text.source import Document, InvalidDefinition, LocatedMap, Position, Problem
from nerve.text.yaml_reader import load_yaml

CONFIG_FILE = Path(".archon", "config.yaml")
WORKFLOW_FOLDER = Path(".archon", "workflows")


def read_archon_document(source: LocatedMap, file: str, text: str) -> Document:
    """Return the document of a workflow of Archon; raises `InvalidDefinition` with every problem."""
    dialect = ArchonDialect(source, file)
    data = dialect.reader.read_spec(source)
    dialect.reader.raise_if_any()
    return Document(data, "yaml", file, text, dialect.reader.notes, dialect=dialect)


class ArchonDialect:
    """The meaning of Archon for one document."""

    name = "archon"

    def __init__(self, source: LocatedMap, file: str) -> None:
        self.source, self.file = source, file
        self.reader = ArchonReader(file)

    @property
    def prompt_folders(self) -> Sequence[str]:
        """The folder with further commands that the configuration names, if it is in the project."""
        folder = self.reader.setting("commands", "folder")
        if not isinstance(folder, str) or not folder.strip() or Path(folder).is_absolute():
            return ()
        return () if ".." in Path(folder).parts else (folder.strip(),)

    def prepare(self, document: Document, project: Path) -> list[Problem]:
        """Read the document again with the configuration and the workflows of the project."""
        problems: list[Problem] = []
        config = read_yaml_map(project, project / CONFIG_FILE, problems) or LocatedMap()
        self.reader = ArchonReader(
            self.file,
            lambda name: find_workflow_source(project, name),
            lambda name: read_json_file(project, name),
            config,
        )
        document.data = self.reader.read_spec(self.source)
        document.warnings[:] = self.reader.notes
        return [*problems, *sorted(self.reader.problems)]

    def translate_prompt(self, node: LocatedMap, text: str, file: str) -> tuple[str, list[Problem]]:
        """Return the text of a command as a template for a node, and the problems in it."""
        scope = self.reader.prompt_scopes.get(id(node))
        if scope is None:
            return text, []
        problems: list[Problem] = []
        scope = replace(
            scope,
            on_warning=lambda message: problems.append(Problem(file, Position(), message, "", "warning")),
        )
        try:
            return translate_template(text, scope, is_prompt=True), problems
        except UnreadableReference as error:
            return text, [Problem(file, Position(), error.message, error.fix)]

    def complete(self, document: Document) -> None:
        """Add the steps that the texts need."""
        self.reader.complete(document)


def find_workflow_source(project: Path, name: str) -> LocatedMap | None:
    """Return the document of a workflow of Archon in the project, by its name."""
    for folder in subfolders(project, project / WORKFLOW_FOLDER):
        for path in list_project_files(project, folder, (".yaml", ".yml"), []):
            source = read_yaml_map(project, path, [])
            if source is not None and source.get("name") == name:
                return source
    return None


def read_json_file(project: Path, name: str) -> Any:
    """Return the value in a JSON file of the project; raises ValueError, or FileNotFoundError."""
    try:
        return json.loads(read_file_inside(project, project / name))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(name) from None
    except (OSError, FileRefused, InvalidDefinition) as error:
        raise ValueError(str(error)) from None


def read_yaml_map(project: Path, path: Path, problems: list[Problem]) -> LocatedMap | None:
    """Return the mapping in a YAML file of the project; None, and a problem, if it cannot be read."""
    try:
        value = load_yaml(read_file_inside(project, path), str(path))
    except FileNotFoundError:
        return None
    except InvalidDefinition as error:
        problems += error.problems
        return None
    except (OSError, FileRefused) as error:
        problems.append(explain_open_error(path, error))
        return None
    return value if isinstance(value, LocatedMap) else None
