"""`nerve artifacts`: list the files that the steps of a run have made, print or save one of them."""

from __future__ import annotations

import codecs
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nerve.cli.completion import RunArgument
from nerve.cli.context import CliContext, run_with_api
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions, Parameter, format_command
from nerve.ui.formatting import format_file_size, format_table
from nerve.ui.sanitize import sanitize_text

if TYPE_CHECKING:
    from nerve.api.models import ArtifactResponse

HEADINGS = ("name", "size", "type", "modified")
ArtifactName = Annotated[str | None, Parameter(name="NAME", help="The file to print, as it is listed.")]
OutputOption = Annotated[
    Path | None, Parameter(name=["--output", "-o"], help="Save the artifact to this file.")
]


def artifacts_command(
    run: RunArgument,
    name: ArtifactName = None,
    /,
    *,
    output: OutputOption = None,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """List the files that the steps of a run have made, or print one of them.

    They are in the artifacts folder of the run. On a terminal, control characters of a text are escaped, and
    other types are not printed.
    """
    if name is None and output is not None:
        raise UsageError("-o needs the NAME of an artifact: nerve artifacts RUN NAME -o FILE.")
    if name is not None and output is None and common.json:
        raise UsageError("--json prints no artifact. Save it: -o FILE.")
    if output is not None and output.is_dir():
        raise UsageError(f"{output} is a folder. Name a file: -o {output / 'FILE'}.")

    async def do(context: CliContext) -> int:
        if name is None:
            found = await list_all_artifacts(context, run)
            rows = format_table([HEADINGS, *map(format_artifact, found)]) if found else "No artifacts."
            context.print_result(found, rows)
        elif output is not None:
            await save_artifact(context, run, name, output)
            size = output.stat().st_size
            saved = f"Saved {output} ({format_file_size(size)})."
            context.print_result({"name": name, "file": str(output), "size": size}, saved)
        else:
            await print_artifact(context, run, name)
        return COMPLETED

    return run_with_api(common, do, read_only=True)


async def list_all_artifacts(context: CliContext, run: str) -> list[ArtifactResponse]:
    page = await context.client.artifacts(run=run)
    found = page.artifacts
    while page.next is not None:
        page = await context.client.artifacts(run=run, after=page.next)
        found += page.artifacts
    return found


async def save_artifact(context: CliContext, run: str, name: str, output: Path) -> None:
    async with contextlib.aclosing(context.client.read_artifact(run, name)) as chunks:
        first = await anext(chunks, b"")  # before the file is emptied: there may be no such artifact
        try:
            with output.open("wb") as file:
                file.write(first)
                async for chunk in chunks:
                    file.write(chunk)
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror}. Name another file.") from None


async def print_artifact(context: CliContext, run: str, name: str) -> None:
    """Print an artifact: its bytes, or on a terminal only text, without its control characters."""
    is_terminal, decoder = context.out.isatty(), codecs.getincrementaldecoder("utf-8")("replace")
    async with contextlib.aclosing(context.client.read_artifact(run, name)) as chunks:
        async for chunk in chunks:
            if not is_terminal:
                context.out.buffer.write(chunk)
            elif b"\0" in chunk:
                save = format_command("artifacts", run, name, "-o", "FILE")
                raise UsageError(f"Artifact '{name}' is not text. Save it: {save}")
            else:
                context.out.write(sanitize_text(decoder.decode(chunk)))


def format_artifact(artifact: ArtifactResponse) -> tuple[str, ...]:
    modified = f"{artifact.modified_at.astimezone():%Y-%m-%d %H:%M:%S}"
    return artifact.name, format_file_size(artifact.size), artifact.media_type, modified
