"""The registry of installed providers, by name; listing them imports none."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from nerve.errors import NerveError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from nerve.agents.provider import Provider

ENTRY_POINT_GROUP = "nerve.providers"
"""The entry point group of providers: name = "module:factory"."""
PROVIDER_ALIASES = {"claude-code": "claude"}
"""Accepted aliases of providers."""
BUILT_IN_PROVIDERS = frozenset({"acp", "claude", "codex", "command", "llm", "scripted"})
"""The providers that Nerve itself offers; finding those of other packages reads their metadata."""
PROVIDERS_WITHOUT_TOOLS = frozenset({"llm"})
"""The providers whose agents have no tools of their own."""
EXTRA_PROVIDERS = ("acp", "claude", "codex", "llm")
"""The providers that an extra of the package installs."""


class UnknownProvider(NerveError):
    """No installed package offers the provider, or the provider rejects its settings."""


def installed_provider_names() -> list[str]:
    """Return the names of all providers that installed packages offer."""
    return sorted({point.name for point in find_entry_points()})


def find_entry_points() -> EntryPoints:
    return read_entry_points(tuple(sys.path))


@cache
def read_entry_points(path: tuple[str, ...]) -> EntryPoints:
    """Return the providers of the packages on a path of modules; reads the metadata of all packages once."""
    from importlib.metadata import entry_points  # takes long to import

    return entry_points(group=ENTRY_POINT_GROUP)


def create_provider(name: str, settings: Mapping[str, Any] | None = None) -> Provider:
    """Create the provider with that name; `settings` are the arguments of its factory.

    The setting `kind` selects the factory if it differs: `create_provider("gemini", {"kind": "acp", …})`.
    """
    arguments = dict(settings or {})
    kind = arguments.pop("kind", name)
    points = {point.name: point for point in find_entry_points()}
    if kind not in points:
        names = ", ".join(sorted(points)) or "none"
        raise UnknownProvider(
            f"Unknown provider '{kind}'{_suggest_name(kind, points) or '.'} Available: {names}"
        )
    try:
        factory: Callable[..., Provider] = points[kind].load()
    except (ImportError, AttributeError) as error:
        raise UnknownProvider(f"Cannot load provider '{kind}' ({points[kind].value}): {error}") from error
    _check_provider_settings(kind, factory, arguments)
    try:
        provider: Provider = factory(**arguments)
    except (TypeError, ValueError) as error:
        raise UnknownProvider(f"Invalid settings for provider '{kind}': {error}") from error
    if kind != name:
        provider.name = name
    return provider


def _check_provider_settings(
    kind: str, factory: Callable[..., Provider], arguments: Mapping[str, Any]
) -> None:
    """Report the wrong setting instead of a TypeError from the call."""
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {parameter.name: parameter for parameter in parameters}
    for name in arguments:
        if name not in known:
            setting_names = ", ".join(known) or "none"
            raise UnknownProvider(
                f"Unknown setting '{name}' of provider '{kind}'{_suggest_name(name, known) or '.'} "
                f"Available: {setting_names}"
            )
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in arguments:
            raise UnknownProvider(f"Provider '{kind}' requires the setting '{name}'")


def _suggest_name(name: str, known: Mapping[str, Any]) -> str:
    from nerve.core.suggest import did_you_mean_hint

    return did_you_mean_hint(name, known)
