"""Evidence: what the engine checks itself before it believes that a step is done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nerve.core.nodes.base import Node
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.paths import inside
from nerve.core.result import Result
from nerve.core.schemas import problem_of, read_answer
from nerve.spec import models
from nerve.spec.nodes import Entry, Inline, beside
from nerve.spec.scope import Sight
from nerve.spec.values import command_of, holds, text

NO_FIT = "the answer does not fit its schema"
LARGEST = 10_000_000
"""Bytes of a file that is held to a schema."""


class Expected(Inline):
    """A node, and then the checks of what it should have done; a retry makes both again."""

    def __init__(
        self,
        name: str,
        made: Entry,
        checks: Iterable[models.Expect],
        sight: Sight,
        schema: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.schema = schema
        """What the output must fit, which may be JSON text."""
        self.made, self.checks, self.sight = made, list(checks), sight
        self.path = ""
        self.attempts = self.made_checks = 0

    async def execute(self, context: ExecutionContext) -> Result:
        self.attempts += 1
        self.path = self.path or context.path or context.take(self.id or "step")
        path = self.path if self.attempts == 1 else beside(self.path, "again", self.attempts)
        result = await self.made.entered(context, path)
        if result.success and self.schema is not None:
            result = read_as(self.schema, result)
            if problem := problem_of(result.output, self.schema):
                said = (await self._call(context, Unmet("expect"), f"{NO_FIT}: {problem}")).error
                return Result.failed(said, "SchemaMismatch", result.output, result.attributes)
        for check in self.checks:
            if not result.success:
                break
            if failure := await self._failure(context, check, result):
                return Result.failed(failure, "NotAsExpected", result.output, result.attributes)
        return result

    async def _failure(self, context: ExecutionContext, check: models.Expect, result: Result) -> str:
        """Why a check did not hold, or nothing."""
        sight = self.sight.also(output=result.output)
        if check.file is not None:
            asked: Any = text(check.file, sight)
            if check.schema is not None:
                asked = {"file": asked, "schema": check.schema}
            return (await self._call(context, FileCheck("expect"), asked)).error
        if check.command is not None:
            command, values = command_of(check.command, sight)
            told = await self._call(context, BashNode("expect", None, command, project_of(context), values))
            return "" if told.success else f"expected `{check.command}` to succeed: {told.error}"
        problem = unlike(check, result.output, sight)
        return (await self._call(context, Unmet("expect"), problem)).error if problem else ""

    async def _call(self, context: ExecutionContext, node: Node, input: Any = None) -> Result:
        self.made_checks += 1
        return await context.call(node, input, path=beside(self.path, "expect", self.made_checks))


def read_as(schema: dict[str, Any], result: Result) -> Result:
    """The result with the JSON that its text is, where the text itself does not fit the schema."""
    output = result.output
    if not isinstance(output, str) or not problem_of(output, schema):
        return result
    answer, problem = read_answer(output)
    return result if problem else Result.ok(answer, result.attributes).as_reported()


def unlike(check: models.Expect, output: Any, sight: Sight) -> str:
    """Why an output is not as expected, or nothing."""
    if check.condition is not None:
        return "" if holds(check.condition, sight) else f"expected {check.condition}, which does not hold"
    problem = problem_of(output, check.schema or {})
    return problem and f"expected an output that fits its schema: {problem}"


class Unmet(Node):
    """Says what was not as expected; it is a step, so that whoever tries again knows what has failed."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.failed(str(context.input), "NotAsExpected")


class FileCheck(Node):
    """Whether a file is there and has something in it; with a schema, whether that is JSON that fits."""

    async def execute(self, context: ExecutionContext) -> Result:
        given: Any = context.input
        file, schema = (given["file"], given["schema"]) if isinstance(given, dict) else (given, None)
        try:
            size = await asyncio.to_thread(size_of, project_of(context), file)
            problem = what_is_wrong(size)
            if not problem and schema is not None:
                problem = await asyncio.to_thread(misfit, project_of(context), file, schema)
        except ValueError as error:
            return Result.failed(f"expected file {file}, but {error}", "NotAsExpected")
        if problem:
            return Result.failed(f"expected file {file}, which {problem}", "NotAsExpected")
        return Result.ok(size)


def project_of(context: ExecutionContext) -> Path:
    return context.session.project if context.session is not None else Path()


def size_of(project: Path, file: str) -> int | None:
    """The size of a file of the project; ValueError for one outside of it."""
    try:
        path = inside(project, file)
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def what_is_wrong(size: int | None) -> str:
    return "" if size else "is empty" if size == 0 else "is not there"


def misfit(project: Path, file: str, schema: dict[str, Any]) -> str:
    """Why the JSON in a file does not fit a schema, or nothing."""
    with inside(project, file).open("rb") as opened:
        text = opened.read(LARGEST + 1)
    if len(text) > LARGEST:
        return f"is larger than {LARGEST:,} bytes, and is to fit a schema"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "is not JSON"
    problem = problem_of(value, schema)
    return problem and f"does not fit its schema: {problem}"
