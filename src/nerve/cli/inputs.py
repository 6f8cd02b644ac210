"""Inputs from the command line: `--name=value`, typed by what the workflow declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.cli.usage import UsageError
from nerve.commander.core.options import READ, TYPES, anything
from nerve.core.suggest import closest
from nerve.core.workflow.workflow import Workflow
from nerve.spec.workflow import DefinedWorkflow

__all__ = ["LITERAL", "Given", "anything", "given", "params", "value_of"]

OPTIONS = ("answer", "dry_run", "input", "json", "key", "label", "limit", "quiet", "store", "with")
"""Options of `nerve run` and `nerve start`, which a misspelt input may be meant to be."""
LITERAL = "\0"
"""Marks an argument that stood behind `--`; no argument of a process can have it."""


@dataclass(slots=True)
class Given:
    """What the command line says beside its own options."""

    target: str
    input: str | None = None
    pairs: dict[str, str | bool] = field(default_factory=dict)


def given(arguments: Iterable[str], named: Iterable[str] = ()) -> Given:
    """The target, the input, and the pairs; `named` are pairs without their hyphens."""
    texts: list[str] = []
    pairs: dict[str, str | bool] = {}
    for argument in arguments:
        if argument.startswith("--"):
            add(pairs, argument[2:], argument)
        elif argument[:1] == "-" and argument[1:2].isalpha():
            raise UsageError(f"Unknown option: {argument}. What is no option stands behind --.")
        else:
            texts.append(argument.removeprefix(LITERAL))
    for pair in named:
        add(pairs, pair, f"--input {pair}")
    check_text([*texts[1:], *pairs.values()])
    if not texts:
        raise UsageError("name a workflow or a file to run.")
    if len(texts) > 2:
        raise UsageError(f"Unexpected argument: {texts[2]}. Put an input of several words in quotes.")
    return Given(texts[0], texts[1] if len(texts) == 2 else None, pairs)


def check_text(given: Iterable[str | bool]) -> None:
    """Bytes that are no text come from a shell as halves of characters, which no run can be given."""
    try:
        "".join(map(str, given)).encode()
    except UnicodeEncodeError:
        raise UsageError("the input is not valid Unicode: give it as UTF-8.") from None


def add(pairs: dict[str, str | bool], pair: str, shown: str) -> None:
    name, equals, value = pair.partition("=")
    name = name.replace("-", "_")
    if not name.isidentifier():
        raise UsageError(f"{shown} names no input: write --name=value.")
    if name in pairs:
        raise UsageError(f"the input '{name}' is given twice.")
    pairs[name] = value if equals else True


def params(workflow: Workflow, pairs: Mapping[str, str | bool]) -> dict[str, Any]:
    """The parameters of a run, of the declared types; UsageError for one that cannot be."""
    if not isinstance(workflow, DefinedWorkflow):
        return {name: anything(value) for name, value in pairs.items()}
    declared = workflow.spec.inputs
    for name in pairs:
        if name not in declared:
            unknown(workflow, name)
    typed = {name: value_of(name, declared[name].type, value) for name, value in pairs.items()}
    try:
        workflow.check_params(typed)
    except ValueError as error:
        raise UsageError(f"{error}. {inputs_of(workflow)}") from None
    return typed


def unknown(workflow: DefinedWorkflow, name: str) -> None:
    close = suggest_input(name, workflow.spec.inputs)
    stop = "" if close.endswith("?") else "."
    raise UsageError(
        f"workflow '{workflow.name}' has no input or option '{name}'{close}{stop} {inputs_of(workflow)}"
    )


def suggest_input(name: str, declared: Iterable[str]) -> str:
    """Return the end of a sentence that names the closest input or option as it is written."""
    close = closest(name, [*declared, *OPTIONS])
    return f". Did you mean --{close.replace('_', '-')}?" if close else ""


def inputs_of(workflow: DefinedWorkflow) -> str:
    """The declared inputs in one sentence."""
    told = [
        f"--{name.replace('_', '-')} ({input.type}{', required' if input.required else ''})"
        for name, input in workflow.spec.inputs.items()
    ]
    return f"Its inputs: {', '.join(told)}." if told else "It declares no inputs."


def value_of(name: str, type: str, value: str | bool) -> Any:
    """A value of the declared type."""
    if value is True:
        if type in ("boolean", "any"):
            return True
        raise UsageError(f"the input '{name}' needs {TYPES[type]}: write --{name}=value.")
    assert isinstance(value, str)
    try:
        return READ[type](value)
    except ValueError:
        raise UsageError(f"the input '{name}' must be {TYPES[type]}, not '{value}'.") from None
