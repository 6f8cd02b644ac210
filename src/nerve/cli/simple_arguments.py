"""Read the arguments of frequent commands without the parser, whose import takes longer than the command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from nerve.cli.command_table import CLI_COMMANDS
from nerve.cli.parameters import Parameter

SIMPLE_COMMANDS = ("runs", "gates", "check")
"""Commands whose arguments are read here if they are simple."""
READERS: dict[Any, Callable[[str], Any]] = {str: str, str | None: str, Path | None: Path}
LIST_READERS: dict[Any, Callable[[str], Any]] = {tuple[str, ...]: str, tuple[Path, ...]: Path}


def read_simple_command(arguments: list[str]) -> Callable[[], Any] | None:
    """Return the call of a frequent command; None if the parser has to read its arguments.

    Simple arguments are words and known options: `--flag`, `--name value` and `--name=value`. The parser
    reads everything else, such as `--help`, and reports what is wrong with it.
    """
    if not arguments or arguments[0] not in SIMPLE_COMMANDS:
        return None
    module, _, name = CLI_COMMANDS[arguments[0]].import_path.partition(":")
    function = getattr(import_module(module), name)
    options = CommandOptions(function)
    words = iter(arguments[1:])
    if not all(options.read_argument(word, words) for word in words):
        return None
    return options.make_call()


class CommandOptions:
    """The options of a command and the values that the arguments give them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._kinds: dict[str, tuple[str, str, Any]] = {}
        """The owner, field and type of an option; the owner is a parameter with a class of options, or ""."""
        self._values: dict[tuple[str, str], Any] = {}
        self._words: list[str] = []
        self._signature = inspect.signature(function)
        self._hints = get_type_hints(function, include_extras=True)
        for name, hint in self._hints.items():
            if hasattr(hint, "options_parameter"):
                for field, field_hint in get_type_hints(hint, include_extras=True).items():
                    self._add_option(name, field, field_hint)
            elif name in self._signature.parameters:
                self._add_option("", name, hint)

    def _add_option(self, owner: str, field: str, hint: Any) -> None:
        kind, settings = hint, dict[str, Any]()
        if get_origin(hint) is Annotated:
            kind, *metadata = get_args(hint)
            for parameter in metadata:
                settings |= parameter.settings if isinstance(parameter, Parameter) else {}
        if owner or self._signature.parameters[field].kind is inspect.Parameter.KEYWORD_ONLY:
            self._kinds[settings.get("name") or f"--{field.replace('_', '-')}"] = owner, field, kind

    @property
    def _takes_words(self) -> bool:
        kinds = [parameter.kind for parameter in self._signature.parameters.values()]
        return inspect.Parameter.VAR_POSITIONAL in kinds

    def read_argument(self, argument: str, following: Any) -> bool:
        """Read an argument and the value that follows it; return False if it is not simple."""
        if not argument.startswith("-"):
            self._words.append(argument)
            return self._takes_words and bool(argument)
        name, equals, value = argument.partition("=")
        if name not in self._kinds:
            return False
        owner, field, kind = self._kinds[name]
        key = owner, field
        if kind is bool:
            self._values[key] = True
            return not equals
        value = value if equals else next(following, "")
        if not value or value.startswith("-"):
            return False
        if kind in LIST_READERS:
            self._values[key] = (*self._values.get(key, ()), LIST_READERS[kind](value))
            return True
        if kind not in READERS or key in self._values:
            return False
        self._values[key] = READERS[kind](value)
        return True

    def make_call(self) -> Callable[[], Any]:
        """Return the call of the command with the values that were read."""
        keywords: dict[str, Any] = {}
        fields_by_owner: dict[str, dict[str, Any]] = {}
        for (owner, field), value in self._values.items():
            (fields_by_owner.setdefault(owner, {}) if owner else keywords)[field] = value
        for owner, fields in fields_by_owner.items():
            keywords[owner] = self._hints[owner](**fields)
        return partial(self._function, *self._words, **keywords)
