"""`nerve check`: report all problems of workflows, agent files and configuration. Executes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cache, cached_property
from typing import Any

from nerve.agents.registry import (
    BUILT_IN_PROVIDERS,
    EXTRA_PROVIDERS,
    PROVIDER_ALIASES,
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
from nerve.project.config import CONFIG_FILE, Config
from nerve.spec import models
from nerve.spec.checker import check_document
from nerve.spec.checks.names import (
    CHILD_WORKFLOW_PREFIX,
    KnownNames,
    find_forbidden_calls,
    find_unknown_names,
    find_wrong_call_inputs,
)
from nerve.spec.validation import validate_document
from nerve.spec.walk import walk_spec
from nerve.text.source import Document, InvalidDefinition, LocatedMap, Position, Problem, sort_problems
from nerve.ui.formatting import count_noun
from nerve.ui.sanitize import dump_safe_json, sanitize_text

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
        for workflow in discovered.workflows:
            self.check_target(str(workflow.path))
        return self.report

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
            inputs=self.inputs_of_workflow,
        )

    def inputs_of_workflow(self, workflow: str) -> Mapping[str, models.InputSpec]:
        """Return the declared inputs of a workflow of the project."""
        match = next(
            (
                candidate
                for candidate in self.project.discovered.workflows
                if slugify(candidate.name) == workflow
            ),
            None,
        )
        spec = validate_document(match.document)[0] if match is not None else None
        return {} if spec is None else spec.inputs


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
