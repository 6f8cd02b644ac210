"""`nerve init` and `nerve new`: create a project or a workflow file."""

from __future__ import annotations

import contextlib
import json as json_text
import sys
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag, Parameter
from nerve.core.notation_table import NotationName
from nerve.core.suggest import did_you_mean_hint
from nerve.notations import get_notation
from nerve.project.ownership import add_trusted
from nerve.project.safe_files import FileRefused, check_file_name
from nerve.ready_made import describe_ready_made, read_ready_made, ready_made_names

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
AgentName = Literal["claude", "codex"]
SKILL_FILES: dict[AgentName, str] = {
    "claude": ".claude/skills/nerve/SKILL.md",
    "codex": ".agents/skills/nerve/SKILL.md",
}
"""Where each agent looks for the skills of a project."""
MCP_FILES: dict[AgentName, tuple[str, str, str]] = {
    "claude": (
        ".mcp.json",
        '{\n  "mcpServers": {\n    "nerve": {"command": "nerve", "args": ["mcp"]}\n  }\n}\n',
        "claude mcp add --scope project nerve -- nerve mcp",
    ),
    "codex": (
        ".codex/config.toml",
        '[mcp_servers.nerve]\ncommand = "nerve"\nargs = ["mcp"]\n'
        "startup_timeout_sec = 60\ntool_timeout_sec = 660\n",
        "codex mcp add nerve -- nerve mcp",
    ),
}
"""The file of the project that registers MCP servers, its text, and the command that does the same."""
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
    with_: Annotated[tuple[AgentName, ...], Parameter(name="--with", negative="", show_default=False)] = (),
    mcp: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Create a project: a configuration, an example workflow and its prompt, ready to run.

    Existing files are not changed.

    Parameters
    ----------
    with_
        Also write a skill with which this agent, claude or codex, starts and follows workflows. Repeatable.
        In a project that exists, write nothing else.
    mcp
        Also register `nerve mcp` for the agents that --with names, in a file of the project.
    json
        Print one JSON object with the created files.
    quiet
        Print only results and errors.
    """
    if mcp and not with_:
        raise UsageError("--mcp needs the agents that start the server: --with claude or --with codex.")
    is_new = not (with_ and (folder / ".nerve").is_dir())
    files = (PROJECT_FILES if is_new else {}) | agent_files(with_, mcp)
    created = [name for name, text in files.items() if write_new_file(folder / name, text)]
    kept = [name for name in agent_files(with_, mcp) if name not in created]
    if ".nerve/config.json" in created:  # an existing configuration may come from another user
        with contextlib.suppress(OSError):
            add_trusted(folder)
    if json:
        print(json_text.dumps({"folder": str(folder), "written": created, "kept": kept}))
    else:
        print("\n".join(str(folder / name) for name in created) or "The project already exists.")
    if not quiet:
        cd_prefix = "" if folder == Path() else f"cd {folder} && "
        notes = [f"Run it: {cd_prefix}nerve run greet Ann"] if is_new else []
        notes += [kept_file_note(folder, name) for name in kept]
        notes += [mcp_library_note()] if mcp else []
        print("\n".join(filter(None, notes)), file=sys.stderr)
    return COMPLETED


def agent_files(agents: Collection[AgentName], with_mcp: bool) -> dict[str, str]:
    """Return the files of the project that let these agents use its workflows, by name."""
    skill = resources.files("nerve.cli").joinpath("agent_skill.md").read_text(encoding="utf-8")
    files = {SKILL_FILES[agent]: skill for agent in agents}
    return files | ({name: text for name, text, _ in map(MCP_FILES.__getitem__, agents)} if with_mcp else {})


def kept_file_note(folder: Path, name: str) -> str:
    """Return what the user can do about a file that exists and was not changed."""
    commands = {file: command for file, _, command in MCP_FILES.values()}
    fix = f" Register the server: {commands[name]}" if name in commands else ""
    return f"{folder / name} exists and was not changed.{fix}"


def mcp_library_note() -> str:
    """Return how to install the library that `nerve mcp` needs; empty if it is installed."""
    from importlib.util import find_spec

    fix = "pip install '.[mcp]' in the clone of Nerve"
    return "" if find_spec("mcp") else f"nerve mcp needs a library: {fix}."


def new_command(
    name: Annotated[
        str | None, Parameter(name="NAME", help="Name of the workflow. Default with --from: the same name.")
    ] = None,
    /,
    *,
    to: NotationName | None = None,
    from_: Annotated[
        tuple[str, ...] | None, Parameter(name="--from", consume_multiple=(0, 2), negative="")
    ] = None,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Create a workflow file in .nerve/workflows, from a template or a ready-made workflow.

    Existing files are not changed.

    Parameters
    ----------
    to
        The notation of the template. Default: yaml.
    from_
        Copy this ready-made workflow; NAME may follow it. Without a value: list them.
    json
        Print one JSON object with the created file, or with the list.
    quiet
        Print only results and errors.
    """
    if from_ == ():
        return print_ready_made(json)
    source = from_[0] if from_ else None
    if from_ and len(from_) > 1:
        if name is not None:
            raise UsageError(f"Two names were given, '{name[:80]}' and '{from_[1][:80]}'. Give one.")
        name = from_[1]
    if source is not None:
        check_ready_made_name(source, to)
    elif name is None:
        raise UsageError("The workflow needs a name: nerve new NAME, or nerve new --from READY-MADE.")
    file_name = name or source or ""
    try:
        check_file_name(file_name)
    except FileRefused as error:
        raise UsageError(f"Invalid workflow name '{file_name[:80]}': {error}.") from None
    notation = get_notation(to or "yaml")
    text = notation.starter_text(file_name) if source is None else read_ready_made(source, file_name)
    file = Path(".nerve/workflows") / f"{file_name}{notation.suffixes[0]}"
    if not write_new_file(file, text):
        raise UsageError(f"{file} already exists. Use another name, or edit that file.")
    print(json_text.dumps({"file": str(file)}) if json else file)
    if not quiet:
        print(f"Check it: nerve check {file_name}", file=sys.stderr)
    return COMPLETED


def print_ready_made(as_json: bool) -> int:
    """List the ready-made workflows with their descriptions."""
    descriptions = {name: describe_ready_made(name) for name in ready_made_names()}
    if as_json:
        print(json_text.dumps({"workflows": descriptions}))
        return COMPLETED
    width = max(map(len, descriptions))
    for name, description in descriptions.items():
        print(f"{name:{width}}  {description}")
    return COMPLETED


def check_ready_made_name(name: str, notation: NotationName | None) -> None:
    names = ready_made_names()
    if name not in names:
        hint = did_you_mean_hint(name, names) or "."
        raise UsageError(f"Unknown ready-made workflow '{name[:80]}'{hint} Known: {', '.join(names)}.")
    if notation not in (None, "yaml"):
        raise UsageError(
            f"--from copies a YAML file, so --to {notation} is not possible. "
            f"Run nerve new --from {name}, then nerve convert {name} --to {notation}."
        )


def write_new_file(file: Path, text: str) -> bool:
    """Create a file; return False if it already exists."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True
