"""The text of a target: that of a file, or what was defined for the project and has no file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nerve.cli.common import DEFAULT, Common, opened
from nerve.cli.project import Code, Project
from nerve.cli.usage import NotThere, UsageError
from nerve.client import server_of
from nerve.errors import StoreLocked
from nerve.notations import NOTATIONS, open_document, read
from nerve.notations.prompts import attach_prompts
from nerve.spec.source import Document


def document_of(project: Project, given: str, common: Common = DEFAULT) -> Document:
    """What a target says, of which nothing is executed."""
    try:
        target = project.target(given)
    except NotThere:
        if (found := asyncio.run(defined(project, given, common))) is None:
            raise
        return found
    if isinstance(target, Code):
        raise python(given)
    return open_document(target.path, project.folder)[0]


async def defined(project: Project, name: str, common: Common) -> Document | None:
    """The workflow that was defined under a name, or under the only one that begins so."""
    if not common.file.is_file() and server_of(Path()) is None:
        return None
    try:
        async with opened(common, writes=False) as door:
            known = [each.id for each in (await door.client.workflows()).workflows]
            close = [name] if name in known else [each for each in known if each.startswith(name)]
            if len(close) != 1:
                return None
            found = await door.client.workflow(workflow=close[0])
    except StoreLocked:
        return None
    if found.kind not in NOTATIONS:
        raise python(found.id)
    document = read(found.source or "", f"<{found.id}>", found.kind)
    document.notes += attach_prompts(document, project.folder, project.folder, found.prompts)
    return document


def python(given: str) -> UsageError:
    return UsageError(
        f"Workflow {given} is Python code, so there is no definition to read."
        f" Run it with the file that registers it: nerve run {given} --with FILE."
    )
