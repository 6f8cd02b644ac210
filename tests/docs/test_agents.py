"""The agents page: its tables match the code, and its files can be read."""

import inspect
import re
from dataclasses import fields
from importlib.metadata import entry_points

import pytest

from docs.pages import FENCE, page, section
from nerve import Session
from nerve.agents import AgentNode, Capabilities
from nerve.agents.provider import TurnUsage
from nerve.agents.registry import ENTRY_POINT_GROUP, create_provider
from nerve.agents.turn_usage import add_usage, usage_entry
from nerve.core.usage_ledger import COST_SOURCES
from nerve.project.config import read_config
from nerve.testing import ScriptedProvider

TEXT = page("docs/guides/agents.md")
BUDGETS = page("docs/guides/budgets.md")
CONFIGURATION = page("docs/reference/configuration.md")
PROVIDERS = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
NEEDED = {"acp": {"command": ["agent"]}, "command": {"argv": ["agent"]}, "scripted": {"answers": []}}
CAPABILITIES = [
    name
    for name in (field.name for field in fields(Capabilities))
    if isinstance(getattr(Capabilities(), name), bool)
    and name not in ("any_settings", "has_tools", "reads_on_its_own")
]
HONOURED = {"effort": 1, "hooks": 2, "modes": 3, "instructions": 4}


def rows(title: str, text: str = TEXT) -> list[list[str]]:
    lines = [line for line in section(text, title).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not set(row[0]) <= {"-"}]


def fenced(title: str, kind: str, text: str = TEXT) -> str:
    return next(fence[2] for fence in FENCE.finditer(section(text, title)) if fence[1] == kind)


def test_every_provider_is_listed_with_its_extra() -> None:
    listed = {row[0].strip("`"): row[2] for row in rows("Providers")[1:]}
    assert listed.keys() == PROVIDERS.keys()
    plain = {"command": "none", "scripted": "none"}
    assert {name: f"`[{name}]`" for name in listed} | plain == listed


def test_the_table_of_capabilities_matches_the_classes() -> None:
    head, *listed_rows = rows("What each can do")
    assert head == ["provider", *CAPABILITIES]
    made = {name: create_provider(name, NEEDED.get(name)) for name in PROVIDERS}
    can = {
        f"`{name}`": ["yes" if getattr(provider.capabilities, each) else "no" for each in CAPABILITIES]
        for name, provider in made.items()
    }
    assert {row[0]: row[1:] for row in listed_rows} == can


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_the_table_of_settings_matches_the_classes(name: str) -> None:
    [row] = [row for row in rows("The world of an agent") if row[0] == f"`{name}`"]
    able = create_provider(name, NEEDED.get(name)).capabilities
    for field, column in HONOURED.items():
        assert tuple(re.findall(r"`([\w./]+)`", row[column])) == getattr(able, field)


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_every_setting_of_a_provider_is_listed(name: str) -> None:
    [listed_rows] = [row[1] for row in rows("Providers", CONFIGURATION)[1:] if row[0] == f"`{name}`"]
    named = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", listed_rows))
    assert named == list(inspect.signature(PROVIDERS[name].load()).parameters)


def test_the_configuration_example_creates_its_providers() -> None:
    config = read_config(fenced("Providers", "json", CONFIGURATION))
    made = {name: create_provider(name, settings) for name, settings in config.providers.items()}
    assert {name: provider.name for name, provider in made.items()} == {name: name for name in made}


def test_every_argument_of_the_agent_node_is_listed() -> None:
    named = {name for row in rows("The agent node")[1:] for name in re.findall(r"`(\w+)`", row[0])}
    taken = set(inspect.signature(AgentNode.__init__).parameters) - {"self", "id", "session", "policy"}
    assert named == taken


def test_the_workflow_example_can_be_loaded() -> None:
    session = Session(providers={"claude": ScriptedProvider([])})
    assert session.load(fenced("Permissions", "yaml")).name == "fix"


def test_every_cost_source_is_listed() -> None:
    named = {row[0].strip("`") for row in rows("Usage and cost", BUDGETS)[1:]}
    unknown = usage_entry(TurnUsage(1, 1), "x", None)
    both = add_usage(usage_entry(TurnUsage(1, 1, cost=0.1), "x", None), unknown)
    assert {*COST_SOURCES, unknown["cost_source"], both["cost_source"]} == named
