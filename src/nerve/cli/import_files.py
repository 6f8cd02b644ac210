"""`nerve import`: bring the files of Archon or Claude Code into the project, with a report."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from nerve.cli.convert import load_file_spec, render_notation
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, FAILED
from nerve.cli.parameters import Flag, Parameter
from nerve.cli.tool_files import ToolFile, find_tool_files
from nerve.core.notation_table import NotationName
from nerve.core.slugs import slugify
from nerve.lazy_dataclass import dataclass
from nerve.notations import get_notation, open_document
from nerve.notations.yaml_prompts.command_files import apply_front_matter
from nerve.project.agent_files import read_agent_file
from nerve.project.discovery import PromptFile, explain_open_error
from nerve.project.safe_files import FileRefused, open_file_inside, read_file_inside
from nerve.spec.checker import check_document
from nerve.spec.validation import plain_form
from nerve.text.source import InvalidDefinition, LocatedMap, Position, Problem, sort_problems
from nerve.ui.formatting import count_noun
from nerve.ui.sanitize import dump_safe_json, sanitize_text

MAX_BYTES = 1024 * 1024
NOTHING_FOUND = (
    "{} has no files of Archon or Claude Code. "
    "Name a project with .archon or .claude, one of these folders, or a file in it."
)
STATUSES = ("imported", "unchanged", "in place", "exists", "refused", "not read")


def import_command(
    source: Annotated[Path, Parameter(name="SOURCE", help="A project, a folder or a file.")] = Path(),
    /,
    *,
    to: NotationName | None = None,
    dry_run: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Bring files of Archon or Claude Code into this project, and report what they mean here.

    Existing files are not changed, and nothing is executed. The exit code is 1 if a file was refused, or if
    another file is in its place.

    Parameters
    ----------
    to
        Convert the workflows to this notation, in .nerve/workflows, with their commands. Default: copy them.
    dry_run
        Write nothing, only report.
    json
        Print one JSON object with all files and their problems.
    quiet
        Print only files that were refused or are in the way.
    """
    if not source.exists():
        raise UsageError(f"Folder or file not found: {source}.")
    try:
        files = find_tool_files(source)
    except (OSError, FileRefused) as error:
        raise UsageError(f"Cannot read {source}: {error}.") from None
    if not files:
        raise UsageError(NOTHING_FOUND.format(source))
    with TemporaryDirectory(prefix="nerve-import-") as folder:
        importer = Importer(Path(os.path.realpath(folder)), Path(), to, dry_run)
        results = importer.import_files(files)
    if json:
        print(dump_safe_json({"dry_run": dry_run, "files": [result.to_dict() for result in results]}))
    else:
        print_report(results, dry_run, quiet)
    return FAILED if any(result.status in ("exists", "refused") for result in results) else COMPLETED


@dataclass(slots=True)
class ImportedFile:
    """A file with its problems, and whether it was written."""

    file: ToolFile
    tool: str
    """Whose form it has: a workflow in the folder of Archon can be one of Nerve."""
    target: Path
    status: str = "refused"
    problems: list[Problem] = field(default_factory=list)
    contents: dict[Path, bytes] = field(default_factory=dict)
    """What is written, by path in the project."""

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "kind": self.file.kind,
            "source": str(self.file.source),
            "target": str(self.target),
            "status": self.status,
            "problems": [problem.to_dict() for problem in self.problems],
        }


