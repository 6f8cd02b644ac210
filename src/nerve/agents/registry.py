"""The providers there are, by name; listing them imports none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from nerve.agents.port import Provider
from nerve.errors import NerveError

GROUP = "nerve.providers"
"""A package offers providers under this group of entry points: name = "module:factory"."""


class UnknownProvider(NerveError):
    """No installed package offers a provider of that name, or it does not take the settings."""


def names() -> list[str]:
    """The names of all providers that installed packages offer."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def make(name: str, settings: Mapping[str, Any] | None = None) -> Provider:
    """The provider of that name; `settings` are what its factory takes.

    The setting `kind` names the provider to use, if it is another: `make("gemini", {"kind": "acp", …})`.
    """
    given = dict(settings or {})
    kind = given.pop("kind", name)
    factory = _factory(kind)
    _check(kind, factory, given)
    try:
        provider: Provider = factory(**given)
    except (TypeError, ValueError) as error:
        raise UnknownProvider(f"the provider '{kind}' does not take its settings: {error}") from error
    if kind != name:
        provider.name = name
    return provider


def _factory(kind: str) -> Callable[..., Provider]:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if kind not in found:
        known = ", ".join(sorted(found)) or "none"
        raise UnknownProvider(f"there is no provider '{kind}'; there are: {known}{_near(kind, found)}")
    return _load(found[kind])


def _load(point: EntryPoint) -> Callable[..., Provider]:
    try:
        factory: Callable[..., Provider] = point.load()
    except (ImportError, AttributeError) as error:
        raise UnknownProvider(
            f"the provider '{point.name}' ({point.value}) does not load: {error}"
        ) from error
    return factory


def _check(kind: str, factory: Callable[..., Provider], given: Mapping[str, Any]) -> None:
    """Say which setting is wrong, instead of the TypeError of a call."""
    takes = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes):
        return
    known = {parameter.name: parameter for parameter in takes}
    for name in given:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UnknownProvider(
                f"the provider '{kind}' has no setting '{name}'; it has: {listed}{_near(name, known)}"
            )
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in given:
            raise UnknownProvider(f"the provider '{kind}' needs the setting '{name}'")


def _near(name: str, known: Mapping[str, Any]) -> str:
    from nerve.core.suggest import suggest

    return suggest(name, known)
