"""The settings of an agent: what a step, an agent file and the configuration can say about its world."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any

from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass

PERMISSION_MODES = ("ask", "edits", "all", "read")
PATTERN_LISTS = ("allow", "ask", "deny")
VARIABLE_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A reference to a variable of the environment of Nerve: `${GITHUB_TOKEN}`; `$${X}` is the text `${X}`."""
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
RESERVED_SERVER_NAME = "nerve"
"""The MCP server with the tools of Nerve."""
SERVER_KEYS = ("type", "command", "args", "env", "url", "headers")
SUBAGENT_KEYS = ("description", "prompt", "model", "tools", "denied_tools", "max_turns")
HOOK_KEYS = ("matcher", "command", "response", "timeout")
MODEL_ALIASES = ("small", "large")
"""The aliases of models that every project has; a project adds its own."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of an agent; None leaves a setting to the next place that can set it.

    The places are the step, then its agent (an agent file or an `AgentNode`), then the key `agents` of the
    configuration. The first one that has a setting decides it alone: values are not combined.
    """

    model: str | None = None
    system: str | None = None
    effort: str | None = None
    """How much the model thinks: `low`, `medium`, `high` and so on, as the provider names it."""
    permissions: Mapping[str, Any] | None = None
    env: Mapping[str, str] | None = None
    """Variables of the agent's process; `${NAME}` is replaced when the agent starts."""
    mcp: Mapping[str, Mapping[str, Any]] | tuple[str, ...] | None = None
    """MCP servers by name, or the names of servers of the configuration."""
    skills: bool | tuple[str, ...] | None = None
    """Whether the agent may use the skills of the project, or which."""
    hooks: Mapping[str, tuple[Mapping[str, Any], ...]] | None = None
    """Commands that the agent's program runs at an event, by event."""
    subagents: Mapping[str, Mapping[str, Any]] | None = None
    """Agents that the agent can give tasks to, by name, each with `description` and `prompt`."""
    instructions: bool | None = None
    """Whether the agent reads the instruction files of the project, such as CLAUDE.md and AGENTS.md."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> AgentSettings:
        """Return checked settings; ValueError names the wrong one."""
        settings: dict[str, Any] = {}
        for name, value in values.items():
            if name not in SETTING_PARSERS:
                raise ValueError(
                    f"Unknown setting '{name}' of an agent{did_you_mean_hint(name, SETTING_PARSERS)}"
                )
            if value is not None:
                settings[name] = parse_setting(name, value)
        return cls(**settings)

    def or_else(self, other: AgentSettings) -> AgentSettings:
        """Return these settings, with those that are not set taken from another place."""
        return AgentSettings(
            **{
                field.name: getattr(other if getattr(self, field.name) is None else self, field.name)
                for field in fields(self)
            }
        )

    @property
    def needs_support(self) -> bool:
        """Whether it has a setting that some providers cannot honour, apart from the model."""
        names = ("effort", "mcp", "skills", "hooks", "subagents", "instructions")
        has_mode = self.permissions is not None and self.permissions.get("mode") is not None
        return has_mode or any(getattr(self, name) is not None for name in names)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


EDITING_TOOLS = ("Bash", "Edit", "MultiEdit", "NotebookEdit", "Write", "apply_patch", "edit", "execute")
"""The tools of agents that can change any file."""


def allows_edits(permissions: Mapping[str, Any] | None, tools: Iterable[str] | None) -> bool:
    """Return whether an agent can change files without asking, by its permissions and `tools`."""
    rules = permissions or {}
    denied, mode, otherwise = set(rules.get("deny") or ()), rules.get("mode"), rules.get("otherwise")
    if mode == "read" or {"Edit", "Write"} <= denied or denied & {"*", "apply_patch", "edit"}:
        return False
    if mode in ("edits", "all") or otherwise == "allow":
        return True
    if tools is None and otherwise is None:
        return True  # its program decides
    return any(map(is_editing_tool, (*(tools or ()), *(rules.get("allow") or ()))))


def is_editing_tool(pattern: str) -> bool:
    """Return whether a pattern allows a tool that can change any file; `Bash(git log *)` does not."""
    tool, _, subject = pattern.rstrip(")").partition("(")
    return subject in ("", "*") and any(fnmatchcase(name, tool) for name in EDITING_TOOLS)


def parse_setting(name: str, value: Any) -> Any:
    """Return the checked value of a setting; ValueError with the message, which begins with its name."""
    try:
        return SETTING_PARSERS[name](value)
    except ValueError as error:
        raise ValueError(f"'{name}' {error}") from None


def parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a non-empty string, got {value!r}")
    return value


def parse_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {value!r}")
    return value


def parse_permissions(value: Any) -> dict[str, Any]:
    check_keys(value, (*PATTERN_LISTS, "otherwise", "mode"), "must be a mapping of patterns and a mode")
    for name in PATTERN_LISTS:
        patterns = value.get(name)
        if patterns is not None and not is_text_list(patterns):
            raise ValueError(f"has a wrong {name}: it must be a list of patterns, got {patterns!r}")
    if value.get("otherwise") not in (None, *PATTERN_LISTS):
        raise ValueError(f"has a wrong otherwise: it must be allow, ask or deny, got {value['otherwise']!r}")
    if value.get("mode") not in (None, *PERMISSION_MODES):
        raise ValueError(
            f"has a wrong mode: it must be {join_alternatives(PERMISSION_MODES)}, got {value['mode']!r}"
        )
    if value.get("mode") is not None and value.get("otherwise") is not None:
        raise ValueError("has both mode and otherwise: remove one of them")
    return dict(value)


def parse_environment(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and VARIABLE_NAME.fullmatch(name) and isinstance(text, str)
        for name, text in value.items()
    ):
        raise ValueError(f"must be a mapping of variable names to strings, got {value!r}")
    return dict(value)


def parse_servers(value: Any) -> dict[str, dict[str, Any]] | tuple[str, ...]:
    """Return MCP servers by name, or the names of servers of the configuration."""
    if is_text_list(value):
        return tuple(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a list of server names or a mapping of names to servers, got {value!r}")
    return {name: parse_server(name, server) for name, server in value.items()}


def parse_server(name: Any, server: Any) -> dict[str, Any]:
    """Return a checked MCP server: a program, or the address of one that runs."""
    what = f"server '{name}'"
    if not isinstance(name, str) or not SERVER_NAME.fullmatch(name) or name == RESERVED_SERVER_NAME:
        raise ValueError(
            f"must name servers with letters, digits, '_' and '-', and not '{RESERVED_SERVER_NAME}',"
            f" got {name!r}"
        )
    check_keys(server, SERVER_KEYS, f"must describe {what} by a mapping with command or url")
    if problem := server_problem(server):
        raise ValueError(f"has a wrong {what}: {problem}")
    return dict(server)


def server_problem(server: Mapping[str, Any]) -> str:
    """Return what is wrong in the description of an MCP server; an empty string if nothing is."""
    command, url = server.get("command"), server.get("url")
    if (command is None) == (url is None):
        return "it needs either command or url"
    if not isinstance(url if command is None else command, str) or not (command or url):
        return "command and url must be non-empty strings"
    kind = server.get("type")
    if kind not in ((None, "stdio") if url is None else (None, "http")):
        return f"type must be {'stdio' if url is None else 'http'}, got {kind!r}"
    excess = ("headers",) if url is None else ("args", "env")
    if misplaced := next((key for key in excess if server.get(key) is not None), None):
        return f"{misplaced} has no effect with {'command' if url is None else 'url'}"
    if not is_text_list(server.get("args") or []):
        return f"args must be a list of strings, got {server['args']!r}"
    for key in ("env", "headers"):
        texts = server.get(key) or {}
        if not isinstance(texts, Mapping) or not all(isinstance(text, str) for text in texts.values()):
            return f"{key} must be a mapping of strings, got {server[key]!r}"
    words = [command or "", *(server.get("args") or ())]
    if visible := next((word for word in words if VARIABLE_REFERENCE.search(word)), None):
        return f"{visible!r} would be visible in the process list; put the variable into env"
    return ""


def parse_skills(value: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):  # as in the agent files of other programs
        value = [name.strip() for name in value.split(",")]
    if not is_text_list(value):
        raise ValueError(f"must be true, false or a list of names, got {value!r}")
    return tuple(value)


def parse_hooks(value: Any) -> dict[str, tuple[dict[str, Any], ...]]:
    if not isinstance(value, Mapping) or not all(isinstance(hooks, list | tuple) for hooks in value.values()):
        raise ValueError(f"must be a mapping of events to lists of hooks, got {value!r}")
    return {
        str(event): tuple(
            parse_hook(str(event), hook) for entry in hooks for hook in flatten_hook_entry(str(event), entry)
        )
        for event, hooks in value.items()
    }


def flatten_hook_entry(event: str, entry: Any) -> Iterator[Any]:
    """Yield the hooks of an entry, which may have them under `hooks`, as the settings of Claude Code do."""
    if not isinstance(entry, Mapping) or "hooks" not in entry:
        yield entry
        return
    hooks, rest = entry["hooks"], {key: value for key, value in entry.items() if key != "hooks"}
    if not isinstance(hooks, list | tuple) or not all(isinstance(hook, Mapping) for hook in hooks):
        raise ValueError(f"has wrong hooks of {event}: they must be a list of mappings, got {hooks!r}")
    for hook in hooks:
        if hook.get("type", "command") != "command":
            raise ValueError(f"has a wrong hook of {event}: its type must be command, got {hook['type']!r}")
        yield {**rest, **{key: value for key, value in hook.items() if key != "type"}}


def parse_hook(event: str, hook: Any) -> dict[str, Any]:
    check_keys(hook, HOOK_KEYS, f"must describe each hook of {event} by a mapping with command or response")
    what = f"has a wrong hook of {event}:"
    command, response, timeout = hook.get("command"), hook.get("response"), hook.get("timeout")
    if (command is None) == (response is None):
        raise ValueError(f"{what} it needs either command or response")
    if command is not None and (not isinstance(command, str) or not command.strip()):
        raise ValueError(f"{what} command must be a non-empty string, got {command!r}")
    if response is not None and not isinstance(response, Mapping):
        raise ValueError(f"{what} response must be a mapping, got {response!r}")
    if not isinstance(hook.get("matcher"), str | None):
        raise ValueError(f"{what} matcher must be a string, got {hook['matcher']!r}")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):
        raise ValueError(f"{what} timeout must be a positive number of seconds, got {timeout!r}")
    return dict(hook)


def parse_subagents(value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be a mapping of names to agents, got {value!r}")
    return {name: parse_subagent(name, agent) for name, agent in value.items()}


def parse_subagent(name: Any, agent: Any) -> dict[str, Any]:
    """Return a checked agent that another agent can give tasks to."""
    if not isinstance(name, str) or not SERVER_NAME.fullmatch(name):
        raise ValueError(f"must name agents with letters, digits, '_' and '-', got {name!r}")
    check_keys(agent, SUBAGENT_KEYS, f"must describe '{name}' by a mapping with description and prompt")
    what = f"has a wrong '{name}':"
    for key in ("description", "prompt", "model"):
        text = agent.get(key)
        if (text is not None or key != "model") and not (isinstance(text, str) and text.strip()):
            raise ValueError(f"{what} {key} must be a non-empty string, got {text!r}")
    for key in ("tools", "denied_tools"):
        if agent.get(key) is not None and not is_text_list(agent[key]):
            raise ValueError(f"{what} {key} must be a list of tools, got {agent[key]!r}")
    turns = agent.get("max_turns")
    if turns is not None and (isinstance(turns, bool) or not isinstance(turns, int) or turns < 1):
        raise ValueError(f"{what} max_turns must be an integer of at least 1, got {turns!r}")
    return {key: given for key, given in agent.items() if given is not None}


def check_keys(value: Any, known: Iterable[str], expected: str) -> None:
    """Raise ValueError for a value that is not a mapping with known keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{expected}, got {value!r}")
    if unknown := next((key for key in value if key not in known), None):
        raise ValueError(f"has an unknown key '{unknown}'{did_you_mean_hint(str(unknown), known)}")