class Importer:
    """Copies files into a folder for the check first, then those without errors into the project."""

    def __init__(self, stage: Path, project: Path, to: NotationName | None, dry_run: bool) -> None:
        self.stage, self.project, self.to, self.dry_run = stage, project, to, dry_run

    def import_files(self, files: list[ToolFile]) -> list[ImportedFile]:
        results = [self.read(file) for file in files]
        for result in results:
            for path, data in result.contents.items():
                staged = self.stage / path
                staged.parent.mkdir(parents=True, exist_ok=True)
                staged.write_bytes(data)
        for result in results:
            if result.contents and not result.has_errors:
                self.check(result)
        if self.to is not None:  # a converted workflow has these in it
            results = [result for result in results if not is_part_of_workflow(result.file)]
        for result in results:
            self.settle(result)
        return results

    def read(self, file: ToolFile) -> ImportedFile:
        """Return a file with its contents, or with the problem why it cannot be read."""
        result = ImportedFile(file, file.tool, file.target)
        if file.ignored:
            message = f"Nerve does not read {file.target}"
            result.problems.append(Problem(str(file.target), Position(), message, f"{file.ignored}.", "note"))
            return result
        for source, target in ((file.source, file.target), *file.parts):
            try:
                with os.fdopen(open_file_inside(file.root, source), "rb") as stream:
                    data = stream.read(MAX_BYTES + 1)
                if len(data) > MAX_BYTES:
                    raise FileRefused(f"it has more than {MAX_BYTES // 1024} KiB")
            except (OSError, FileRefused) as error:
                result.problems.append(replace(explain_open_error(target, error), file=str(target)))
            else:
                result.contents[target] = data
        return result

    def check(self, result: ImportedFile) -> None:
        """Add the problems of a file, with its path in the project."""
        staged = self.stage / result.file.target
        try:
            found = self.find_problems(result, staged)
        except InvalidDefinition as error:
            found = error.problems
        for problem in sort_problems(found):
            if problem.severity == "note":
                continue
            file = problem.file.removeprefix(f"{self.stage}{os.sep}")
            message = problem.message.replace(f"{self.stage}{os.sep}", "")
            fix = problem.fix.replace(f"{self.stage}{os.sep}", "")
            result.problems.append(replace(problem, file=file, message=message, fix=fix))

    def find_problems(self, result: ImportedFile, staged: Path) -> list[Problem]:
        match result.file.kind:
            case "workflow":
                document, _ = open_document(staged, self.stage)
                result.tool = "Nerve" if document.dialect is None else result.tool
                problems = check_document(document).problems
                if self.to is not None and not any(problem.severity == "error" for problem in problems):
                    self.convert(result, staged)
                return problems
            case "agent":
                return list(read_agent_file(self.stage, staged).warnings)
            case "command" | "skill":
                text = read_file_inside(self.stage, staged)
                prompt = PromptFile.of(staged.stem, staged, text)
                return apply_front_matter(LocatedMap({"id": "x"}), prompt, Position())
        return []

    def convert(self, result: ImportedFile, staged: Path) -> None:
        """Replace a workflow by its conversion."""
        assert self.to is not None
        spec = load_file_spec(staged)
        text, remarks = render_notation(plain_form(spec), self.to)
        suffix = get_notation(self.to).suffixes[0]
        result.target = Path(".nerve/workflows") / f"{slugify(spec.name)}{suffix}"
        result.contents = {result.target: text.encode()}
        result.problems += [
            Problem(str(result.target), Position(), remark, "", "warning") for remark in remarks
        ]

    def settle(self, result: ImportedFile) -> None:
        """Write a file, unless it has errors, is there already, or another one is there."""
        if result.file.ignored:
            result.status = "not read"
        elif result.has_errors:
            result.status = "refused"
        elif self.is_in_place(result):
            result.status = "in place"
        else:
            found = [self.compare(path, data) for path, data in result.contents.items()]
            if "exists" in found:
                result.status = "exists"
            elif "new" in found:
                result.status = "imported"
                self.write(result)
            else:
                result.status = "unchanged"

    def is_in_place(self, result: ImportedFile) -> bool:
        """Whether a file is one of this project already."""
        own = self.project / result.target
        return result.target == result.file.target and own.exists() and own.samefile(result.file.source)

    def compare(self, path: Path, data: bytes) -> str:
        file = self.project / path
        if not (file.exists() or file.is_symlink()):
            return "new"
        try:
            return "same" if file.is_file() and file.read_bytes() == data else "exists"
        except OSError:
            return "exists"

    def write(self, result: ImportedFile) -> None:
        if self.dry_run:
            return
        for path, data in result.contents.items():
            file = self.project / path
            if file.exists():
                continue
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("xb") as stream:
                    stream.write(data)
            except OSError as error:
                result.status = "refused"
                result.problems.append(explain_open_error(path, error))
                return


def is_part_of_workflow(file: ToolFile) -> bool:
    return file.tool == "Archon" and file.kind in ("command", "MCP servers", "configuration")


def print_report(results: list[ImportedFile], dry_run: bool, quiet: bool) -> None:
    """Print a line for each file with its problems below it, and how many there are of each status."""
    for result in results:
        if quiet and result.status not in ("exists", "refused"):
            continue
        what = f"{result.tool} {result.file.kind}"
        print(sanitize_text(f"{result.status:9}  {what:20}  {result.target}"))
        if result.status == "exists":
            there = os.path.relpath(result.file.source)
            print(f"{'':11}A different file is there. Compare them: diff {result.target} {there}")
        for problem in result.problems:
            place = problem.file if problem.file != str(result.target) else ""
            told = str(replace(problem, file=place)).lstrip(":").removeprefix("1:1: ")
            print(sanitize_text(f"{'':11}{told}"))
    if quiet:
        return
    counts = Counter(result.status for result in results)
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    prefix = "Dry run, nothing was written. " if dry_run else ""
    print(f"{prefix}{count_noun(len(results), 'file')}: {', '.join(parts)}")
