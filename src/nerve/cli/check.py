"""`nerve check`: report all problems of workflows, agent files and configuration. Executes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from nerve.agents.registry import (
    BUILT_IN_PROVIDERS,
    EXTRA_PROVIDERS,
    PROVIDER_ALIASES,
    UnknownProvider,
    create_provider,
    installed_provider_names,
)
from nerve.cli.completion import WorkflowName
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import Flag
from nerve.cli.targets import Project, load_target_document
from nerve.core.slugs import slugify
from nerve.core.suggest import did_you_mean_hint
from nerve.lazy_dataclass import dataclass
from nerve.project.agent_files import AgentFile, DiscoveredAgents, discover_agents
from nerve.project.agent_settings import MODEL_ALIASES, AgentSettings
from nerve.project.config import CONFIG_FILE, Config
from nerve.project.trigger_files import discover_triggers
from nerve.spec import models
from nerve.spec.checker import check_document
from nerve.spec.checks.names import (
    CHILD_WORKFLOW_PREFIX,
    DEFAULT_PROVIDER,
    KnownNames,
    find_forbidden_calls,
    find_unknown_names,
    find_unsupported_settings,
    find_wrong_call_inputs,
)
from nerve.spec.checks.shared_folders import find_shared_folders
from nerve.spec.validation import validate_document
from nerve.spec.walk import walk_spec
from nerve.text.source import Document, InvalidDefinition, LocatedMap, Position, Problem, sort_problems
from nerve.ui.formatting import count_noun
from nerve.ui.sanitize import dump_safe_json, sanitize_text

if TYPE_CHECKING:
    from nerve.agents.provider import Provider

NO_WORKFLOWS_MESSAGE = "No workflows found. Create workflows in .nerve/workflows/, or name a file."


def check_command(*targets: WorkflowName, json: Flag = False, quiet: Flag = False) -> int:
    """Report all problems in workflows. The exit code is 1 if there are errors.

    Nothing is executed or imported.

    Parameters
    ----------
    targets
        Workflow files or workflow names. Default: all workflows of the project.
    json
        Print one JSON object with all problems.
    quiet
        Print only problems.
    """
    report = check_project(targets)
    if json:
        print(dump_safe_json(report.to_dict()))
    else:
        for problem in report.problems:
            print(sanitize_text(str(problem)))
        if not quiet:
            print(report.summary() if report.workflow_count or report.problems else NO_WORKFLOWS_MESSAGE)
    return FAILED if report.error_count else COMPLETED


@dataclass(slots=True)
class CheckReport:
    """The number of checked workflows and the problems found."""

    workflow_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def error_count(self) -> int:
        return sum(problem.severity == "error" for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        problems = [problem.to_dict() for problem in self.problems]
        return {"workflows": self.workflow_count, "errors": self.error_count, "problems": problems}

    def summary(self) -> str:
        workflows = count_noun(self.workflow_count, "workflow")
        warnings = sum(problem.severity == "warning" for problem in self.problems)
        if not self.error_count and not warnings:
            return f"{workflows}, no problems"
        parts = [count_noun(self.error_count, "error") if self.error_count else "no errors"]
        return ", ".join([workflows, *parts, *([count_noun(warnings, "warning")] if warnings else [])])


def check_project(targets: tuple[str, ...]) -> CheckReport:
    """Check the targets, or the whole project without targets."""
    try:
        checker = ProjectChecker(Project())
        return checker.check_targets(targets) if targets else checker.check_all()
    except InvalidDefinition as error:
        return CheckReport(problems=error.problems)


class ProjectChecker:
    """Checks the workflows and agent files of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.report = CheckReport()

    @cached_property
    def agents(self) -> DiscoveredAgents:
        return discover_agents(self.project.folder)

    def check_targets(self, targets: tuple[str, ...]) -> CheckReport:
        for target in targets:
            self.check_target(target)
        return self.report

    def check_all(self) -> CheckReport:
        discovered = self.project.discovered
        broken_files = {problem.file for problem in discovered.problems if problem.severity == "error"}
        self.report.workflow_count += len(
            broken_files - {str(workflow.path) for workflow in discovered.workflows}
        )
        self.report.problems += discovered.problems
        self.report.problems += [shadowed.problem() for shadowed in discovered.shadowed]
        self.report.problems += self.find_unknown_providers()
        self.report.problems += unknown_router_warnings(self.project.config, self.agents)
        self.report.problems += self.agents.problems
        for agent in self.agents.agents:
            self.report.problems += unknown_provider_warnings(agent, self.project.config)
            self.report.problems += self.find_agent_file_problems(agent)
        self.report.problems += self.find_unknown_agent_providers()
        self.report.problems += self.find_trigger_problems(discovered)
        for workflow in discovered.workflows:
            self.check_target(str(workflow.path))
        return self.report

    def find_trigger_problems(self, discovered: Any) -> Iterator[Problem]:
        """Yield the problems of the trigger files, and warnings for workflows that no file has.

        A Python file may still register them.
        """
        found = discover_triggers(self.project.folder)
        yield from found.problems
        names = sorted(workflow.name for workflow in discovered.workflows)
        for trigger in found.triggers.values():
            if trigger.workflow not in names:
                message = f"Workflow not found: '{trigger.workflow}'"
                hint = did_you_mean_hint(trigger.workflow, names)
                fix = "Only a server started with --with FILE knows the workflows of Python files."
                yield Problem(trigger.source, Position(), f"{message}{hint}", fix, "warning")

    def find_unknown_providers(self) -> Iterator[Problem]:
        """Yield configured providers whose kind no installed package provides."""
        for name, settings in self.project.config.providers.items():
            kind = settings.get("kind", name)
            if kind in BUILT_IN_PROVIDERS:
                continue
            installed = list_installed_providers()
            if kind not in installed:
                position = (
                    settings.value_positions.get("kind", settings.position)
                    if isinstance(settings, LocatedMap)
                    else None
                )
                message = f"Unknown provider '{kind}'{did_you_mean_hint(str(kind), installed)}"
                yield Problem(
                    CONFIG_FILE,
                    position or Position(),
                    message,
                    f"Available: {', '.join(installed)}.",
                )

    def check_target(self, target: str) -> None:
        self.report.workflow_count += 1
        try:
            document = load_target_document(self.project, target)
        except InvalidDefinition as error:
            self.report.problems += error.problems
            return
        checked = check_document(document)
        problems = list(checked.problems)
        if checked.spec is not None:
            problems += self.find_name_problems(document, checked.spec)
        reported = set(self.report.problems)
        self.report.problems += sort_problems(set(problems) - reported)

    def find_name_problems(self, document: Document, spec: Any) -> Iterator[Problem]:
        """Yield forbidden or invalid workflow calls, and unknown names.

        Unknown names are warnings, because a Python file given with --with may register them.
        """
        own_name, steps = slugify(spec.name), list(walk_spec(spec.body))
        looked_up: set[str] = set()
        known_names = self.known_names(own_name, looked_up)
        for loc, message, fix in (
            *find_forbidden_calls(own_name, steps, known_names),
            *find_wrong_call_inputs(steps, known_names),
            *find_unsupported_settings(spec, steps, known_names),
            *find_shared_folders(spec, steps, known_names),
        ):
            yield document.problem(loc, message, fix)
        for loc, message, fix in find_unknown_names(spec, steps, known_names):
            yield replace(document.problem(loc, message, fix), severity="warning")
        for name in sorted(looked_up):
            yield from self.agents.broken.get(name, ())
            if (agent := self.agents.get(name)) is not None and name not in self.agents.broken:
                yield from unknown_provider_warnings(agent, self.project.config)

    def known_names(self, own_name: str, looked_up: set[str]) -> KnownNames:
        """Return the known names. Each name that is looked up is added to `looked_up`."""
        workflows = [own_name, *(slugify(workflow.name) for workflow in self.project.discovered.workflows)]
        agents = [agent.name for agent in self.agents.agents]
        config = self.project.config
        names = [*agents, *workflows]

        def has(name: str) -> bool:
            looked_up.add(name)
            called = name.removeprefix(CHILD_WORKFLOW_PREFIX)
            return called in names or name in self.agents.broken or is_provider_name(called, config)

        return KnownNames(
            has,
            workflows,
            lambda: [*names, *known_provider_names(config)],
            config.refusal,
            find_spec=self.find_spec,
            setting_problems=self.find_setting_problems,
            edits_files=self.edits_files,
        )

    def edits_files(self, name: str, step: AgentSettings, tools: Sequence[str] | None) -> bool:
        """Return whether a name is that of an agent which may edit files that others use."""
        from nerve.agents.setting_support import may_edit_files

        agent, config = self.agents.get(name), self.project.config
        if agent is None and not is_provider_name(name, config):
            return False
        provider = name if agent is None else agent.provider or DEFAULT_PROVIDER
        if agent is not None:
            step, tools = step.or_else(agent.settings), agent.tools if tools is None else tools
        return may_edit_files(provider, config, step, tools)

    def find_setting_problems(
        self, name: str, step: AgentSettings, tools: Sequence[str] | None
    ) -> Iterator[tuple[str, str, str]]:
        """Yield the settings of a step that the provider of its agent cannot honour."""
        agent, config = self.agents.get(name), self.project.config
        provider_name = name if agent is None else agent.provider or DEFAULT_PROVIDER
        own = None if agent is None else agent.settings
        defaults = config.agents.get(provider_name)
        places = [settings for settings in (step, own, defaults) if settings is not None]
        has_alias = any(each.model in (*MODEL_ALIASES, *config.models) for each in places)
        if not has_alias and not any(each.needs_support for each in places):
            return  # without an import of the providers
        if (provider := self.create_provider(provider_name)) is not None:
            from nerve.agents.setting_support import check_settings

            yield from check_settings(provider, config, step, own, self.project.folder)

    def find_agent_file_problems(self, agent: AgentFile) -> Iterator[Problem]:
        """Yield the settings of an agent file that its provider cannot honour."""
        for key, message, fix in self.find_setting_problems(agent.name, AgentSettings(), None):
            yield Problem(str(agent.path), agent.positions.get(key) or Position(), message, fix)

    def find_unknown_agent_providers(self) -> Iterator[Problem]:
        """Yield warnings for settings of the agents of unknown providers; a Python file may register them."""
        config = self.project.config
        for name in config.agents:
            if not is_provider_name(name, config):
                known = known_provider_names(config)
                message = f"Unknown provider '{name}' in 'agents'{did_you_mean_hint(name, known)}"
                problem = Problem(CONFIG_FILE, Position(), message, f"Available: {', '.join(known)}.")
                yield replace(problem, severity="warning")

    def create_provider(self, name: str) -> Provider | None:
        """Return a provider to ask what it can do; None for an unknown one or one with wrong settings."""
        config = self.project.config
        name = name if name in config.providers else PROVIDER_ALIASES.get(name, name)
        try:
            return create_provider(name, config.providers.get(name))
        except UnknownProvider:
            return None  # code of the project may register it

    def find_spec(self, workflow: str) -> models.WorkflowSpec | None:
        """Return the definition of a workflow of the project, if it is valid."""
        match = next(
            (
                candidate
                for candidate in self.project.discovered.workflows
                if slugify(candidate.name) == workflow
            ),
            None,
        )
        return validate_document(match.document)[0] if match is not None else None


