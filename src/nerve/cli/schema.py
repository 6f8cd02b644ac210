"""`nerve schema` and `nerve version`."""

from __future__ import annotations

import json as json_text
import platform
import sys
from typing import Annotated

from nerve import __version__
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag, Parameter


def version_command(*, json: Flag = False, quiet: Flag = False) -> int:
    """Print the version.

    Parameters
    ----------
    json
        Print one JSON object, which includes the Python version.
    quiet
        No effect: the command prints only its result.
    """
    versions = {"nerve": __version__, "python": platform.python_version(), "platform": sys.platform}
    print(json_text.dumps(versions) if json else __version__)
    return COMPLETED


def schema_command(
    name: Annotated[
        str,
        Parameter(name="NAME", help="workflow, steps, prompts, openapi, or an API operation."),
    ] = "workflow",
    /,
    *,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Print a JSON Schema of workflow files, of the API (OpenAPI), or of one API operation.

    NAME is workflow, steps, prompts, openapi, or the name of an operation, such as start.

    Parameters
    ----------
    json
        Print the schema on one line.
    quiet
        No effect: the command prints only its result.
    """
    from nerve.api import OPERATIONS
    from nerve.notations import json_schemas as schemas

    generators = {
        "workflow": schemas.workflow_schema,
        "steps": schemas.steps_schema,
        "prompts": schemas.prompts_schema,
        "openapi": load_openapi,
    }
    if name in generators:
        document = generators[name]()
    elif (operation := OPERATIONS.get(name)) is not None:
        document = {
            "asks": operation.request_model.model_json_schema(),
            "tells": operation.response_model.model_json_schema(),
        }
    else:
        raise UsageError(f"Unknown schema '{name}'. Available: {', '.join([*generators, *OPERATIONS])}.")
    print(json_text.dumps(document, ensure_ascii=False, indent=None if json else 2))
    return COMPLETED


def load_openapi() -> dict[str, object]:
    from nerve.server.openapi import openapi_document

    return openapi_document()
