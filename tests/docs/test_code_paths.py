"""docs/internals/paths.md: the functions of each path exist and are called in that order."""

import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path

import pytest

from docs import code_paths
from docs.pages import page, section

MAX_STOPS = 12
STOP = re.compile(r"^\d+\. `(nerve[\w.]*):([\w.]+)` ", re.MULTILINE)
TEXT = page("docs/internals/paths.md")
PATHS: dict[str, Callable[[Path], Awaitable[list[str]]]] = {
    "A call": code_paths.record_call,
    "An answer over HTTP": code_paths.record_answer,
    "A YAML file": code_paths.record_file,
    "A streamed token": code_paths.record_token,
    "A recovery": code_paths.record_recovery,
}


def stops(heading: str) -> list[tuple[str, str]]:
    return STOP.findall(section(TEXT, heading))


def test_the_page_has_these_five_paths() -> None:
    assert re.findall(r"^## (.+)$", TEXT, re.MULTILINE) == list(PATHS)


@pytest.mark.parametrize("heading", PATHS)
def test_a_path_has_at_most_twelve_stops_that_exist(heading: str) -> None:
    found = stops(heading)
    assert 5 <= len(found) <= MAX_STOPS
    assert len(found) == len(re.findall(r"^\d+\. ", section(TEXT, heading), re.MULTILINE))
    for module, name in found:
        value = import_module(module)
        for part in name.split("."):
            value = getattr(value, part)


@pytest.mark.parametrize("heading", PATHS)
async def test_the_stops_of_a_path_are_called_in_order(heading: str, tmp_path: Path) -> None:
    calls = iter(await PATHS[heading](tmp_path))
    for module, name in stops(heading):
        assert f"{module}:{name}" in calls, f"{name} is not called after the stops before it"
