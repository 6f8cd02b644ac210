"""The trigger files of a project: `.nerve/triggers/NAME.yaml` or `.json`."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from nerve.core.triggers import Trigger, TriggerReader
from nerve.lazy_dataclass import dataclass
from nerve.project.discovery import explain_open_error, list_project_files
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text.json_reader import parse_located_json
from nerve.text.source import InvalidDefinition, Position, Problem
from nerve.text.yaml_reader import load_yaml

TRIGGERS_FOLDER = ".nerve/triggers"
TRIGGER_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(slots=True)
class DiscoveredTriggers:
    """The triggers of a project by name, and the problems of their files."""

    triggers: dict[str, Trigger] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def discover_triggers(project: Path) -> DiscoveredTriggers:
    """Return the triggers in the files of a project."""
    found = DiscoveredTriggers()
    for path in list_project_files(project, project / TRIGGERS_FOLDER, TRIGGER_SUFFIXES, found.problems):
        shown = f"{TRIGGERS_FOLDER}/{path.name}"
        try:
            trigger = read_trigger_text(read_file_inside(project, path), shown)
        except InvalidDefinition as error:
            found.problems += error.problems
            continue
        except (OSError, FileRefused) as error:
            found.problems.append(explain_open_error(Path(shown), error))
            continue
        if (earlier := found.triggers.get(trigger.name)) is not None:
            message = f"The trigger '{trigger.name}' is already defined in {earlier.source}"
            found.problems.append(Problem(shown, Position(), message, "Rename one of them, or remove it."))
            continue
        found.triggers[trigger.name] = trigger
    return found


def read_trigger_text(text: str, file: str) -> Trigger:
    """Return the trigger of a file; raises `InvalidDefinition` with every problem and its position."""
    is_json = file.endswith(".json")
    data = parse_located_json(text, file) if is_json else load_yaml(text, file)
    return TriggerReader(file).read(Path(file).stem, data, file)
