"""The Python API reference: it has every public name, and the generator can show each of them."""

import importlib
import inspect
import re
from enum import EnumType
from pkgutil import resolve_name

import pytest

from docs.pages import ROOT, page

PAGE = page("docs/reference/python.md")
LISTED = re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE)
MODULES = ["nerve", "nerve.core.nodes", "nerve.agents", "nerve.client", "nerve.testing"]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    public = importlib.import_module(module).__all__
    elsewhere = {name.rpartition(".")[2] for name in LISTED}
    own = {name for name in public if f"{module}.{name}" in LISTED}
    assert set(public) - own <= (elsewhere if module == "nerve.core.nodes" else set())


def test_every_error_is_in_the_reference() -> None:
    errors = importlib.import_module("nerve.errors")
    own = {name for name, value in vars(errors).items() if getattr(value, "__module__", "") == "nerve.errors"}
    assert {f"nerve.errors.{name}" for name in own if inspect.isclass(getattr(errors, name))} <= set(LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_every_name_of_the_reference_exists_and_its_parameters_have_types(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    value = resolve_name(f"{module}:{attribute}")
    function = value.__init__ if inspect.isclass(value) else value
    if (
        not inspect.isfunction(function)
        or isinstance(value, EnumType)
        or getattr(value, "_is_protocol", False)
    ):
        return  # a type alias, or a constructor that is not ours
    for parameter in list(inspect.signature(function).parameters.values())[inspect.isclass(value) :]:
        assert parameter.annotation is not inspect.Parameter.empty, (name, parameter.name)


def test_a_name_is_listed_once() -> None:
    assert len(LISTED) == len(set(LISTED))


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    shown = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(shown) == sorted(pages)
