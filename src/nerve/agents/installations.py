"""What the providers need on this machine: their programs and libraries, found without starting any."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from nerve.agents import registry
from nerve.agents.provider import Unavailable
from nerve.lazy_dataclass import dataclass

BUILTIN_PROVIDERS = ("acp", "claude", "codex", "command", "llm", "scripted")
LIBRARIES = {"acp": ("acp", "agent-client-protocol"), "llm": ("pydantic_ai", "pydantic-ai-slim")}
"""The module and the package that a provider needs."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A provider, and the program or library that it needs."""

    provider: str
    found: str | None
    """The path of the program, or the version of the library; None if it is not installed."""
    fix: str = ""
    """How to install it."""


def find_installations() -> Iterator[Installation]:
    """Yield what is installed for each provider that needs something, and those of other packages."""
    from nerve.agents.claude import provider as claude
    from nerve.agents.codex import executable as codex

    yield Installation("claude", claude.find_program(), claude.NOT_INSTALLED)
    try:
        yield Installation("codex", codex.find_executable(None))
    except Unavailable as error:
        yield Installation("codex", None, str(error))
    for name, (module, package) in LIBRARIES.items():
        fix = f"pip install '.[{name}]' in the clone of Nerve"
        yield Installation(name, find_package_version(package) if find_spec(module) else None, fix)
    for name in registry.installed_provider_names():
        if name not in BUILTIN_PROVIDERS:
            yield Installation(name, "provided by an installed package")


def find_package_version(package: str) -> str:
    """Return the version of an installed package, such as `agent-client-protocol 0.12.1`."""
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:  # a module without package data
        return "installed"
