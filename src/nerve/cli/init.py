"""`nerve init` and `nerve new`: a small project that runs, and one workflow more."""

from __future__ import annotations

import contextlib
import json as json_text
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nerve.cli.context import Flag
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.core.notation_table import NotationName
from nerve.notations import get_notation
from nerve.project.ownership import add_trusted
from nerve.project.safe_files import FileRefused, check_file_name

CONFIG_TEMPLATE = """{
  "providers": {
    "helper": {"kind": "command", "argv": ["cat"]}
  }
}
"""
GREET_WORKFLOW = """# `nerve run greet Ann` runs this. The helper only repeats its prompt. Put an agent in
# its place in .nerve/config.json, or write `provider: claude` here. `nerve doctor` says which agents
# are installed.
name: greet
description: Looks around, says hello, and asks whether that was well said.
body:
  kind: sequence
  steps:
    - {kind: bash, id: look, command: "ls -A"}
    - {kind: prompt, id: hello, file: hello, provider: helper}
    - {kind: gate, id: well, prompt: "Well said?", choices: ["yes", "no"], reject: ["no"]}
    - {kind: transform, expression: "steps.hello.output"}
"""
HELLO_PROMPT = """This is in the folder:

{{ steps.look.output }}

Say hello to {{ input ?? 'the world' }}, and name one thing that is in the folder.
"""
GITIGNORE_TEMPLATE = "/nerve.db*\n/server*\n/private/\n/logs/\n/artifacts/\n"
PROJECT_FILES = {
    ".nerve/config.json": CONFIG_TEMPLATE,
    ".nerve/workflows/greet.yaml": GREET_WORKFLOW,
    ".nerve/steps/hello.md": HELLO_PROMPT,
    ".nerve/.gitignore": GITIGNORE_TEMPLATE,
}


def init_command(
    folder: Annotated[Path, Parameter(name="FOLDER", help="It is made; this one without it.")] = Path(),
    /,
    *,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Make a folder a project: its configuration, one workflow and a prompt, which run as they are.

    What is there already is left as it is.

    Parameters
    ----------
    json
        Print one JSON object with the files that were written.
    quiet
        Say nothing on standard error but errors.
    """
    created = [name for name, text in PROJECT_FILES.items() if write_new_file(folder / name, text)]
    if ".nerve/config.json" in created:  # a configuration that was there may have come from elsewhere
        with contextlib.suppress(OSError):
            add_trusted(folder)
    if json:
        print(json_text.dumps({"folder": str(folder), "written": created}))
    else:
        print("\n".join(str(folder / name) for name in created) or "This is a project already.")
    if not quiet:
        cd_prefix = "" if folder == Path() else f"cd {folder} && "
        print(f"Run it: {cd_prefix}nerve run greet Ann", file=sys.stderr)
    return COMPLETED


def new_command(
    name: Annotated[str, Parameter(name="NAME", help="Of the workflow.")],
    /,
    *,
    to: NotationName = "yaml",
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Write the beginnings of a workflow into .nerve/workflows.

    Parameters
    ----------
    to
        The notation.
    json
        Print one JSON object with the file that was written.
    quiet
        Say nothing on standard error but errors.
    """
    try:
        check_file_name(name)
    except FileRefused as error:
        raise UsageError(f"'{name[:80]}' cannot be the name of a workflow: {error}.") from None
    file = Path(".nerve/workflows") / f"{name}{get_notation(to).suffixes[0]}"
    if not write_new_file(file, get_notation(to).starter_text(name)):
        raise UsageError(f"{file} is there already.")
    print(json_text.dumps({"file": str(file)}) if json else file)
    if not quiet:
        print(f"Check it: nerve check {name}", file=sys.stderr)
    return COMPLETED


def write_new_file(file: Path, text: str) -> bool:
    """Write a file that is not there yet; whether it was not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True
