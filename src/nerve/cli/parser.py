"""The parser of the command line. Each group of commands has one module, which is imported on first use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import cyclopts
from cyclopts import App, Group

from nerve import __version__
from nerve.cli.command_table import (
    APP_HELP,
    CLI_COMMANDS,
    COMMAND_GROUPS,
    NESTED_COMMANDS,
    NESTED_TABLES,
    CommandEntry,
)
from nerve.cli.parameters import Parameter

app = App(
    name="nerve",
    help=APP_HELP,
    help_format="rich",  # Markdown takes long to import
    group_commands=Group("Options", sort_key=len(COMMAND_GROUPS)),
    version=__version__,
)
RUN_ARGUMENTS_USAGE = "TARGET [INPUT] [--name value …] [OPTIONS]"

HELP_GROUPS = {
    name: group
    for position, (title, names) in enumerate(COMMAND_GROUPS.items())
    for group in [Group(title, sort_key=position)]
    for name in names
}
"""Help group of each command."""
COMMAND_ORDER = list(HELP_GROUPS)


def __getattr__(path: str) -> Callable[..., Any]:
    """Import the function of a command, by its module and name, with parameters that cyclopts reads."""
    module, _, name = path.rpartition(".")
    if not module:
        raise AttributeError(f"module '{__name__}' has no attribute '{path}'")
    function: Callable[..., Any] = getattr(import_module(module), name)
    convert_annotations(function)
    return function


def convert_annotations(owner: Any) -> None:
    """Add the parameters of cyclopts to the annotations of a function or class."""
    owner.__annotations__ = {
        name: convert_annotation(annotation)
        for name, annotation in get_type_hints(owner, include_extras=True).items()
    }


def convert_annotation(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        own = [parameter for parameter in metadata if isinstance(parameter, Parameter)]
        return Annotated[kind, *own, *(cyclopts.Parameter(**parameter.settings) for parameter in own)]
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(convert_annotation, get_args(annotation)))]  # noqa: UP007 - a tuple of types
    if isinstance(parameter := getattr(annotation, "options_parameter", None), Parameter):
        convert_annotations(annotation)
        for field in dataclasses.fields(annotation):
            field.type = annotation.__annotations__[field.name]
        cyclopts.Parameter(**parameter.settings)(annotation)
    return annotation


def add_commands(group: App, entries: dict[str, CommandEntry], prefix: str = "") -> None:
    """Add commands that are imported on first use."""
    for name, entry in entries.items():
        usage = None
        group_options: dict[str, Any] = {}
        if name in ("run", "start"):
            usage = f"Usage: nerve {prefix}{name} {RUN_ARGUMENTS_USAGE}"
            group_options["help_flags"] = ()  # their own --help also describes the workflow that they name
        example = f"Example: {entry.example}"
        if not prefix:
            group_options |= {"group": HELP_GROUPS[name], "sort_key": COMMAND_ORDER.index(name)}
        group.command(
            f"{__name__}:{entry.import_path.replace(':', '.')}",
            name=name,
            help=entry.help,
            help_format="markdown",
            help_epilogue=example,
            usage=usage,
            version_flags=(),  # an input of a workflow may have the name version
            **group_options,
        )


add_commands(app, CLI_COMMANDS)
for group_name, entries in NESTED_TABLES.items():
    nested_app = App(
        name=group_name,
        help=NESTED_COMMANDS[group_name],
        version_flags=(),
        group=HELP_GROUPS[group_name],
        sort_key=COMMAND_ORDER.index(group_name),
    )
    add_commands(nested_app, entries, f"{group_name} ")
    app.command(nested_app)
app.command(
    "nerve.cli.install_completion:install_completion_command",
    name="--install-completion",
    help="Install shell completion.",
)
