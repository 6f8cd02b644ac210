"""Specs for tests: read from plain data, checked, and run."""

import json
from typing import Any

from nerve import Session
from nerve.notations import read_source
from nerve.spec.checker import CheckedDocument, check_document
from nerve.spec.defined_workflow import DefinedWorkflow


def checked(data: dict[str, Any]) -> CheckedDocument:
    return check_document(read_source(json.dumps(data, indent=2), "flow.json"))


def problems(body: dict[str, Any], **fields: Any) -> list[str]:
    """The messages about a workflow with this body, without positions."""
    found = checked({"name": "flow", "body": body, **fields})
    return [f"{problem.message} {problem.fix}".strip() for problem in found.errors]


def loaded(session: Session, body: dict[str, Any], **fields: Any) -> DefinedWorkflow:
    return session.load(json.dumps({"name": "flow", "body": body} | fields), "json")


async def outcome(session: Session, body: dict[str, Any], input: Any = None, **fields: Any) -> Any:
    """The outcome of a run of a workflow with this body."""
    params = fields.pop("params", None)
    run = await session.start(loaded(session, body, **fields).name, input, params)
    return await run.wait()
