"""Workflows that are defined in a file or a string."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from nerve.core.input_fields import DeclaredInputs, InputField, object_schema
from nerve.core.limits import Limits
from nerve.core.nodes.base import NodeRegistry
from nerve.core.nodes.inline import run_inline
from nerve.core.runtime import NodeCall
from nerve.core.slugs import slugify as slugify
from nerve.core.workflow.context import WorkflowContext, result_value
from nerve.core.workflow.workflow import Kind, Workflow
from nerve.spec import models
from nerve.spec.builder import NodeBuilder, workspace_kind
from nerve.spec.checks.names import (
    CHILD_WORKFLOW_PREFIX,
    KnownNames,
    called_name,
    find_forbidden_calls,
    find_unknown_names,
    find_unsupported_settings,
    find_wrong_call_inputs,
)
from nerve.spec.checks.node_rules import is_of_type, with_article
from nerve.spec.checks.shared_folders import find_shared_folders
from nerve.spec.inline_nodes import join_detached_prompts
from nerve.spec.scope import RunVariables, Scope, artifacts_directory
from nerve.spec.validation import canonical_spec, spec_hash
from nerve.spec.walk import hyphenated_names, visible_steps, walk_spec
from nerve.text.source import Document, InvalidDefinition, Problem


class DefinedWorkflow(Workflow):
    """A workflow from a file or a string, in any notation."""

    builder_class: type[NodeBuilder] = NodeBuilder
    """The class that builds its nodes; a rehearsal uses another one."""
    has_log: bool = True
    """Whether its runs write a log; those of a rehearsal do not."""

    def __init__(
        self,
        spec: models.WorkflowSpec,
        session: NodeRegistry,
        document: Document | None = None,
        *,
        register: bool = True,
    ) -> None:
        self.spec, self.document = spec, document
        self.problems: list[Problem] = list(document.warnings) if document else []
        self._should_register = register
        self._are_names_checked = self._are_folders_checked = False
        self._hyphens = hyphenated_names(spec, walk_spec(spec.body))
        limits = Limits.of(spec.limits.model_dump(exclude_none=True))
        super().__init__(
            slugify(spec.name), session, self._execute_body, spec.description, spec.metadata, limits=limits
        )
        self.name = slugify(spec.name)
        self.title = spec.name

    def _register(self, id: str, session: NodeRegistry) -> None:
        if self._should_register:
            super()._register(id, session)

    @property
    def kind(self) -> Kind:
        return cast("Kind", self.document.notation if self.document else "json")

    @property
    def logs(self) -> Path | None:
        assert self.session is not None
        return self.session.project / self.spec.folder / "logs" if self.has_log and self.spec.folder else None

    @property
    def artifacts(self) -> Path | None:
        assert self.session is not None
        return self.session.project / artifacts_directory(self.spec.folder)

    @property
    def has_workspace(self) -> bool:
        return workspace_kind(self.spec.body) != "shared"

    @property
    def creates_branch(self) -> bool:
        """Whether its runs have a worktree, on a branch of their own."""
        return workspace_kind(self.spec.body) == "worktree"

    @property
    def steps(self) -> list[str]:
        return visible_steps(self.spec.body)

    @property
    def calls(self) -> list[str]:
        return [
            name.removeprefix(CHILD_WORKFLOW_PREFIX)
            for spec_node in walk_spec(self.spec.body)
            if (name := called_name(spec_node.spec))
        ]

    @cached_property
    def declared_inputs(self) -> DeclaredInputs:
        inputs = self.spec.inputs
        fields = [InputField(name, **declared.model_dump()) for name, declared in inputs.items()]
        schemas = {name: input_schema(declared) for name, declared in inputs.items()}
        required = [name for name, declared in inputs.items() if declared.required]
        params_schema = object_schema(schemas, required) if inputs else {}
        return DeclaredInputs(f"workflow '{self.name}'", fields, params_schema=params_schema)

    def definition(self) -> tuple[str, str, str]:
        if self._definition is None:
            source = self.document.text if self.document else ""
            self._definition = spec_hash(self.spec), source, canonical_spec(self.spec)
        return self._definition

    def check_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs with their defaults; ValueError for a missing, unknown or invalid input."""
        declared = self.spec.inputs
        if declared and (unknown := [name for name in params if name not in declared]):
            raise ValueError(
                f"Workflow '{self.name}' has no input '{unknown[0]}'. Inputs: {', '.join(declared)}"
            )
        filled = dict(params)
        for name, input in declared.items():
            if name not in filled:
                if input.required:
                    raise ValueError(f"Workflow '{self.name}' needs the input '{name}' ({input.type})")
                filled[name] = input.default
            elif not is_of_type(filled[name], input.type):
                raise ValueError(f"Input '{name}' must be {with_article(input.type)}, got {filled[name]!r}")
            elif input.choices is not None and filled[name] not in input.choices:
                raise ValueError(f"Input '{name}' must be one of {input.choices}, got {filled[name]!r}")
        return filled

    def check_names(self, known: Callable[[], KnownNames]) -> None:
        """Raise InvalidDefinition for unknown names; a check that succeeded once is not repeated."""
        if not self._are_names_checked and self.document is not None:
            names, spec_nodes = known(), list(walk_spec(self.spec.body))
            errors = [
                *find_forbidden_calls(self.name, spec_nodes, names),
                *find_unknown_names(self.spec, spec_nodes, names),
                *find_unsupported_settings(self.spec, spec_nodes, names),
            ]
            errors += find_wrong_call_inputs(spec_nodes, names)
            located = [self.document.problem(loc, message, fix) for loc, message, fix in errors]
            raise_on_errors(
                list(dict.fromkeys(located))
            )  # every prompt reports the same unknown default provider
            self._are_names_checked = True

    def check_shared_folders(self, known: Callable[[], KnownNames]) -> None:
        """Raise InvalidDefinition for parallel agents that would edit the same files unawares."""
        if not self._are_folders_checked and self.document is not None:
            shared = find_shared_folders(self.spec, list(walk_spec(self.spec.body)), known())
            raise_on_errors([self.document.problem(*problem) for problem in shared])
            self._are_folders_checked = True

    async def _execute_body(self, context: WorkflowContext) -> Any:
        assert self.session is not None
        run = context._run
        run_variables = RunVariables(
            context.run_id,
            self.name,
            getattr(run, "label", None) or "",
            getattr(run, "branch", None) or "main",
            self.spec.folder,
            bool(run is not None and run.about.get("branch")),
        )
        scope = Scope(
            context.input,
            context.params,
            run_variables,
            self.spec.context,
            provider=self.spec.provider,
            model=self.spec.model,
            hyphens=self._hyphens,
        )
        root = self.builder_class(scope, self.session).step(self.spec.body, is_run=True)
        call = NodeCall("", root, self.name, context.input, context=context.execution)
        result = await join_detached_prompts(scope, run_inline(call))
        return result_value(result, context.run_id)


def input_schema(declared: models.InputSpec) -> dict[str, Any]:
    """Return the JSON Schema of a declared input."""
    parts = {
        "type": declared.type if declared.type != "any" else None,
        "description": declared.description or None,
        "default": declared.default,
        "enum": declared.choices,
    }
    return {name: part for name, part in parts.items() if part is not None}


def raise_on_errors(problems: list[Problem]) -> None:
    """Raise InvalidDefinition if a problem prevents the workflow from starting."""
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise InvalidDefinition(errors)
