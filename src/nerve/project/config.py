"""The project configuration in `.nerve/config.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from nerve.core.limits import BUDGET_FIELDS, Limits
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_settings import (
    SETTING_PARSERS,
    AgentSettings,
    parse_model_alias,
    parse_server,
    parse_setting,
)
from nerve.project.safe_files import FileRefused, read_file_inside
from nerve.text.json_reader import parse_located_json
from nerve.text.source import Diagnostics, InvalidDefinition, LocatedList, LocatedMap, Position, Problem

if TYPE_CHECKING:
    from nerve.project.notify_settings import ChannelSettings, NotifySettings
    from nerve.project.sign_in_settings import SignInSettings

CONFIG_FILE = ".nerve/config.json"
EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkflowSettings:
    """Settings of one workflow."""

    enabled: bool = True
    visible_to: tuple[str, ...] | None = None
    """The workflows that may call it; None allows all, an empty tuple allows none."""


@dataclass(frozen=True, slots=True)
class LocatedName:
    """A name and its position in the file."""

    name: str
    position: Position

    def unknown_name_problem(self, names: Iterable[str]) -> Problem:
        """Return the problem of an unknown agent or provider."""
        known = sorted(set(names))
        message = f"Unknown agent or provider '{self.name}'{did_you_mean_hint(self.name, known)}"
        return Problem(CONFIG_FILE, self.position, message, f"Available: {', '.join(known)}.")


@dataclass(frozen=True, slots=True)
class Encryption:
    """Where the keys are that encrypt the store: in a file, or in an environment variable."""

    key_file: str | None = None
    key_env: str | None = None


Placement = Literal["host", "shared", "fresh"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
"""All steps of a run on one machine, on any, or on one in a git worktree of the run."""


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What telemetry sends besides names, times and amounts."""

    content: bool = False
    """Whether inputs and outputs are sent, such as prompts and answers; never from a store with a codec."""


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a project."""

    enabled: bool = True
    workflows_dir: str | None = None
    """An additional workflow folder, relative to the project folder."""
    workflows: Mapping[str, WorkflowSettings] = field(default_factory=lambda: EMPTY_MAPPING)
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: EMPTY_MAPPING)
    """Provider settings, by the names that workflows use."""
    agents: Mapping[str, AgentSettings] = field(default_factory=lambda: EMPTY_MAPPING)
    """Settings of the agents of a provider, by its name; steps and agent files take precedence."""
    mcp: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: EMPTY_MAPPING)
    """MCP servers that settings can name."""
    models: Mapping[str, str | Mapping[str, str]] = field(default_factory=lambda: EMPTY_MAPPING)
    """Aliases of models: a model, or the model of each provider."""
    slots: Mapping[str, int] = field(default_factory=lambda: EMPTY_MAPPING)
    """Maximum number of concurrent agents, by provider."""
    budget: Mapping[str, float] | None = None
    """Daily budget of all runs together."""
    router: LocatedName | None = None
    """The agent or provider that routes messages to workflows; None routes by keywords."""
    max_connections: int = 4096
    """Maximum number of connections to the server; a sixteenth of them is reserved for the Unix socket."""
    encryption: Encryption | None = None
    """How the payloads of the store are encrypted; None stores them readable."""
    telemetry: TelemetrySettings | None = None
    """What telemetry sends; None sends nothing."""
    place: Placement | None = None
    """Where workers of a cluster execute the steps of a run; None is `host`."""
    public_url: str | None = None
    """The address at which people open the web page, for the links in messages."""
    notify: NotifySettings | None = None
    """Which events are sent to whom; None sends nothing."""
    sign_in: SignInSettings | None = None
    """How people sign in to the web page besides with tokens."""
    chat: Mapping[str, ChannelSettings] = field(default_factory=lambda: EMPTY_MAPPING)
    """The chats whose threads are conversations, by name."""

    def is_enabled(self, workflow: str) -> bool:
        return self.enabled and self.settings_of(workflow).enabled

    def refusal(self, workflow: str, caller: str | None = None) -> str:
        """Return why a workflow may not be started or called; an empty string if it may."""
        if not self.is_enabled(workflow):
            return f"workflow '{workflow}' is disabled in {CONFIG_FILE}"
        callers = self.settings_of(workflow).visible_to
        if caller is None or callers is None or caller in callers or caller == workflow:
            return ""
        allowed = f"only to {', '.join(callers)}" if callers else "to no other workflow"
        return f"workflow '{workflow}' is visible {allowed}"

    def settings_of(self, workflow: str) -> WorkflowSettings:
        return self.workflows.get(workflow, DEFAULT_SETTINGS)


DEFAULT_SETTINGS = WorkflowSettings()


def project_config(folder: Path) -> Config:
    """Return the configuration of a project, or the default; raises `InvalidDefinition` if it is invalid."""
    try:
        return read_config(read_file_inside(folder, folder / CONFIG_FILE))
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except (OSError, FileRefused) as error:
        raise InvalidDefinition(
            [Problem(CONFIG_FILE, Position(), f"Cannot read the file: {error}")]
        ) from None


def read_config(text: str, file: str = CONFIG_FILE) -> Config:
    """Parse a configuration; raises `InvalidDefinition` with every problem and its position."""
    return ConfigReader(file).parse(parse_located_json(text, file))


class ConfigReader(Diagnostics):
    """Parses one configuration and collects its problems."""

    def parse(self, source: Any) -> Config:
        values: dict[str, Any] = {}
        for key, value, position in self.known_entries(source, "the configuration", Config.__slots__):
            if key == "enabled":
                values[key] = self.parse_flag(value, position, "enabled")
            elif key == "workflows_dir":
                values[key] = self.parse_folder(value, position)
            else:
                values[key] = getattr(self, key)(value, position)
        self._check_content(source, values)
        self.raise_if_any()
        return Config(**values)

    def _check_content(self, source: Any, values: Mapping[str, Any]) -> None:
        """Report rules that would send what the store has encrypted."""
        if values.get("encryption") is None:
            return
        notify, chats = values.get("notify"), values.get("chat", {})
        sent = {
            "notify": [f"rule {n}" for n, rule in enumerate(notify.rules, 1) if rule.content]
            if notify
            else [],
            "chat": [f"'{name}'" for name, chat in chats.items() if chat.values.get("content")],
        }
        for key, owners in sent.items():
            for owner in owners:
                problem = f"content of {owner} of '{key}' must be false, because the store is encrypted"
                self.add(source.value_positions[key], problem)

    def workflows(self, source: Any, position: Position) -> Mapping[str, WorkflowSettings]:
        entries = self.known_entries(source, "'workflows'", None, position)
        return MappingProxyType(
            {key: self.parse_workflow_settings(key, value, at) for key, value, at in entries}
        )

    def providers(self, source: Any, position: Position) -> Mapping[str, Mapping[str, Any]]:
        entries = self.known_entries(source, "'providers'", None, position)
        for name, value, at in entries:
            self.known_entries(value, f"provider '{name}'", None, at)
        return MappingProxyType({name: value for name, value, _ in entries})

    def agents(self, source: Any, position: Position) -> Mapping[str, AgentSettings]:
        settings: dict[str, AgentSettings] = {}
        for name, value, at in self.known_entries(source, "'agents'", None, position):
            what = f"the agents of '{name}'"
            parsed = {
                key: self.parse_value(partial(parse_setting, key), item, where, what)
                for key, item, where in self.known_entries(value, what, tuple(SETTING_PARSERS), at)
            }
            settings[name] = AgentSettings(**parsed)
        return MappingProxyType(settings)

    def mcp(self, source: Any, position: Position) -> Mapping[str, Mapping[str, Any]]:
        entries = self.known_entries(source, "'mcp'", None, position)
        servers = {
            name: self.parse_value(partial(parse_server, name), value, at, "'mcp'")
            for name, value, at in entries
        }
        return MappingProxyType(servers)

    def models(self, source: Any, position: Position) -> Mapping[str, str | Mapping[str, str]]:
        entries = self.known_entries(source, "'models'", None, position)
        aliases = {
            name: self.parse_value(parse_model_alias, value, at, f"the alias '{name}'")
            for name, value, at in entries
        }
        return MappingProxyType(aliases)

    def parse_value(self, parse: Callable[[Any], Any], value: Any, position: Position, what: str) -> Any:
        """Return a parsed value; report a wrong one and return None."""
        try:
            return parse(value)
        except ValueError as error:
            self.add(position, f"{what[:1].upper()}{what[1:]}: {error}")
            return None

    def slots(self, source: Any, position: Position) -> Mapping[str, int]:
        entries = self.known_entries(source, "'slots'", None, position)
        for name, value, at in entries:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                self.add(at, f"slots of '{name}' must be an integer of at least 1")
        return MappingProxyType({name: value for name, value, _ in entries})

    def budget(self, source: Any, position: Position) -> Mapping[str, float]:
        entries = self.known_entries(source, "'budget'", BUDGET_FIELDS, position)
        for name, value, at in entries:
            try:
                Limits.of({name: value})
            except (TypeError, ValueError):
                self.add(at, f"{name} of the budget must be a non-negative number")
        return MappingProxyType({name: value for name, value, _ in entries})

    def router(self, value: Any, position: Position) -> LocatedName:
        if not isinstance(value, str) or not value.strip():
            self.add(position, "router must be the name of an agent or a provider")
            return LocatedName("", position)
        return LocatedName(value.strip(), position)

    def max_connections(self, value: Any, position: Position) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 16 <= value <= 65_536:
            self.add(position, "max_connections must be an integer from 16 to 65536")
            return 16
        return value

    def place(self, value: Any, position: Position) -> Placement:
        if value not in PLACEMENTS:
            self.add(position, "place must be host, shared or fresh")
            return "host"
        place: Placement = value
        return place

    def encryption(self, source: Any, position: Position) -> Encryption:
        values: dict[str, str] = {}
        for key, value, at in self.known_entries(source, "'encryption'", Encryption.__slots__, position):
            if not isinstance(value, str) or not value.strip():
                self.add(at, f"{key} of the encryption must be a non-empty string")
            else:
                values[key] = value.strip()
        if isinstance(source, LocatedMap) and len(source) != 1:
            fix = 'Write "encryption": {"key_file": "PATH"} or {"key_env": "VARIABLE"}.'
            self.add(position, "'encryption' must have either key_file or key_env", fix)
        return Encryption(**values)

    def telemetry(self, source: Any, position: Position) -> TelemetrySettings | None:
        if isinstance(source, bool):
            return TelemetrySettings() if source else None
        values = {
            key: self.parse_flag(value, at, f"{key} of the telemetry")
            for key, value, at in self.known_entries(
                source, "'telemetry'", TelemetrySettings.__slots__, position
            )
        }
        return TelemetrySettings(**values)

    def public_url(self, value: Any, position: Position) -> str:
        from nerve.project.notify_settings import parse_public_url

        return parse_public_url(self, value, position)

    def notify(self, source: Any, position: Position) -> NotifySettings:
        from nerve.project.notify_settings import NotifySettingsParser

        return NotifySettingsParser(self).parse(source, position)

    def sign_in(self, source: Any, position: Position) -> SignInSettings:
        from nerve.project.sign_in_settings import parse_sign_in

        return parse_sign_in(self, source, position)

    def chat(self, source: Any, position: Position) -> Mapping[str, ChannelSettings]:
        from nerve.project.chat_settings import parse_chats

        return parse_chats(self, source, position)

    def parse_workflow_settings(self, id: str, source: Any, position: Position) -> WorkflowSettings:
        what = f"workflow '{id}'"
        values: dict[str, Any] = {}
        for key, value, at in self.known_entries(source, what, WorkflowSettings.__slots__, position):
            if key == "enabled":
                values[key] = self.parse_flag(value, at, f"enabled of {what}")
            else:
                values[key] = self.parse_names(value, at, what)
        return WorkflowSettings(**values)

    def known_entries(
        self, source: Any, what: str, keys: tuple[str, ...] | None, position: Position | None = None
    ) -> list[tuple[str, Any, Position]]:
        """Return the entries with known keys; report the others."""
        if not isinstance(source, LocatedMap):
            self.add(
                getattr(source, "position", None) or position,
                f"{what[:1].upper()}{what[1:]} must be an object",
            )
            return []
        entries = []
        for key, value in source.items():
            if keys is not None and key not in keys:
                fix = f"Valid keys: {', '.join(keys)}."
                self.add(
                    source.key_positions[key],
                    f"Unknown key '{key}' in {what}{did_you_mean_hint(key, keys)}",
                    fix,
                )
            else:
                entries.append((key, value, source.value_positions[key]))
        return entries

    def parse_flag(self, value: Any, position: Position, what: str) -> bool:
        if not isinstance(value, bool):
            self.add(position, f"{what} must be true or false")
        return value is True

    def parse_folder(self, value: Any, position: Position) -> str:
        """Return a folder name; report one that could be outside the project."""
        if not isinstance(value, str) or not value.strip():
            self.add(position, "workflows_dir must be the name of a folder")
            return ""
        parts = value.replace("\\", "/").split("/")
        if ".." in parts or parts[0] == "" or parts[0].startswith("~") or ":" in parts[0]:
            self.add(position, f"workflows_dir '{value[:80]}' must be a folder inside the project")
        return value

    def parse_names(self, value: Any, position: Position, what: str) -> tuple[str, ...]:
        if not isinstance(value, LocatedList) or not all(isinstance(name, str) for name in value):
            self.add(position, f"visible_to of {what} must be a list of workflows")
            return ()
        return tuple(value)
