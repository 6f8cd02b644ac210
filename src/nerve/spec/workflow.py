"""A workflow that was written down: its spec, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from nerve.core.limits import Limits
from nerve.core.nodes.base import Names
from nerve.core.nodes.inline import inlined
from nerve.core.runtime import Call
from nerve.core.workflow.context import WorkflowContext, value_of
from nerve.core.workflow.workflow import Kind, Workflow
from nerve.spec import models
from nerve.spec.build import Builder
from nerve.spec.checks.names import CHILD, Known, barred, called, ungiven, unknown
from nerve.spec.checks.rules import a, fits
from nerve.spec.nodes import joined
from nerve.spec.scope import Facts, Scope, artifacts_in
from nerve.spec.slugs import slug as slug
from nerve.spec.source import Document, Problem, Unreadable
from nerve.spec.validate import canonical, hash_of
from nerve.spec.walk import hyphens, steps_of, walk


class DefinedWorkflow(Workflow):
    """A workflow from a file or a text, in any notation."""

    builder: type[Builder] = Builder
    """What builds its nodes; a rehearsal has another."""
    logged: bool = True
    """Whether its runs have a log; a rehearsal has none."""

    def __init__(
        self,
        spec: models.WorkflowSpec,
        session: Names,
        document: Document | None = None,
        *,
        register: bool = True,
    ) -> None:
        self.spec, self.document = spec, document
        self.problems: list[Problem] = list(document.notes) if document else []
        self._listed = register
        self._names_known = False
        self._hyphens = hyphens(spec, walk(spec.body))
        limits = Limits.of(spec.limits.model_dump(exclude_none=True))
        super().__init__(
            slug(spec.name), session, self._drive, spec.description, spec.metadata, limits=limits
        )
        self.name = slug(spec.name)
        self.title = spec.name

    def _register(self, id: str, session: Names) -> None:
        if self._listed:
            super()._register(id, session)

    @property
    def kind(self) -> Kind:
        return cast("Kind", self.document.notation if self.document else "json")

    @property
    def logs(self) -> Path | None:
        assert self.session is not None
        return self.session.project / self.spec.folder / "logs" if self.logged and self.spec.folder else None

    @property
    def artifacts(self) -> Path | None:
        assert self.session is not None
        return self.session.project / artifacts_in(self.spec.folder)

    @property
    def steps(self) -> list[str]:
        return steps_of(self.spec.body)

    @property
    def calls(self) -> list[str]:
        return [name.removeprefix(CHILD) for each in walk(self.spec.body) if (name := called(each.spec))]

    def definition(self) -> tuple[str, str, str]:
        if self._definition is None:
            source = self.document.text if self.document else ""
            self._definition = hash_of(self.spec), source, canonical(self.spec)
        return self._definition

    def check_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The declared inputs with their defaults; ValueError for one that is missing, unknown or wrong."""
        declared = self.spec.inputs
        if declared and (unknown := [name for name in params if name not in declared]):
            raise ValueError(
                f"workflow '{self.name}' has no input '{unknown[0]}'. It has: {', '.join(declared)}"
            )
        filled = dict(params)
        for name, input in declared.items():
            if name not in filled:
                if input.required:
                    raise ValueError(f"workflow '{self.name}' needs the input '{name}' ({input.type})")
                filled[name] = input.default
            elif not fits(filled[name], input.type):
                raise ValueError(f"input '{name}' must be {a(input.type)}, not {filled[name]!r}")
            elif input.choices is not None and filled[name] not in input.choices:
                raise ValueError(f"input '{name}' must be one of {input.choices}, not {filled[name]!r}")
        return filled

    def check_names(self, known: Callable[[], Known]) -> None:
        """Checked until all are there; what is there once stays."""
        if not self._names_known and self.document is not None:
            names, found = known(), list(walk(self.spec.body))
            wrong = [*barred(self.name, found, names), *unknown(self.spec, found, names)]
            wrong += ungiven(found, names)
            told = [self.document.problem(loc, message, fix) for loc, message, fix in wrong]
            refuse(list(dict.fromkeys(told)))  # the provider of all prompts is wrong once
            self._names_known = True

    def scope(self, context: WorkflowContext) -> Scope:
        run = context._run
        facts = Facts(
            context.run_id,
            self.name,
            getattr(run, "label", None) or "",
            getattr(run, "branch", None) or "main",
            self.spec.folder,
        )
        return Scope(
            context.input,
            context.params,
            facts,
            self.spec.context,
            provider=self.spec.provider,
            model=self.spec.model,
            hyphens=self._hyphens,
        )

    async def _drive(self, context: WorkflowContext) -> Any:
        assert self.session is not None
        scope = self.scope(context)
        root = self.builder(scope, self.session).step(self.spec.body)
        call = Call("", root, self.name, context.input, context=context.execution)
        result = await joined(scope, inlined(call))
        return value_of(result, context.run_id)


def refuse(problems: list[Problem]) -> None:
    """Raise for problems that keep a workflow from starting."""
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise Unreadable(errors)
