"""`nerve init` and `nerve new`: create a project or a workflow file."""

from __future__ import annotations

import contextlib
import json as json_text
import sys
from pathlib import Path
from typing import Annotated

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag, Parameter
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
    folder: Annotated[
        Path, Parameter(name="FOLDER", help="Created if missing. Default: the current folder.")
    ] = Path(),
    /,
    *,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Create a project: a configuration, an example workflow and its prompt, ready to run.

    Existing files are not changed.

    Parameters
    ----------
    json
        Print one JSON object with the created files.
    quiet
        Print only results and errors.
    """
    created = [name for name, text in PROJECT_FILES.items() if write_new_file(folder / name, text)]
    if ".nerve/config.json" in created:  # an existing configuration may come from another user
        with contextlib.suppress(OSError):
            add_trusted(folder)
    if json:
        print(json_text.dumps({"folder": str(folder), "written": created}))
    else:
        print("\n".join(str(folder / name) for name in created) or "The project already exists.")
    if not quiet:
        cd_prefix = "" if folder == Path() else f"cd {folder} && "
        print(f"Run it: {cd_prefix}nerve run greet Ann", file=sys.stderr)
    return COMPLETED


def new_command(
    name: Annotated[str, Parameter(name="NAME", help="Name of the workflow.")],
    /,
    *,
    to: NotationName = "yaml",
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Create a workflow file from a template in .nerve/workflows.

    Parameters
    ----------
    to
        The notation of the file.
    json
        Print one JSON object with the created file.
    quiet
        Print only results and errors.
    """
    try:
        check_file_name(name)
    except FileRefused as error:
        raise UsageError(f"Invalid workflow name '{name[:80]}': {error}.") from None
    file = Path(".nerve/workflows") / f"{name}{get_notation(to).suffixes[0]}"
    if not write_new_file(file, get_notation(to).starter_text(name)):
        raise UsageError(f"{file} already exists.")
    print(json_text.dumps({"file": str(file)}) if json else file)
    if not quiet:
        print(f"Check it: nerve check {name}", file=sys.stderr)
    return COMPLETED


def write_new_file(file: Path, text: str) -> bool:
    """Create a file; return False if it already exists."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True