@cache
def list_installed_providers() -> list[str]:
    """Return the providers of installed packages; reads package metadata once, which takes long."""
    return installed_provider_names()


def is_provider_name(name: str, config: Config) -> bool:
    """Whether workflows and agent files can use a name for a provider, installed or not."""
    is_usual = name in PROVIDER_ALIASES or name in EXTRA_PROVIDERS or name in config.providers
    return is_usual or name in list_installed_providers()


def known_provider_names(config: Config) -> list[str]:
    """Return all provider names that workflows and agent files can use, installed or not."""
    installed = list_installed_providers()
    return list(dict.fromkeys([*PROVIDER_ALIASES, *EXTRA_PROVIDERS, *installed, *config.providers]))


def unknown_provider_warnings(agent: AgentFile, config: Config) -> list[Problem]:
    """Return warnings for unknown providers of an agent. A Python file may still register them."""
    return [
        replace(problem, severity="warning")
        for problem in agent.unknown_provider_problems(known_provider_names(config))
    ]


def unknown_router_warnings(config: Config, agents: DiscoveredAgents) -> list[Problem]:
    """Return a warning if the configured router agent is unknown. A Python file may still register it."""
    if config.router is None:
        return []
    names = [*known_provider_names(config), *agents.broken, *(agent.name for agent in agents.agents)]
    if config.router.name in names:
        return []
    return [replace(config.router.unknown_name_problem(names), severity="warning")]
