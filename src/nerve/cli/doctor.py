"""`nerve doctor`: what is there, what is missing, and how to get it."""

from __future__ import annotations

import asyncio
import json as json_text
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from nerve import __version__
from nerve.agents import registry
from nerve.agents.port import Unavailable
from nerve.api import ApiError
from nerve.cli.checking import providers_of, router_of
from nerve.cli.common import Flag
from nerve.cli.exits import COMPLETED, FAILED
from nerve.cli.project import STORE, Project, store_of
from nerve.cli.usage import UsageError, stopped
from nerve.client import SERVER, Client, server_of
from nerve.commander.core.harmless import harmless
from nerve.errors import NerveError, StoreError
from nerve.notations.agents import FoundAgents, discover_agents
from nerve.notations.config import Config
from nerve.ownership import foreign_state, refusal_of
from nerve.spec.source import Unreadable

OURS = ("acp", "claude", "codex", "command", "llm", "scripted")
State = Literal["ok", "missing", "wrong"]
SYMBOLS = {"ok": "✓", "missing": "○", "wrong": "✗"}
KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. What is missing is not needed by everybody; what is wrong is."""

    name: str
    state: State
    told: str
    fix: str = ""

    def line(self) -> str:
        return f"{SYMBOLS[self.state]} {self.name}: {self.told}" + (f"  → {self.fix}" if self.fix else "")


def doctor(*, deep: Flag = False, json: Flag = False, quiet: Flag = False) -> int:
    """Say what is there, what is missing and how to get it; exit code 1 if something is wrong.

    Parameters
    ----------
    deep
        Check the whole store, too: its pages, the hash chain of every journal, indexes and rows of runs.
    json
        Print one JSON object.
    quiet
        Only what is wrong, or that nothing is.
    """
    found = [*machine(), *project(), *trust(), *store(deep), *server(), *providers()]
    wrong = any(each.state == "wrong" for each in found)
    if json:
        print(json_text.dumps({"ok": not wrong, "findings": [asdict(each) for each in found]}))
    else:
        for each in found:
            if not quiet or each.state == "wrong":
                print(harmless(each.line()))
        if quiet and not wrong:
            print("Nothing is wrong.")
    return FAILED if wrong else COMPLETED


def machine() -> Iterator[Finding]:
    enough = sys.version_info >= (3, 11)
    yield Finding(
        "python", "ok" if enough else "wrong", platform.python_version(), "" if enough else "Use 3.11."
    )
    yield Finding("nerve", "ok", __version__)


def project() -> Iterator[Finding]:
    if not Path(".nerve").is_dir():
        yield Finding("project", "missing", "there is no folder .nerve", "nerve init")
    here = Project()
    try:
        config = here.config
    except Unreadable as error:
        for problem in error.problems:
            yield Finding("configuration", "wrong", str(problem))
        return
    yield Finding(
        "configuration", "ok", "as it should be" if Path(".nerve/config.json").is_file() else "none"
    )
    found = here.found
    for problem in found.problems:
        yield Finding("workflows", "wrong", str(problem), "nerve check")
    names = ", ".join(each.name for each in found.workflows)
    yield Finding(
        "workflows", "ok" if names else "missing", names or "none", "" if names else "nerve new NAME"
    )
    yield from agents(config)
    for name, settings in config.providers.items():
        try:
            registry.make(name, settings)
            yield Finding(
                f"provider {name}", "ok", f"set up in the configuration, a {settings.get('kind', name)}"
            )
        except (NerveError, ValueError) as error:
            yield Finding(f"provider {name}", "wrong", str(error), "Put it right in .nerve/config.json.")


def agents(config: Config) -> Iterator[Finding]:
    """The agent files of the project, and what is wrong with them."""
    found = discover_agents(Path())
    for problem in found.problems:
        yield Finding("agents", "wrong", str(problem))
    for agent in found.agents:
        for problem in agent.unknown(providers_of(config)):
            yield Finding(f"agent {agent.name}", "missing", str(problem))
    yield router(config, found)
    if found.agents:
        yield Finding("agents", "ok", ", ".join(agent.name for agent in found.agents))


def router(config: Config, agents: FoundAgents) -> Finding:
    """Who decides which workflow a text asks for."""
    if config.router is None:
        fix = 'Name one in .nerve/config.json: "router": "claude".'
        return Finding("router", "missing", "the words of texts decide, no agent", fix)
    if wrong := router_of(config, agents):
        return Finding("router", "missing", str(replace(wrong[0], severity="error")))
    return Finding("router", "ok", f"the agent '{config.router.name}' decides")


def trust() -> Iterator[Finding]:
    """What this user did not make: nothing of it is used until it is trusted."""
    if brought := foreign_state(Path()):
        yield Finding("trust", "missing", *refusal_of([*brought]))


def store(deep: bool = False) -> Iterator[Finding]:
    try:
        there = store_of().is_file()
    except UsageError as error:
        yield Finding("store", "wrong", stopped(str(error)))
        return
    needed = [each for each in (STORE, STORE.parent) if each.exists()] or [Path()]
    if locked := [each for each in needed if not os.access(each, os.W_OK)]:
        told = f"{locked[0].absolute()} may not be written to by this user"
        yield Finding("store", "wrong", told, "Give this user the right to, or work in another folder.")
        return
    if not there:
        yield Finding("store", "missing", "no runs yet", "It is made by the first run.")
        return
    import apsw

    from nerve.store.migrations import MIGRATIONS, check

    try:
        with apsw.Connection(str(STORE), flags=apsw.SQLITE_OPEN_READONLY) as db:
            check(db, STORE)
            version = int(db.pragma("user_version"))
    except apsw.Error as error:
        yield Finding("store", "wrong", f"{STORE} cannot be read: {error}", "Put a copy of it in its place.")
    except StoreError as error:
        yield Finding("store", "wrong", str(error))
    else:
        size = STORE.stat().st_size / 2**20
        yield Finding("store", "ok", f"{STORE}, version {version} of {len(MIGRATIONS)}, {size:.1f} MB")
        yield from find_losses()
        if deep and version < len(MIGRATIONS):
            told = f"the layout of version {version} cannot be checked in depth"
            yield Finding("store in depth", "missing", told, "Bring it to the newest version: nerve runs")
        elif deep:
            yield from check_store()


def find_losses() -> Iterator[Finding]:
    """What earlier starts found missing from the store."""
    from nerve.store.mark import losses_of, read_losses

    fix = f"Check the runs, then remove {losses_of(STORE)}."
    for loss in read_losses(STORE):
        yield Finding("store", "wrong", str(loss["message"]), fix)


def check_store() -> Iterator[Finding]:
    """Everything in the store, event by event; a server may be at work meanwhile."""
    from nerve.engine.records import compare_row
    from nerve.store.inspection import Inspection

    inspection, damaged = Inspection(STORE, compare_row), False
    for damage in inspection.find_damage():
        damaged = True
        name = "store in depth" if damage.run is None else f"run {damage.run}"
        yield Finding(name, "wrong", damage.message, damage.fix)
    if not damaged:
        told = f"{inspection.runs} runs with {inspection.events} events are as they were written"
        yield Finding("store in depth", "ok", told)


def server() -> Iterator[Finding]:
    where = server_of(Path())
    if where is None:
        left = " (it ended without saying so)" if SERVER.is_file() else ""
        yield Finding("server", "missing", f"not running{left}", "nerve serve")
        return
    try:
        health = asyncio.run(asked())
    except ApiError as error:
        yield Finding("server", "wrong", error.message, error.fix)
    else:
        for run, why in health.items():
            yield Finding("runs", "wrong", f"{run} is held: {why}", f"nerve status {run}")
        yield Finding("server", "ok", f"listens on {where.socket}")


async def asked() -> dict[str, str]:
    client = Client.of_project(timeout=5)
    if client is None:
        raise ApiError("busy", "it has ended just now", "nerve serve")
    async with client:
        return (await client.health()).held


def providers() -> Iterator[Finding]:
    """The agents that can be had, and the programs and libraries they need."""
    from nerve.agents.claude import provider as claude
    from nerve.agents.codex import program as codex

    path = claude.find_program()
    yield Finding(
        "claude", "ok" if path else "missing", path or "not installed", "" if path else claude.MISSING
    )
    try:
        yield Finding("codex", "ok", codex.found(None))
    except Unavailable as error:
        yield Finding("codex", "missing", "not installed", str(error))
    for name, library in (("acp", "acp"), ("llm", "pydantic_ai")):
        there = find_spec(library) is not None
        fix = "" if there else f"pip install 'nerve[{name}]'"
        yield Finding(name, "ok" if there else "missing", "installed" if there else "not installed", fix)
    for vendor, variable in KEYS.items():
        there = bool(os.environ.get(variable))
        told = "set" if there else "not set"
        yield Finding(
            variable, "ok" if there else "missing", told, "" if there else f"needed for llm with {vendor}"
        )
    for name in registry.names():
        if name in OURS:
            continue
        yield Finding(name, "ok", "offered by an installed package")
