"""The settings of an agent in one place: which place sets them, and whether its provider can honour them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.agents.agent_tool import ASK_HUMAN
from nerve.agents.permissions import Permissions
from nerve.agents.provider import Capabilities, Provider, QueryOptions
from nerve.agents.redaction import Redactor
from nerve.agents.registry import PROVIDERS_WITHOUT_TOOLS
from nerve.core.suggest import did_you_mean_hint
from nerve.project.agent_settings import (
    MODEL_ALIASES,
    AgentSettings,
    allows_edits,
    fill_references,
    join_alternatives,
)
from nerve.project.skills import Skill, find_instructions, select_skills

if TYPE_CHECKING:
    from nerve.project.config import Config

NO_CAPABILITIES = Capabilities()
INSTRUCTION_FILES = (
    *("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "AGENTS.override.md", "GEMINI.md"),
)
"""The files with instructions that agents read, each some of them."""
NO_OPTIONS = QueryOptions()


class SettingProblem(NamedTuple):
    """A setting that a provider cannot honour, by its name, with the message and the fix."""

    key: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}".strip()


def resolve_settings(
    provider: str, config: Config | None, step: AgentSettings, agent: AgentSettings | None = None
) -> AgentSettings:
    """Return the settings of a step: its own, then those of its agent, then those of the configuration.

    A model alias becomes the model of the provider, and names of MCP servers become the servers. ValueError
    for an alias or a server that the configuration does not have.
    """
    settings = step if agent is None else step.or_else(agent)
    settings = settings.or_else(defaults_of(provider, config))
    model = resolve_model(settings.model, provider, config)
    return replace(settings, model=model, mcp=resolve_servers(settings.mcp, config))


def defaults_of(provider: str, config: Config | None) -> AgentSettings:
    """Return the settings that the configuration has for the agents of a provider."""
    return AgentSettings() if config is None else config.agents.get(provider, AgentSettings())


def may_edit_files(
    provider: Provider | str, config: Config | None, settings: AgentSettings, tools: Sequence[str] | None
) -> bool:
    """Return whether agents of a provider, or of its name, may edit files without asking."""
    if isinstance(provider, str):
        name = provider
        own = {} if config is None else config.providers.get(name, {})
        has_tools = own.get("kind", name) not in PROVIDERS_WITHOUT_TOOLS
    else:
        name, has_tools = getattr(provider, "name", ""), provider_capabilities(provider).has_tools
    permissions = settings.or_else(defaults_of(name, config)).permissions
    return has_tools and allows_edits(permissions, tools)


def resolve_servers(servers: Any, config: Config | None) -> Any:
    """Return MCP servers by name; ValueError for a name that the configuration does not have."""
    if not isinstance(servers, tuple):
        return servers
    return find_servers(servers, {} if config is None else config.mcp)


def find_servers(
    names: tuple[str, ...], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    if unknown := next((name for name in names if name not in known), None):
        available = f". Available: {', '.join(known)}" if known else ". Add it to 'mcp' of .nerve/config.json"
        raise ValueError(f"Unknown MCP server '{unknown}'{did_you_mean_hint(unknown, known) or available}")
    return {name: known[name] for name in names}


BUILT_IN_MODELS: Mapping[str, Mapping[str, str]] = {
    "small": {"claude": "haiku"},
    "large": {"claude": "opus"},
}
"""The models of the aliases that every project has, by provider; names that do not age."""


def is_model_alias(model: str | None, config: Config | None) -> bool:
    return model in MODEL_ALIASES or (config is not None and model in config.models)


def resolve_model(model: str | None, provider: str, config: Config | None) -> str | None:
    """Return the model that an alias means with a provider; any other name is the model itself."""
    if model is None or not is_model_alias(model, config):
        return model
    models: str | Mapping[str, str] = {} if config is None else config.models.get(model, {})
    if isinstance(models, str):
        return models
    resolved = models.get(provider) or BUILT_IN_MODELS.get(model, {}).get(provider)
    if resolved is None:
        raise ValueError(
            f"Provider '{provider}' has no model for the alias '{model}'. Set models.{model}.{provider}"
            " in .nerve/config.json"
        )
    return resolved


def fill_settings(settings: AgentSettings, environment: Mapping[str, str]) -> AgentSettings:
    """Return the settings with the values of the environment; these are not written anywhere."""

    def fill_all(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: fill_references(text, environment) for name, text in texts.items()}

    servers: Any = settings.mcp
    if servers:
        servers = {
            name: {
                **server,
                **{key: fill_all(server[key]) for key in ("env", "headers") if server.get(key)},
                **({"url": fill_references(server["url"], environment)} if server.get("url") else {}),
            }
            for name, server in servers.items()
        }
    return replace(settings, mcp=servers, env=None if settings.env is None else fill_all(settings.env))


def check_settings(
    provider: Provider,
    config: Config | None,
    step: AgentSettings,
    agent: AgentSettings | None,
    folder: Path | None,
) -> Iterator[SettingProblem]:
    """Yield the settings of a step that name something unknown, or that its provider cannot honour."""
    if provider_capabilities(provider).any_settings:
        return
    settings = (step if agent is None else step.or_else(agent)).or_else(defaults_of(provider.name, config))
    checks: dict[str, Callable[[], object]] = {
        "model": lambda: resolve_model(settings.model, provider.name, config),
        "mcp": lambda: resolve_servers(settings.mcp, config),
        "skills": lambda: folder and settings.skills and select_skills(folder, settings.skills),
    }
    for key, check in checks.items():
        try:
            check()
        except ValueError as error:
            yield SettingProblem(key, *split_message(str(error)))
    yield from find_setting_problems(settings, provider.name, provider_capabilities(provider))


def check_tools(functions: Sequence[str], names: Sequence[str], provider: Provider) -> None:
    """Raise ValueError for a tool that agents of the provider cannot call."""
    if problem := tool_problem(functions, names, provider):
        raise ValueError(str(problem))


def tool_problem(functions: Sequence[str], names: Sequence[str], provider: Provider) -> SettingProblem | None:
    """Return why agents of a provider cannot call some tools; None if they can."""
    capabilities = provider_capabilities(provider)
    own = [name for name in names if name in functions or name == ASK_HUMAN]
    if own and not capabilities.host_tools and not capabilities.any_settings:
        message = f"Provider '{provider.name}' cannot call the tool '{own[0]}' of Nerve"
        return SettingProblem("tools", message, f"Remove '{own[0]}'.")
    if not capabilities.has_tools:
        unknown = [name for name in names if name not in own and not name.startswith("mcp__")]
        if unknown:
            message = f"Provider '{provider.name}' has no tool '{unknown[0]}'"
            hint = did_you_mean_hint(unknown[0], functions)
            fix = "Register it with @session.tool, in a file that --with names."
            return SettingProblem("tools", f"{message}{hint}", fix)
    return None


class PreparedOptions(NamedTuple):
    """The options of the queries of a step with one provider, and the redaction of their secrets."""

    options: QueryOptions
    redactor: Redactor


def prepare_options(
    provider: Provider,
    *,
    options: QueryOptions,
    settings: AgentSettings,
    config: Config | None,
    trace: Mapping[str, str],
    folder: str,
    is_fallback: bool = False,
) -> PreparedOptions:
    """Return the options with the settings of a step; ValueError for one that the provider cannot honour."""
    capabilities = provider_capabilities(provider)
    if is_fallback and not is_model_alias(settings.model, config):
        settings = replace(settings, model=None)  # the name belongs to the first provider
    resolved = resolve_settings(provider.name, config, settings)
    if problem := next(find_setting_problems(resolved, provider.name, capabilities), None):
        raise ValueError(str(problem))
    filled = fill_settings(resolved, os.environ)
    servers: Any = filled.mcp
    permissions = Permissions.of(filled.permissions)
    prepared = replace(
        options,
        model=filled.model,
        system=filled.system,
        env={**trace, **(filled.env or {})},
        effort=filled.effort,
        mcp=servers or {},
        skills=filled.skills,
        hooks={event: tuple(map(command_hook, hooks)) for event, hooks in (filled.hooks or {}).items()},
        subagents=filled.subagents or {},
        instructions=filled.instructions,
        permissions=permissions.with_mode_rules(
            capabilities.edit_tools, capabilities.read_tools, folder or os.getcwd()
        ),
    )
    return PreparedOptions(prepared, Redactor(os.environ, secret_values(filled)))


def provider_capabilities(provider: Provider) -> Capabilities:
    return getattr(provider, "capabilities", NO_CAPABILITIES)


def split_message(text: str) -> tuple[str, str]:
    """Return the problem and the fix of an error."""
    message, _, fix = text.partition(". ")
    return message, fix if not fix or fix.endswith("?") else f"{fix}."


def describe_context(capabilities: Capabilities, folder: Path, options: QueryOptions = NO_OPTIONS) -> str:
    """Return the instruction files and skills of a project that an agent reads; an empty string for none.

    An agent that reads them in its own way may read any of them.
    """
    if capabilities.reads_on_its_own:
        found = list_context(find_instructions(folder, INSTRUCTION_FILES), select_skills(folder, None))
        return found and f"what it chooses of {found}"
    reads_files = options.instructions is not False
    files = find_instructions(folder, capabilities.instructions) if reads_files else []
    return list_context(files, select_skills(folder, options.skills) if capabilities.skills else [])


def describe_unread(capabilities: Capabilities, folder: Path) -> str:
    """Return the instruction files and skills of a project if an agent reads none; else an empty string."""
    if capabilities.instructions or capabilities.skills or capabilities.reads_on_its_own:
        return ""
    return list_context(find_instructions(folder, INSTRUCTION_FILES), select_skills(folder, None))


def list_context(files: Sequence[str], skills: Sequence[Skill]) -> str:
    names = ", ".join(skill.name for skill in skills)
    noun = "the skill" if len(skills) == 1 else "the skills"
    return " and ".join(filter(None, [", ".join(files), f"{noun} {names}" if names else ""]))


def command_hook(hook: Mapping[str, Any]) -> dict[str, Any]:
    """Return a hook as a command; one with a response prints it."""
    values = {name: value for name, value in hook.items() if value is not None and name != "response"}
    if (response := hook.get("response")) is not None:
        values["command"] = f"printf %s {shlex.quote(json.dumps(response))}"
    return values


def secret_values(settings: AgentSettings) -> dict[str, str]:
    """Return the variables and headers that can hold secrets, by name, also those of MCP servers."""
    found = dict(settings.env or {})
    for server in (settings.mcp or {}).values() if isinstance(settings.mcp, Mapping) else ():
        found |= server.get("env") or {}
        for name, value in (server.get("headers") or {}).items():
            # A header names its scheme first: `Bearer …`.
            found[f"{name.upper().replace('-', '_')}_TOKEN"] = value.rpartition(" ")[2]
    return found


def find_setting_problems(
    settings: AgentSettings, provider: str, capabilities: Capabilities
) -> Iterator[SettingProblem]:
    """Yield the settings that a provider cannot honour."""
    if capabilities.any_settings:
        return
    who = f"Provider '{provider}'"
    effort = settings.effort
    if effort is not None and effort not in capabilities.effort:
        levels = capabilities.effort
        message = f"{who} cannot honour effort '{effort}'{did_you_mean_hint(effort, levels)}"
        yield SettingProblem("effort", message, suggest_values(levels))
    if settings.mcp and not capabilities.mcp:
        yield SettingProblem("mcp", f"{who} cannot use MCP servers", "Remove 'mcp'.")
    if settings.subagents and not capabilities.subagents:
        yield SettingProblem("subagents", f"{who} cannot use subagents", "Remove 'subagents'.")
    if capabilities.reads_on_its_own:
        for key in ("skills", "instructions"):
            if getattr(settings, key) is not None:
                yield SettingProblem(key, f"{who} leaves {key} to its agent", f"Remove '{key}'.")
    elif settings.skills and not capabilities.skills:
        yield SettingProblem("skills", f"{who} cannot use skills", "Remove 'skills'.")
    elif settings.instructions and not capabilities.instructions:
        message = f"{who} does not read the instruction files of a project"
        yield SettingProblem("instructions", message, "Remove 'instructions'.")
    for event in settings.hooks or ():
        if event not in capabilities.hooks:
            message = f"{who} has no hook '{event}'{did_you_mean_hint(event, capabilities.hooks)}"
            yield SettingProblem("hooks", message, suggest_values(capabilities.hooks))
    mode = Permissions.of(settings.permissions).mode
    if mode is not None and mode not in capabilities.modes:
        message = f"{who} cannot honour the permission mode '{mode}'"
        yield SettingProblem("permissions", message, suggest_values(capabilities.modes))


def suggest_values(values: tuple[str, ...]) -> str:
    return f"It has {join_alternatives(values)}." if values else "Remove it."
