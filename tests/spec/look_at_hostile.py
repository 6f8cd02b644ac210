"""Parse, check, show and convert hostile definitions, and print the observed audit events.

python look_at_hostile.py SEED COUNT PROJECT [misbehave]
"""

import contextlib
import io
import json
import os
import socket
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema  # noqa: F401 - loaded before anybody looks

from nerve.cli import check, convert, show
from nerve.cli.errors import UsageError
from nerve.cli.targets import Project
from nerve.lazy_dataclass import CALLS_WITHOUT_CODE
from nerve.notations import NOTATIONS
from nerve.notations.json_steps import write_steps
from nerve.notations.yaml_prompts import attach_prompts
from nerve.spec.checker import check_document
from nerve.spec.defined_workflow import DefinedWorkflow, slugify  # noqa: F401 - loaded before anybody looks
from nerve.spec.outline import build_outline, format_mermaid
from nerve.spec.validation import plain_form
from nerve.text.source import InvalidDefinition
from spec.hostile import definitions

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HARMLESS = {
    "builtins.id",
    "object.__getattr__",
    "sys._getframe",
    "os.listdir",
    "pathlib.Path.glob",
    "os.scandir",
    "sys._current_frames",
}
"""What looks and touches nothing."""


class Watch:
    """Collects all audit events except reads of project files."""

    def __init__(self, project: Path) -> None:
        self.project = str(project)
        self.on = False
        self.seen: Counter[str] = Counter()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event in HARMLESS:
            return
        if event == "open":
            path, _, flags = arguments
            if not flags & WRITES and self.inside(path):
                return
        self.seen[f"{event} {str(arguments)[:100]}"] += 1

    def inside(self, path: Any) -> bool:
        """Whether a path is in the project, the working directory."""
        return isinstance(path, int) or os.path.abspath(os.fsdecode(path)).startswith(self.project)


def look_at(text: str, notation: str, project: Path) -> bool:
    """Do everything that happens with a definition before it runs."""
    try:
        document = NOTATIONS[notation].read(text, f"x.{notation}")
    except InvalidDefinition as error:
        return not str(error)
    document.warnings += attach_prompts(document, project / ".nerve", project)
    checked = check_document(document)
    [problem.to_dict() for problem in checked.problems]
    if checked.spec is None:
        return False
    build_outline(checked.spec).to_dict()
    format_mermaid(checked.spec)
    data = plain_form(checked.spec)
    write_steps(data)
    for other in NOTATIONS.values():
        with contextlib.suppress(ValueError):
            other.write(data)
    return True


def look_at_files() -> None:
    """Like look_at(), through the commands."""
    for path in sorted(Path(".nerve/workflows").iterdir()):
        for command in (check.check_command, show.show_command, draw, to_lisp):
            with (
                contextlib.suppress(UsageError, InvalidDefinition),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                command(str(path))
    check.check_command()
    Project().discovered  # noqa: B018


def draw(path: str) -> None:
    show.show_command(path, mermaid=True)


def to_lisp(path: str) -> None:
    convert.convert_command(path, to="lisp")


def generate_methods() -> None:
    """Generate the methods of all dataclasses, which their first calls would compile."""
    for module in [module for name, module in sys.modules.items() if name.startswith("nerve.")]:
        for value in vars(module).values():
            if isinstance(value, type) and "__dataclass_fields__" in vars(value):
                for name in (*["__init__"] * (CALLS_WITHOUT_CODE + 1), "__repr__", "__eq__", "__hash__"):
                    with contextlib.suppress(Exception):
                        getattr(value, name)(object.__new__(value))


def misbehave() -> None:
    """Cause side effects that must be detected."""
    exec("1")  # noqa: S102
    Path("written").write_text("")
    Path("/etc/passwd").read_text()
    os.system("true")
    __import__("evil")
    with contextlib.suppress(OSError), socket.socket() as wire:
        wire.connect(("127.0.0.1", 9))


def main(seed: int, count: int, project: Path, *also: str) -> None:
    os.chdir(project)
    sys.path.insert(0, str(project))
    watch = Watch(project)
    sys.addaudithook(watch)
    made = list(definitions(seed, count))
    for number, (notation, text) in enumerate(made[:100]):
        file = project / f".nerve/workflows/{number}.{notation}"
        file.write_text(text, encoding="utf-8", errors="replace")
    shown = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()):
        for round in (made[:200], made):  # the first round completes lazy imports and compilation
            read = sum(look_at(text, notation, project) for notation, text in round)
            look_at_files()
            generate_methods()
            was, watch.on = watch.on, True
            if not was:
                os.write(2, b"watching\n")
    if also:
        misbehave()
    watch.on = False
    print(json.dumps({"read": read, "seen": [event for event, _ in watch.seen.most_common(30)]}), file=shown)


main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
