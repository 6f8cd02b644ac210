"""`nerve init` and `nerve new`: a small project that runs, and one workflow more."""

from __future__ import annotations

import contextlib
import json as json_text
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nerve.cli.common import Flag
from nerve.cli.exits import COMPLETED
from nerve.cli.usage import UsageError
from nerve.notations import named
from nerve.notations.files import Refused, check_name
from nerve.ownership import add_trusted
from nerve.written import NotationName

CONFIG = """{
  "providers": {
    "helper": {"kind": "command", "argv": ["cat"]}
  }
}
"""
GREET = """# `nerve run greet Ann` runs this. The helper only repeats its prompt. Put an agent in its place in
# .nerve/config.json, or write `provider: claude` here. `nerve doctor` says which agents are installed.
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
PROMPT = """This is in the folder:

{{ steps.look.output }}

Say hello to {{ input ?? 'the world' }}, and name one thing that is in the folder.
"""
IGNORED = "/nerve.db*\n/server*\n/private/\n/logs/\n/artifacts/\n"
PROJECT = {
    ".nerve/config.json": CONFIG,
    ".nerve/workflows/greet.yaml": GREET,
    ".nerve/steps/hello.md": PROMPT,
    ".nerve/.gitignore": IGNORED,
}


def init(
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
    written = [name for name, text in PROJECT.items() if put(folder / name, text)]
    if ".nerve/config.json" in written:  # a configuration that was there may have come from elsewhere
        with contextlib.suppress(OSError):
            add_trusted(folder)
    if json:
        print(json_text.dumps({"folder": str(folder), "written": written}))
    else:
        print("\n".join(str(folder / name) for name in written) or "This is a project already.")
    if not quiet:
        there = "" if folder == Path() else f"cd {folder} && "
        print(f"Run it: {there}nerve run greet Ann", file=sys.stderr)
    return COMPLETED


def new(
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
        check_name(name)
    except Refused as error:
        raise UsageError(f"'{name[:80]}' cannot be the name of a workflow: {error}.") from None
    file = Path(".nerve/workflows") / f"{name}{named(to).suffixes[0]}"
    if not put(file, named(to).beginning(name)):
        raise UsageError(f"{file} is there already.")
    print(json_text.dumps({"file": str(file)}) if json else file)
    if not quiet:
        print(f"Check it: nerve check {name}", file=sys.stderr)
    return COMPLETED


def put(file: Path, text: str) -> bool:
    """Write a file that is not there yet; whether it was not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        return False
    return True
