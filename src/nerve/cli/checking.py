"""`nerve check`: everything that can be known to be wrong, and nothing executed to know it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from nerve.agents import registry
from nerve.cli.common import count_noun
from nerve.cli.completion import WorkflowName
from nerve.cli.defined import document_of
from nerve.cli.exits import COMPLETED, FAILED
from nerve.cli.flags import Flag
from nerve.cli.project import Project
from nerve.commander.core.harmless import harmless, in_json
from nerve.core.session.loading import EXTRAS, KINDS
from nerve.core.suggest import suggest
from nerve.notations.agents import AgentFile, FoundAgents, discover_agents
from nerve.notations.config import FILE, Config
from nerve.spec import models
from nerve.spec.check import check as check_document
from nerve.spec.checks.names import CHILD, Known, barred, ungiven, unknown
from nerve.spec.source import Document, Map, Place, Problem, Unreadable, in_order
from nerve.spec.validate import validate
from nerve.spec.walk import walk
from nerve.spec.workflow import slug

OFFERED = tuple(registry.names())
"""The providers of installed packages; known before anything is looked at, because that reads files."""
NOTHING = "No workflows found. Create workflows in .nerve/workflows/, or name a file."


@dataclass(slots=True)
class Findings:
    """How many workflows were looked at, and what was found."""

    workflows: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> int:
        return sum(problem.severity == "error" for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        problems = [problem.to_dict() for problem in self.problems]
        return {"workflows": self.workflows, "errors": self.errors, "problems": problems}

    def summary(self) -> str:
        told = count_noun(self.workflows, "workflow")
        warnings = sum(problem.severity == "warning" for problem in self.problems)
        if not self.errors and not warnings:
            return f"{told}, no problems"
        parts = [count_noun(self.errors, "error") if self.errors else "no errors"]
        return ", ".join([told, *parts, *([count_noun(warnings, "warning")] if warnings else [])])


def check(*targets: WorkflowName, json: Flag = False, quiet: Flag = False) -> int:
    """Say everything that is wrong with workflows; exit code 1 if there are errors.

    Nothing is executed or imported.

    Parameters
    ----------
    targets
        Workflow files or names of workflows of the project; without any, all of the project.
    json
        Print one JSON object with all problems.
    quiet
        Print the problems and nothing else.
    """
    project = Project()
    try:
        found = Checking(project).targets(targets) if targets else Checking(project).everything()
    except Unreadable as error:
        found = Findings(problems=error.problems)
    if json:
        print(in_json(found.to_dict()))
    else:
        for problem in found.problems:
            print(harmless(str(problem)))
        if not quiet:
            print(found.summary() if found.workflows or found.problems else NOTHING)
    return FAILED if found.errors else COMPLETED


class Checking:
    """The checks of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.found = Findings()

    @cached_property
    def agents(self) -> FoundAgents:
        return discover_agents(self.project.folder)

    def targets(self, targets: tuple[str, ...]) -> Findings:
        for given in targets:
            self.add(given)
        return self.found

    def everything(self) -> Findings:
        found = self.project.found
        paths = {problem.file for problem in found.problems if problem.severity == "error"}
        self.found.workflows += len(paths - {str(each.path) for each in found.workflows})
        self.found.problems += found.problems
        self.found.problems += [shadowed.problem() for shadowed in found.shadowed]
        self.found.problems += self.providers()
        self.found.problems += router_of(self.project.config, self.agents)
        self.found.problems += self.agents.problems
        for agent in self.agents.agents:
            self.found.problems += unknown_of(agent, self.project.config)
        for each in found.workflows:
            self.add(str(each.path))
        return self.found

    def providers(self) -> Iterator[Problem]:
        """Providers of the configuration that no installed package offers."""
        for name, settings in self.project.config.providers.items():
            kind = settings.get("kind", name)
            if kind not in OFFERED:
                at = settings.values_at.get("kind", settings.place) if isinstance(settings, Map) else None
                told = f"there is no provider '{kind}'{suggest(str(kind), OFFERED)}"
                yield Problem(FILE, at or Place(), told, f"There are: {', '.join(OFFERED)}.")

    def add(self, given: str) -> None:
        self.found.workflows += 1
        try:
            document = document_of(self.project, given)
        except Unreadable as error:
            self.found.problems += error.problems
            return
        checked = check_document(document)
        problems = list(checked.problems)
        if checked.spec is not None:
            problems += self.names(document, checked.spec)
        told = set(self.found.problems)
        self.found.problems += in_order(set(problems) - told)

    def names(self, document: Document, spec: Any) -> Iterator[Problem]:
        """Workflows that may not be called, and names that the project does not have.

        A Python file may still bring those, so they are no errors.
        """
        own, found = slug(spec.name), list(walk(spec.body))
        asked: set[str] = set()
        known = self.known(own, asked)
        for loc, message, fix in (*barred(own, found, known), *ungiven(found, known)):
            yield document.problem(loc, message, fix)
        for loc, message, fix in unknown(spec, found, known):
            yield replace(document.problem(loc, message, fix), severity="warning")
        for name in sorted(asked):
            yield from self.agents.broken.get(name, ())
            if (agent := self.agents.get(name)) is not None and name not in self.agents.broken:
                yield from unknown_of(agent, self.project.config)

    def known(self, own: str, asked: set[str]) -> Known:
        """The names there are; those that are looked for are put into `asked`."""
        workflows = [own, *(slug(each.name) for each in self.project.found.workflows)]
        agents = [agent.name for agent in self.agents.agents]
        config = self.project.config
        names = [*agents, *workflows, *providers_of(config)]

        def has(name: str) -> bool:
            asked.add(name)
            return name.removeprefix(CHILD) in names or name in self.agents.broken

        return Known(has, workflows, names, config.refusal, inputs=self.inputs)

    def inputs(self, workflow: str) -> Mapping[str, models.Input]:
        """The inputs that a workflow of the project declares."""
        found = next((each for each in self.project.found.workflows if slug(each.name) == workflow), None)
        spec = validate(found.document)[0] if found is not None else None
        return {} if spec is None else spec.inputs


def providers_of(config: Config) -> list[str]:
    """The names of all providers that a workflow or an agent file can name, installed or not."""
    return list(dict.fromkeys([*KINDS, *EXTRAS, *OFFERED, *config.providers]))


def unknown_of(agent: AgentFile, config: Config) -> list[Problem]:
    """Providers that an agent names and the project does not have; a Python file may still bring them."""
    return [replace(problem, severity="warning") for problem in agent.unknown(providers_of(config))]


def router_of(config: Config, agents: FoundAgents) -> list[Problem]:
    """That nobody has the name of the agent that routes; a Python file may still bring it."""
    names = [*providers_of(config), *agents.broken, *(agent.name for agent in agents.agents)]
    if config.router is None or config.router.name in names:
        return []
    return [replace(config.router.unknown(names), severity="warning")]