def is_text_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) and item.strip() for item in value)


def join_alternatives(words: Iterable[str]) -> str:
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last


SETTING_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "model": parse_text,
    "system": parse_text,
    "effort": parse_text,
    "permissions": parse_permissions,
    "env": parse_environment,
    "mcp": parse_servers,
    "skills": parse_skills,
    "hooks": parse_hooks,
    "subagents": parse_subagents,
    "instructions": parse_flag,
}
STEP_SETTING_KEYS = tuple(key for key in SETTING_PARSERS if key != "model")
"""The settings that every step with an agent can have; only a prompt can have a model."""
PROGRAM_SETTINGS = ("env", "hooks", "mcp")
"""The settings that can make an agent's program execute other programs."""


def parse_model_alias(value: Any) -> str | dict[str, str]:
    """Return the model of an alias: one name, or a name for each provider."""
    if (
        isinstance(value, Mapping)
        and value
        and all(isinstance(model, str) and model.strip() for model in value.values())
    ):
        return {str(provider): model for provider, model in value.items()}
    if isinstance(value, Mapping) or not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a model, or an object of models by provider, got {value!r}")
    return value


def fill_references(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with its `${NAME}` references replaced; ValueError for a variable that is not set."""
    for name in referenced_names(text):
        if name not in environment:
            raise ValueError(f"Environment variable '{name}' is not set. Set it, or remove '${{{name}}}'")
    return VARIABLE_REFERENCE.sub(lambda match: match[0][1:] if match[1] else environment[match[2]], text)


def referenced_names(text: str) -> Iterator[str]:
    return (match[2] for match in VARIABLE_REFERENCE.finditer(text) if not match[1])


def escape_references(text: str) -> str:
    """Return a text whose references are text, because it does not come from the author of the settings."""
    return VARIABLE_REFERENCE.sub(lambda match: "$" + match[0], text)
