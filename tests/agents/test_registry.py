"""Providers by name: offered by installed packages, and loaded on creation."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.agents.provider import Unavailable
from nerve.agents.registry import (
    BUILT_IN_PROVIDERS,
    ENTRY_POINT_GROUP,
    UnknownProvider,
    create_provider,
    installed_provider_names,
)

ROOT = Path(__file__).parent.parent.parent
SOURCE = """
from nerve.agents.provider import Capabilities

class Heron:
    name = "heron"
    capabilities = Capabilities()
    def __init__(self, feathers, colour="grey"):
        self.feathers, self.colour = feathers, colour
    def query(self, prompt, cwd, resume, options):
        raise NotImplementedError

def stork(**settings):
    bird = Heron(settings)
    bird.name = "stork"
    return bird
"""
POINTS = """[nerve.providers]
heron = heron_provider:Heron
stork = heron_provider:stork
gone = no_such_module:Provider
wrong = heron_provider:NoSuchName
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an installed package that offers providers."""
    info = tmp_path / "heron_provider-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heron-provider\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / "heron_provider.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "heron_provider", raising=False)
    return tmp_path


def test_listing_finds_installed_providers_without_importing_them(package: Path) -> None:
    assert {"heron", "stork", "gone", "wrong"} <= set(installed_provider_names())
    assert installed_provider_names() == sorted(installed_provider_names())
    assert "heron_provider" not in sys.modules


def test_listing_does_not_import_the_built_in_providers() -> None:
    code = (
        "import sys, json; from nerve.agents.registry import installed_provider_names as names; names();"
        "print(json.dumps([m for m in sys.modules if m.startswith('nerve')]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert set(json.loads(done.stdout)) == {"nerve", "nerve.agents", "nerve.agents.registry", "nerve.errors"}


def test_every_built_in_provider_is_registered_and_loads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["nerve.providers"]
    assert {"acp", "claude", "codex", "command", "llm", "scripted"} <= set(points)
    for name, value in points.items():
        module, _, factory = value.partition(":")
        assert getattr(importlib.import_module(module), factory).__name__.lower() == f"{name}provider"


def test_a_provider_is_created_with_its_settings(package: Path) -> None:
    bird: Any = create_provider("heron", {"feathers": 7})
    assert (bird.name, bird.feathers, bird.colour) == ("heron", 7, "grey")


def test_a_provider_may_have_a_custom_name(package: Path) -> None:
    bird: Any = create_provider("egret", {"kind": "heron", "feathers": 7, "colour": "white"})
    assert (bird.name, bird.colour) == ("egret", "white")


def test_a_factory_with_keyword_arguments_receives_all_settings(package: Path) -> None:
    bird: Any = create_provider("stork", {"nest": "high"})
    assert bird.feathers == {"nest": "high"}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("herron", {}, r"Unknown provider 'herron'\. Did you mean 'heron'\? Available: "),
        ("egret", {"kind": "stok"}, r"Unknown provider 'stok'\. Did you mean 'stork'\?"),
        (
            "heron",
            {"feathers": 1, "color": "red"},
            r"Unknown setting 'color' of provider 'heron'\. Did you mean 'colour'\? Available: ",
        ),
        ("heron", {}, "requires the setting 'feathers'"),
        ("robot", {"kind": "scripted"}, "requires the setting 'answers'"),
        (
            "robot",
            {"kind": "scripted", "answers": "yes"},
            "Invalid settings for provider 'scripted': answers must be a list",
        ),
        (
            "robot",
            {"kind": "scripted", "answers": {"(": "yes"}},
            r"Invalid settings for provider 'scripted': '\(' is not a valid",
        ),
        ("gone", {}, "Cannot load provider .*: No module named 'no_such_module'"),
        ("wrong", {}, "Cannot load provider .*NoSuchName"),
    ],
)
def test_invalid_providers_and_settings_are_reported(
    package: Path, name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnknownProvider, match=message):
        create_provider(name, settings)


def test_a_missing_program_of_a_provider_is_reported_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("nerve.agents.claude.provider.find_program", lambda: None)
    monkeypatch.setattr("nerve.agents.codex.executable.bundled_executable", lambda: None)
    for name in ("claude", "codex"):
        with pytest.raises(Unavailable, match="is not installed: pip install"):
            Session(project=tmp_path).provider(name)


def test_the_built_in_providers_are_those_that_the_package_declares() -> None:
    declared = distribution("nerve").entry_points.select(group=ENTRY_POINT_GROUP)
    assert {point.name for point in declared} == BUILT_IN_PROVIDERS
