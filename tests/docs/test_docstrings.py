"""Every public name has a docstring."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGES = [
    "nerve",
    "nerve.agents",
    "nerve.api",
    "nerve.commander",
    "nerve.core.nodes",
    "nerve.core.nodes.control",
    "nerve.session",
    "nerve.core.workflow",
    "nerve.dataspace",
    "nerve.errors",
    "nerve.server.handlers.workflow_handler",
    "nerve.testing",
]


def exported(package: str) -> Iterator[Any]:
    """Yield the classes and functions that a package exports, or that a module defines."""
    module = importlib.import_module(package)
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == package
    ]
    for name in getattr(module, "__all__", own):
        value = getattr(module, name)
        if str(getattr(value, "__module__", "")).startswith("nerve"):
            yield value


def is_documented(owner: type, name: str) -> bool:
    """Return whether a member that this project defines has a docstring, its own or an inherited one."""
    member = inspect.getattr_static(owner, name)
    function = (
        getattr(member, "fget", None) or getattr(member, "__func__", None) or getattr(member, "func", member)
    )
    if not inspect.isfunction(function) or not function.__module__.startswith("nerve"):
        return True
    return bool(inspect.getdoc(member if isinstance(member, property) else getattr(owner, name)))


def undocumented(package: str) -> Iterator[str]:
    for value in exported(package):
        if inspect.isclass(value):
            if not value.__dict__.get("__doc__"):
                yield value.__qualname__
            members = [name for name in dir(value) if not name.startswith("_")]
            yield from (f"{value.__qualname__}.{name}" for name in members if not is_documented(value, name))
        elif inspect.isfunction(value) and not value.__doc__:
            yield value.__qualname__


@pytest.mark.requirement("S0-68")
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_class_method_and_property_has_a_docstring(package: str) -> None:
    assert list(undocumented(package)) == []


@pytest.mark.requirement("S0-68")
def test_every_public_method_of_the_client_has_a_docstring() -> None:
    from nerve.client import Client

    assert [
        name for name in dir(Client) if not name.startswith("_") and not is_documented(Client, name)
    ] == []


def test_every_member_of_the_workflow_context_is_explained_in_a_guide() -> None:
    from nerve import WorkflowContext

    guides = "".join(page.read_text() for page in (Path(__file__).parents[2] / "docs/guides").glob("*.md"))
    fields = list(WorkflowContext.__dataclass_fields__)
    members = {name for name in (*dir(WorkflowContext), *fields) if not name.startswith("_")}
    internal = {"execution", "receive_gate_input", "run_step"}
    assert [name for name in sorted(members - internal) if f"ctx.{name}" not in guides] == []
