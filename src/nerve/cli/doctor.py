"""`nerve doctor`: diagnose the installation and the project."""

from __future__ import annotations

import asyncio
import importlib.util
import json as json_text
import os
import platform
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nerve import __version__
from nerve.agents import registry
from nerve.agents.installations import BUILTIN_PROVIDERS, find_installations
from nerve.api import ApiError
from nerve.cli.check import known_provider_names, unknown_router_warnings
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import STORE_FILE, Flag, find_store_url, project_store_file
from nerve.cli.targets import Project
from nerve.client import Client, find_server
from nerve.client.server_address import SERVER_FILE
from nerve.crypto import NAME_PREFIX, AesGcmCodec, open_project_codec
from nerve.errors import DriverMissing, EngineUnavailable, NerveError, StoreError, StoreFull
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_files import DiscoveredAgents, discover_agents
from nerve.project.config import Config
from nerve.project.engine_url import ENGINE_VARIABLE, engine_url_of_environment, parse_engine_url
from nerve.project.ownership import foreign_state, refusal_of
from nerve.project.store_url import STORE_VARIABLE
from nerve.text import with_full_stop
from nerve.text.source import InvalidDefinition
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.engine.temporal.inspection import SessionReport

FindingState = Literal["ok", "missing", "wrong"]
STATE_SYMBOLS = {"ok": "✓", "missing": "○", "wrong": "✗"}
CONTEXT_PROVIDERS = ("claude", "codex")
"""The providers that need no configuration and read instruction files and skills of a project."""
DEFAULT_SESSION = "default"
"""The session of a project."""
API_KEY_VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check. A missing item is optional; a wrong one needs a fix."""

    name: str
    state: FindingState
    told: str
    fix: str = ""

    def format_line(self) -> str:
        return f"{STATE_SYMBOLS[self.state]} {self.name}: {self.told}" + (
            f"  → {self.fix}" if self.fix else ""
        )


def ok_or_missing(name: str, told: str | None, missing: str, fix: str) -> DoctorFinding:
    """Return the finding about an optional item; without `told`, it is missing."""
    return DoctorFinding(name, "ok", told) if told else DoctorFinding(name, "missing", missing, fix)


def doctor_command(*, deep: Flag = False, json: Flag = False, quiet: Flag = False) -> int:
    """Diagnose the installation and the project. The exit code is 1 if something is wrong.

    Parameters
    ----------
    deep
        Also check the whole store: its pages, the hash chain of every journal, indexes and run rows.
    json
        Print one JSON object.
    quiet
        Print only problems.
    """
    findings = [
        *diagnose_machine(),
        *diagnose_project(),
        *diagnose_trust(),
        *diagnose_store(deep),
        *diagnose_engine(),
        *diagnose_encryption(),
        *diagnose_server(),
        *diagnose_notifications(),
        *diagnose_sign_in(),
        *diagnose_chats(),
        *diagnose_providers(),
    ]
    has_errors = any(finding.state == "wrong" for finding in findings)
    if json:
        print(json_text.dumps({"ok": not has_errors, "findings": [asdict(finding) for finding in findings]}))
    else:
        for finding in findings:
            if not quiet or finding.state == "wrong":
                print(sanitize_text(finding.format_line()))
        if quiet and not has_errors:
            print("No problems found.")
    return FAILED if has_errors else COMPLETED


def diagnose_machine() -> Iterator[DoctorFinding]:
    yield DoctorFinding("python", "ok", platform.python_version())
    yield DoctorFinding("nerve", "ok", __version__)


def diagnose_project() -> Iterator[DoctorFinding]:
    if not Path(".nerve").is_dir():
        yield DoctorFinding("project", "missing", "folder not found: .nerve", "nerve init")
    current = Project()
    try:
        config = current.config
    except InvalidDefinition as error:
        for problem in error.problems:
            yield DoctorFinding("configuration", "wrong", str(problem))
        return
    yield DoctorFinding("configuration", "ok", "valid" if Path(".nerve/config.json").is_file() else "none")
    discovered = current.discovered
    for problem in discovered.problems:
        yield DoctorFinding("workflows", "wrong", str(problem), "nerve check")
    names = ", ".join(workflow.name for workflow in discovered.workflows)
    yield ok_or_missing("workflows", names, "none", "nerve new NAME")
    yield from diagnose_agents(config)
    for name, settings in config.providers.items():
        try:
            registry.create_provider(name, settings)
            yield DoctorFinding(f"provider {name}", "ok", f"configured, kind {settings.get('kind', name)}")
        except (NerveError, ValueError) as error:
            yield DoctorFinding(f"provider {name}", "wrong", str(error), "Fix it in .nerve/config.json.")


def diagnose_agents(config: Config) -> Iterator[DoctorFinding]:
    """Yield findings about the agent files of the project."""
    discovered = discover_agents(Path())
    for problem in discovered.problems:
        yield DoctorFinding("agents", "wrong" if problem.severity == "error" else "missing", str(problem))
    for agent in discovered.agents:
        for problem in agent.unknown_provider_problems(known_provider_names(config)):
            yield DoctorFinding(f"agent {agent.name}", "missing", str(problem))
    yield from diagnose_agent_context(config)
    yield diagnose_router(config, discovered)
    if discovered.agents:
        yield DoctorFinding("agents", "ok", ", ".join(agent.name for agent in discovered.agents))


def diagnose_agent_context(config: Config) -> Iterator[DoctorFinding]:
    """Yield what agents read in the folder of the project: instruction files and skills."""
    from nerve.agents.setting_support import describe_context, describe_unread

    for name in dict.fromkeys((*CONTEXT_PROVIDERS, *config.providers)):
        with suppress(NerveError, ValueError):  # reported with the provider
            provider = registry.create_provider(name, config.providers.get(name))
            if found := describe_context(provider.capabilities, Path()):
                yield DoctorFinding(f"agent {name}", "ok", f"reads {found}")
            elif unread := describe_unread(provider.capabilities, Path()):
                yield DoctorFinding(f"agent {name}", "ok", f"reads none of {unread}")


def diagnose_router(config: Config, agents: DiscoveredAgents) -> DoctorFinding:
    """Return the finding about the router, which selects the workflow for a text."""
    if config.router is None:
        fix = 'Set an agent in .nerve/config.json: "router": "claude".'
        return DoctorFinding("router", "missing", "no agent configured, keywords select the workflow", fix)
    if warnings := unknown_router_warnings(config, agents):
        return DoctorFinding("router", "missing", str(replace(warnings[0], severity="error")))
    return DoctorFinding("router", "ok", f"agent '{config.router.name}' selects the workflow")


def diagnose_trust() -> Iterator[DoctorFinding]:
    """Yield a finding if the project has state that this user did not create and does not trust."""
    if brought := foreign_state(Path()):
        yield DoctorFinding("trust", "missing", *refusal_of([*brought]))


def diagnose_store(deep: bool = False) -> Iterator[DoctorFinding]:
    try:
        if (url := find_store_url(None)) is not None:
            yield from diagnose_postgres(url, deep)
            return
        store_exists = project_store_file().is_file()
    except (DriverMissing, UsageError) as error:
        yield DoctorFinding("store", "wrong", with_full_stop(str(error)))
        return
    paths = [path for path in (STORE_FILE, STORE_FILE.parent) if path.exists()] or [Path()]
    if locked := [path for path in paths if not os.access(path, os.W_OK)]:
        message = f"{locked[0].absolute()} is not writable by this user"
        yield DoctorFinding("store", "wrong", message, "Change its permissions, or use another folder.")
        return
    if not store_exists:
        yield DoctorFinding("store", "missing", "no runs yet", "The first run creates the store.")
        return
    import apsw

    from nerve.store.migrations import MIGRATIONS, check_store_version
    from nerve.store.sqlite_connection import to_store_error

    try:
        with closing(apsw.Connection(str(STORE_FILE), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            check_store_version(db, STORE_FILE)
            version = int(db.pragma("user_version"))
    except apsw.Error as error:
        if isinstance(failure := to_store_error(STORE_FILE, error), StoreFull):
            yield DoctorFinding("store", "wrong", str(failure), failure.fix)
            return
        yield DoctorFinding(
            "store", "wrong", f"cannot read {STORE_FILE}: {error}", "Restore it from a backup."
        )
    except StoreError as error:
        yield DoctorFinding("store", "wrong", str(error))
    else:
        size = STORE_FILE.stat().st_size / 2**20
        yield DoctorFinding(
            "store", "ok", f"{STORE_FILE}, version {version} of {len(MIGRATIONS)}, {size:.1f} MB"
        )
        yield from find_store_losses()
        if deep and version < len(MIGRATIONS):
            message = f"store version {version} is too old for a deep check"
            yield DoctorFinding("store (deep check)", "missing", message, "Migrate the store: nerve runs")
        elif deep:
            yield from check_store_in_depth()


def diagnose_engine() -> Iterator[DoctorFinding]:
    """Check the Temporal cluster that NERVE_ENGINE names."""
    if (url := engine_url_of_environment()) is None:
        return
    try:
        from nerve.engine.temporal.inspection import inspect_cluster

        address, used = parse_engine_url(url), find_used_providers()
        sessions = find_assigned_sessions(str(address))
        providers = used
        with suppress(InvalidDefinition):  # reported with the configuration
            providers = list(dict.fromkeys([*used, *known_provider_names(Project().config)]))
        reports = asyncio.run(inspect_cluster(address, sessions, providers))
    except ImportError as error:
        fix = "Install it: pip install '.[temporal]' in the clone of Nerve"
        yield DoctorFinding("engine", "wrong", f"{url} needs the package temporalio: {error}.", fix)
    except ValueError as error:
        yield DoctorFinding("engine", "wrong", with_full_stop(str(error)), f"Check {ENGINE_VARIABLE}.")
    except EngineUnavailable as error:
        yield DoctorFinding("engine", "wrong", with_full_stop(error.problem), with_full_stop(error.fix))
    else:
        yield DoctorFinding("engine", "ok", str(address))
        for report in reports:
            yield from diagnose_session(report, used)


def diagnose_session(report: SessionReport, used: Collection[str]) -> Iterator[DoctorFinding]:
    """Yield whether a session has workers for everything that it needs, and its stuck runs."""
    of_session = "" if report.session == DEFAULT_SESSION else f" of session '{report.session}'"
    missing = "none has asked for work in the last minutes"
    if (build := report.missing_build) is not None:
        message = f"none of build {build} {missing.removeprefix('none ')}, and it gets all new runs"
        fix = (
            "Start a worker with that code, or give new runs to a newer build (nerve worker --bodies"
            " --promote) or to an older one (temporal worker deployment set-current-version)"
        )
        yield DoctorFinding(f"body workers{of_session}", "wrong", message, fix)
    else:
        bodies = str(report.body_workers) if report.body_workers else ""
        yield ok_or_missing(f"body workers{of_session}", bodies, missing, "nerve worker --bodies")
    counts = [f"{count} for {name}" for name, count in report.leaf_workers.items() if count]
    yield ok_or_missing(f"leaf workers{of_session}", ", ".join(counts), missing, "nerve worker --leaves bash")
    for name in used:
        if counts and not report.leaf_workers[name]:
            fix = f"nerve worker --leaves {name}"
            yield DoctorFinding(f"leaf workers{of_session}", "missing", f"{missing} of {name}", fix)
    for stuck in report.stuck_runs:
        yield DoctorFinding("runs", "wrong", f"{stuck.run} is stuck", stuck.message)


def find_used_providers() -> list[str]:
    """Return the providers that the agents of the project name."""
    agents = discover_agents(Path()).agents
    names = [name for agent in agents for name in (agent.provider, agent.fallback) if name is not None]
    return list(dict.fromkeys(names))


def find_assigned_sessions(engine: str) -> list[str]:
    """Return the sessions that a cluster executes, and the one of the project."""
    owners: list[tuple[str, str]] = []
    with suppress(UsageError, StoreError):  # reported with the store
        if (url := find_store_url(None)) is not None:
            from nerve.store.postgres_inspection import inspect_server

            owners = inspect_server(url).owners
    return list(dict.fromkeys([DEFAULT_SESSION, *(session for session, owner in owners if owner == engine)]))


def diagnose_postgres(url: str, deep: bool) -> Iterator[DoctorFinding]:
    """Check the database that NERVE_STORE names. Nothing is written to it."""
    try:
        from nerve.store.postgres_inspection import inspect_server

        server = inspect_server(url)
    except StoreError as error:
        yield DoctorFinding("store", "wrong", with_full_stop(str(error)), f"Check {STORE_VARIABLE}.")
        return
    if server.version is None:
        yield DoctorFinding(
            "store", "missing", f"{server.address}: no runs yet", "The first run creates the store."
        )
    else:
        message = f"{server.address}, version {server.version} of {server.newest_version}, {server.server}"
        yield DoctorFinding("store", "ok", message)
        owners = ", ".join(f"session '{session}' by {owner}" for session, owner in server.owners)
        yield ok_or_missing("store owner", owners, "no process owns a session", "nerve serve")
        if deep and server.version == server.newest_version:
            yield from check_postgres_in_depth(url)
    if server.unsafe_settings:
        message = f"{server.address} can lose committed runs: {', '.join(server.unsafe_settings)}"
        yield DoctorFinding("store", "wrong", message, "Change the settings of the server.")


def check_postgres_in_depth(url: str) -> Iterator[DoctorFinding]:
    """Check the hash chain of every journal in one snapshot. A server may be running at the same time."""
    from nerve.store.postgres_rows import read_database

    is_damaged = False
    with read_database(url, while_owned=True) as rows:
        for error in rows.find_broken_journals():
            is_damaged = True
            message = f"event {error.seq} is not what was written"
            yield DoctorFinding(f"run {error.run}", "wrong", message, "Restore the database from a backup.")
        if not is_damaged:
            runs, events = rows.count()
            message = f"{runs} runs with {events} events are intact"
            yield DoctorFinding("store (deep check)", "ok", message)


def find_store_losses() -> Iterator[DoctorFinding]:
    """Yield a finding for each data loss that an earlier start recorded."""
    from nerve.store.commit_mark import losses_file, read_losses

    fix = f"Check the runs, then remove {losses_file(STORE_FILE)}."
    for loss in read_losses(STORE_FILE):
        yield DoctorFinding("store", "wrong", str(loss["message"]), fix)


def check_store_in_depth() -> Iterator[DoctorFinding]:
    """Check every event in the store. A server may be running at the same time."""
    from nerve.journal.events import compare_run_row
    from nerve.store.encoded_store import decode_event_row
    from nerve.store.inspection import StoreInspection

    # Without the keys, the hash chain still shows whether the rows are what was written.
    codec, damaged = open_codec(), False
    decode = None if codec is None else partial(decode_event_row, codec)
    inspection = StoreInspection(STORE_FILE, compare_run_row, decode)
    for damage in inspection.find_damage():
        damaged = True
        name = "store (deep check)" if damage.run is None else f"run {damage.run}"
        yield DoctorFinding(name, "wrong", damage.message, damage.fix)
    if not damaged:
        message = f"{inspection.run_count} runs with {inspection.event_count} events are intact"
        if inspection.encoded_count:
            message += f", {inspection.encoded_count} events could not be decrypted"
        yield DoctorFinding("store (deep check)", "ok", message)


def diagnose_encryption() -> Iterator[DoctorFinding]:
    """Yield whether the store is encrypted, with which keys, and whether the project has these keys."""
    stored, codec = read_stored_key_names(), None
    try:
        configured = Project().config.encryption
        if configured is not None:
            codec = open_project_codec(Path(), configured)
    except InvalidDefinition:
        return  # reported with the configuration
    except StoreError as error:
        yield DoctorFinding("encryption", "wrong", str(error))
        return
    known = set() if codec is None else {f"{NAME_PREFIX}{id}" for id in codec.key_ids}
    missing = [name for name in stored if name not in known]
    if codec is not None:
        message = f"new data is encrypted with key '{codec.key_ids[-1]}' of {codec.source}"
        if len(codec.key_ids) > 1:
            message += f", old data readable with {', '.join(codec.key_ids[:-1])}"
        yield DoctorFinding("encryption", "ok", message)
        for name in missing:
            yield DoctorFinding(
                "encryption", "wrong", f"the store has data of {name}", f"Add this key to {codec.source}."
            )
    elif missing:
        fix = "Set `encryption` in .nerve/config.json."
        yield DoctorFinding("encryption", "wrong", f"the store is encrypted ({', '.join(missing)})", fix)
    else:
        yield DoctorFinding("encryption", "missing", "payloads are stored readable")


def open_codec() -> AesGcmCodec | None:
    """Return the codec of the project; None without valid keys."""
    try:
        encryption = Project().config.encryption
        return None if encryption is None else open_project_codec(Path(), encryption)
    except (InvalidDefinition, StoreError):
        return None


def read_stored_key_names() -> list[str]:
    """Return the names under which the store has encrypted data; none if it cannot be read."""
    try:
        if (url := find_store_url(None)) is not None:
            from nerve.store.postgres_inspection import inspect_server

            return list(json_text.loads(inspect_server(url).codecs or "{}"))
    except (UsageError, StoreError):
        return []  # reported with the store
    import apsw

    from nerve.codec import CODECS_PROPERTY
    from nerve.store.statements import SQL

    try:
        db = apsw.Connection(str(STORE_FILE), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return []
    with closing(db):
        try:
            stored = db.execute(SQL["select_property"], (CODECS_PROPERTY,)).get
        except apsw.Error:
            stored = None  # damaged, or of an early version
    return list(json_text.loads(stored or "{}"))


def diagnose_server() -> Iterator[DoctorFinding]:
    endpoint = find_server(Path())
    if endpoint is None:
        suffix = " (the last one did not shut down cleanly)" if SERVER_FILE.is_file() else ""
        yield DoctorFinding("server", "missing", f"not running{suffix}", "nerve serve")
        return
    try:
        health = asyncio.run(fetch_held_runs())
    except ApiError as error:
        yield DoctorFinding("server", "wrong", error.message, error.fix)
    else:
        for run, reason in health.items():
            yield DoctorFinding("runs", "wrong", f"{run} is held: {reason}", f"nerve status {run}")
        yield DoctorFinding("server", "ok", f"listens on {endpoint.socket}")


async def fetch_held_runs() -> dict[str, str]:
    client = Client.of_project(timeout=5)
    if client is None:
        raise ApiError("busy", "The server has just stopped", "nerve serve")
    async with client:
        return (await client.health()).held


def diagnose_notifications() -> Iterator[DoctorFinding]:
    """Yield a finding for each channel, as the environment of this command sees it."""
    from nerve.notifications.channel_table import make_channels

    try:
        config = Project().config
    except InvalidDefinition:
        return  # reported with the configuration
    if config.notify is None:
        return
    for name, channel in make_channels(config.notify, Path(), config.public_url, DEFAULT_SESSION).items():
        fix = f"nerve notify test {name}"
        told = None if (problem := channel.find_problem()) else channel.describe()
        yield ok_or_missing(f"channel {name}", told, problem, fix)
    if config.public_url is None:
        fix = 'Set "public_url" in .nerve/config.json.'
        yield DoctorFinding("notifications", "missing", "messages have no links", fix)


def diagnose_sign_in() -> Iterator[DoctorFinding]:
    """Yield whether people can sign in with the provider of the configuration."""
    try:
        config = Project().config
    except InvalidDefinition:
        return  # reported with the configuration
    if config.sign_in is None or config.sign_in.oidc is None:
        return
    settings = config.sign_in.oidc
    from nerve.notifications.delivery import SecretReader
    from nerve.server.oidc_provider import INSTALL_HINT, OidcProvider, SignInRefused

    if importlib.util.find_spec("authlib") is None:
        yield DoctorFinding("sign-in", "wrong", "the package authlib is missing", f"{INSTALL_HINT}.")
        return
    secrets = SecretReader(Path())
    if problem := secrets.find_problem(settings.client_secret):
        yield DoctorFinding("sign-in", "missing", problem, "Set it where the server runs.")
    try:
        asyncio.run(OidcProvider(settings, secrets).read_metadata())
    except SignInRefused as error:
        yield DoctorFinding("sign-in", "wrong", with_full_stop(str(error)), error.fix)
    else:
        message = f"{settings.issuer} signs in people by their contact '{settings.contact}'"
        yield DoctorFinding("sign-in", "ok", message)


def diagnose_chats() -> Iterator[DoctorFinding]:
    """Yield a finding for each chat, as the environment of this command sees it."""
    from nerve.chat.adapter_table import make_chats

    try:
        config = Project().config
    except InvalidDefinition:
        return  # reported with the configuration
    for name, chat in make_chats(config.chat, Path(), config.public_url, DEFAULT_SESSION).items():
        told = None if (problem := chat.find_problem()) else chat.describe()
        yield ok_or_missing(f"chat {name}", told, problem, "See the variables of the chat: nerve chat")


def diagnose_providers() -> Iterator[DoctorFinding]:
    """Yield findings about the agent providers and the programs, libraries and keys they need."""
    for each in find_installations():
        if each.provider in BUILTIN_PROVIDERS:
            yield ok_or_missing(each.provider, each.found, "not installed", each.fix)
    for vendor, variable in API_KEY_VARIABLES.items():
        value = "set" if os.environ.get(variable) else None
        yield ok_or_missing(variable, value, "not set", f"required for llm with {vendor}")
    for each in find_installations():
        if each.provider not in BUILTIN_PROVIDERS:
            yield DoctorFinding(each.provider, "ok", str(each.found))
