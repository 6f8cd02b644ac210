"""Expectations: checks that the engine runs before a step counts as done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from nerve.core.json_schema import find_validation_error, parse_json_answer
from nerve.core.nodes.base import Node
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.safe_path import resolve_inside
from nerve.spec import models
from nerve.spec.inline_nodes import InlineNode, PreparedCall, sibling_path
from nerve.spec.scope import ScopeView
from nerve.spec.template_values import is_condition_true, render_command, render_text

SCHEMA_MISMATCH_MESSAGE = "The answer does not match its schema"
MAX_SCHEMA_FILE_BYTES = 10_000_000
"""The largest file that is checked against a schema."""


class WithExpectations(InlineNode):
    """A node followed by its checks; a retry repeats both."""

    def __init__(
        self,
        name: str,
        prepared: PreparedCall,
        checks: Iterable[models.ExpectSpec],
        view: ScopeView,
        schema: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.schema = schema
        """The schema of the output, which may be JSON text."""
        self.prepared, self.checks, self.view = prepared, list(checks), view
        self.path = ""
        self.attempts = self.check_count = 0

    async def execute(self, context: ExecutionContext) -> Result:
        self.attempts += 1
        self.path = self.path or context.path or context.next_path(self.id or "step")
        path = self.path if self.attempts == 1 else sibling_path(self.path, "again", self.attempts)
        result = await self.prepared.execute(context, path)
        if result.success and self.schema is not None:
            result = parse_output_for_schema(self.schema, result)
            if problem := find_validation_error(result.output, self.schema):
                message = (
                    await self._call(
                        context, ExpectationFailure("expect"), f"{SCHEMA_MISMATCH_MESSAGE}: {problem}"
                    )
                ).error
                return Result.failed(message, "SchemaMismatch", result.output, result.attributes)
        for check in self.checks:
            if not result.success:
                break
            if failure := await self._check_failure(context, check, result):
                return Result.failed(failure, "NotAsExpected", result.output, result.attributes)
        about_files = [check for check in self.checks if check.file is not None or check.command is not None]
        if context.workspace is not None and result.success and about_files:
            context.workspace.evidence.note_checks(partial(self._repeat, context, about_files, result))
        return result

    async def _repeat(
        self, context: ExecutionContext, checks: list[models.ExpectSpec], result: Result
    ) -> str:
        """Repeat checks of files and commands; return why one failed, or an empty text."""
        for check in checks:
            if failure := await self._check_failure(context, check, result):
                return failure
        return ""

    async def _check_failure(
        self, context: ExecutionContext, check: models.ExpectSpec, result: Result
    ) -> str:
        """Return why a check failed; empty if it passed."""
        view = self.view.with_values(output=result.output)
        if check.file is not None:
            file_input: Any = render_text(check.file, view)
            if check.schema is not None:
                file_input = {"file": file_input, "schema": check.schema}
            return (await self._call(context, FileCheck("expect"), file_input)).error
        if check.command is not None:
            command, values = render_command(check.command, view)
            command_result = await self._call(context, BashNode("expect", None, command, env=values))
            return (
                ""
                if command_result.success
                else f"Expected `{check.command}` to succeed: {command_result.error}"
            )
        problem = unmet_reason(check, result.output, view)
        return (await self._call(context, ExpectationFailure("expect"), problem)).error if problem else ""

    async def _call(self, context: ExecutionContext, node: Node, input: Any = None) -> Result:
        self.check_count += 1
        return await context.call(node, input, path=sibling_path(self.path, "expect", self.check_count))


def parse_output_for_schema(schema: dict[str, Any], result: Result) -> Result:
    """Parse the output as JSON if the text itself does not match the schema."""
    output = result.output
    if not isinstance(output, str) or not find_validation_error(output, schema):
        return result
    answer, problem = parse_json_answer(output)
    return result if problem else Result.ok(answer, result.attributes).with_reported_failure()


def unmet_reason(check: models.ExpectSpec, output: Any, view: ScopeView) -> str:
    """Return why an output does not meet a check; empty if it does."""
    if check.condition is not None:
        return (
            "" if is_condition_true(check.condition, view) else f"Expected {check.condition}, but it is false"
        )
    problem = find_validation_error(output, check.schema or {})
    return problem and f"The output does not match its schema: {problem}"


class ExpectationFailure(Node):
    """Fail with the reason as its input; a step of its own, so that a retry sees which check failed."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.failed(str(context.input), "NotAsExpected")


class FileCheck(Node):
    """Check that a file exists and is not empty; with a schema, that it contains matching JSON."""

    async def execute(self, context: ExecutionContext) -> Result:
        request: Any = context.input
        file, schema = (request["file"], request["schema"]) if isinstance(request, dict) else (request, None)
        try:
            size, problem = await asyncio.to_thread(check_file, project_directory(context), file, schema)
        except ValueError as error:
            return Result.failed(f"Expected file {file}: {error}", "NotAsExpected")
        if problem:
            return Result.failed(f"Expected file {file}, but it {problem}", "NotAsExpected")
        return Result.ok(size)


def project_directory(context: ExecutionContext) -> Path:
    return context.resolve_directory("") or Path()


def check_file(project: Path, file: str, schema: dict[str, Any] | None) -> tuple[int, str]:
    """Return the size of a project file and its problem; ValueError for a path outside the project."""
    try:
        path = resolve_inside(project, file)
        size = path.stat().st_size if path.is_file() else None
    except OSError:
        size = None
    if not size or schema is None:
        return size or 0, "" if size else "is empty" if size == 0 else "does not exist"
    with path.open("rb") as opened:
        text = opened.read(MAX_SCHEMA_FILE_BYTES + 1)
    if len(text) > MAX_SCHEMA_FILE_BYTES:
        return size, f"is larger than {MAX_SCHEMA_FILE_BYTES:,} bytes, the limit for a schema check"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return size, "is not valid JSON"
    problem = find_validation_error(value, schema)
    return size, problem and f"does not match its schema: {problem}"
