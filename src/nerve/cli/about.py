"""`nerve schema` and `nerve version`: what there is, for programs."""

from __future__ import annotations

import json as json_text
import platform
import sys
from typing import Annotated

from cyclopts import Parameter

from nerve import __version__
from nerve.cli.common import Flag
from nerve.cli.exits import COMPLETED
from nerve.cli.usage import UsageError


def version(*, json: Flag = False, quiet: Flag = False) -> int:
    """Print the version.

    Parameters
    ----------
    json
        As one JSON object, with that of Python.
    quiet
        Changes nothing: there is nothing else to be said.
    """
    told = {"nerve": __version__, "python": platform.python_version(), "platform": sys.platform}
    print(json_text.dumps(told) if json else __version__)
    return COMPLETED


def schema(
    name: Annotated[
        str, Parameter(name="NAME", help="workflow, steps, prompts, openapi, or an operation of the api.")
    ] = "workflow",
    /,
    *,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Print a JSON Schema: of workflow, steps or prompts, of the api (OpenAPI), or of one of its operations.

    NAME is workflow, steps, prompts, openapi, or the name of an operation, such as start.

    Parameters
    ----------
    json
        In one line; it is JSON in any case.
    quiet
        Changes nothing: there is nothing else to be said.
    """
    from nerve.api import OPERATIONS
    from nerve.spec import schema as schemas

    made = {
        "workflow": schemas.workflow_schema,
        "steps": schemas.steps_schema,
        "prompts": schemas.prompts_schema,
        "openapi": openapi,
    }
    if name in made:
        told = made[name]()
    elif (operation := OPERATIONS.get(name)) is not None:
        told = {"asks": operation.asks.model_json_schema(), "tells": operation.tells.model_json_schema()}
    else:
        raise UsageError(f"there is no schema '{name}'. There are: {', '.join([*made, *OPERATIONS])}.")
    print(json_text.dumps(told, ensure_ascii=False, indent=None if json else 2))
    return COMPLETED


def openapi() -> dict[str, object]:
    from nerve.server.openapi import document

    return document()
