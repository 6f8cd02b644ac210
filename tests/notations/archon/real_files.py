# ruff: noqa: T201, ASYNC240
"""Run the workflows of a clone of Archon with scripted agents, and compare each run with Archon's rules.

Usage: PYTHONPATH=tests python tests/notations/archon/real_files.py CLONE [--versions] [--check]

It reads the workflows of the newest commit and those that were deleted before, each in the project of its
commit; with --versions, every other version of the history, too; with --check, it runs none. Scripts that use
other programs are not executed: they print the fields that the workflow reads.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from nerve import Session
from nerve.core.nodes import MockNode
from nerve.core.result import was_skipped
from nerve.notations import open_document
from nerve.notations.workflow_files import discover
from nerve.spec.builder import NodeBuilder
from nerve.spec.checker import check_document
from nerve.spec.prompt_variables import prompt_value_text
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition
from notations.archon.reference import REFERENCE, Ended, Reference, UnusableError

SAFE_SCRIPT = re.compile(
    r"^(?!.*\b(?:git|gh|kill|pkill|rm|docker|curl|wget|npm|npx|bun|uv|node|python3?|claude|codex|xargs|mv|sudo|sleep)\b)",
    re.DOTALL,
)
MAX_RUN_SECONDS = 300
PROVIDERS = ("claude", "codex", "pi", "copilot", "opencode")
MESSAGE = "issue 12"
ARGUMENTS = re.compile(r"\$(?:ARGUMENTS|USER_MESSAGE)\b")
VARIABLE = re.compile(
    r"\$(?:LOOP_PREV\.[\w.-]+|INPUTS\.\w+|(?:ARTIFACTS|STATE|DOCS)_DIR\b|WORKFLOW_ID\b|BASE_BRANCH\b|"
    r"LOOP_\w+|REJECTION_REASON\b|(?:EXTERNAL_|ISSUE_)?CONTEXT\b)"
)
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def git(clone: str, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *arguments], capture_output=True, check=True).stdout


def extract_workflows(clone: str, folder: Path, all_versions: bool) -> Iterator[tuple[str, Path]]:
    """Yield whether a workflow is of the newest commit, and its path in a project of its commit."""

    def is_workflow(path: str) -> bool:
        return path.endswith((".yaml", ".yml")) and ".archon/workflows/" in path

    head = git(clone, "rev-parse", "HEAD").decode().strip()
    wanted = [
        ("newest", head, path)
        for path in git(clone, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines()
        if is_workflow(path)
    ]
    seen, commit = {path for _, _, path in wanted}, ""
    log = git(
        clone, "log", "HEAD", "--diff-filter=D", "--no-renames", "--format=C %H", "--name-only"
    ).decode()
    for line in log.splitlines():
        if line.startswith("C "):
            commit = line[2:]
        elif is_workflow(line) and line not in seen:
            seen.add(line)
            wanted.append(("deleted", git(clone, "rev-parse", f"{commit}^").decode().strip(), line))
    blobs = {git(clone, "rev-parse", f"{commit}:{path}").decode().strip() for _, commit, path in wanted}
    history = ("--diff-filter=AM", "--no-renames", "--format=C %H", "--raw", "--no-abbrev")
    for line in git(clone, "log", "HEAD", *history).decode().splitlines() if all_versions else ():
        if line.startswith("C "):
            commit = line[2:]
        elif is_workflow(path := line.partition("\t")[2]) and (blob := line.split()[3]) not in blobs:
            blobs.add(blob)
            wanted.append(("earlier", commit, path))
    for kind, commit, path in wanted:
        project = folder / commit[:12]
        if not project.exists():
            project.mkdir()
            top = git(clone, "ls-tree", "--name-only", commit).decode().splitlines()
            archive = git(clone, "archive", commit, *({".archon", ".claude"} & {*top}))
            subprocess.run(["tar", "x", "-C", project], input=archive, check=True)
        yield kind, project / path


def value_of_schema(schema: Any) -> Any:
    """Return a small value that a JSON Schema accepts."""
    if not isinstance(schema, dict):
        return "text"
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: value_of_schema(part) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [value_of_schema(schema.get("items"))] * schema.get("minItems", 0)
    return {"integer": 1, "number": 1, "boolean": True, "null": None}.get(kind, "text")


async def run_workflow(path: Path, project: Path) -> tuple[str, dict[str, Any], list[str]]:
    """Run a workflow with scripted agents; return how it ended, its results and its prompts."""
    scopes: list[Any] = []
    fields: dict[str, set[str]] = {}
    text = path.read_text()
    for id, name in re.findall(r"\$([a-zA-Z_][\w-]*)\.(?:output\.)?([a-zA-Z_]\w*)", text):
        if name != "output":
            fields.setdefault(id, set()).add(name)
    words = re.findall(r"until: *['\"]?([A-Z][\w-]+)", text)

    class ScriptedBuilder(NodeBuilder):
        def __init__(self, scope: Any, names: Any) -> None:
            super().__init__(scope, names)
            scopes.append(scope)

        def bash(self, spec: Any, name: str) -> Any:
            make = super().bash(spec, name)

            def prepare(view: Any) -> Any:
                prepared = make(view)
                if not SAFE_SCRIPT.match(spec.command) or "NERVE_SCRIPT" in spec.env:
                    value = dict.fromkeys(fields.get(name, ()), "true")
                    prepared.node = MockNode(name, None, [json.dumps(value) if value else "[]"] * 99)
                return prepared

            return prepare

    def answer(call: Any) -> Any:
        schema = call.options.get("schema") if isinstance(call.options, dict) else None
        if schema:
            return json.dumps(value_of_schema(schema))
        return "fine " + " ".join(f"<promise>{word}</promise>" for word in words)

    providers = {name: ScriptedProvider(answer, name) for name in PROVIDERS}
    session = Session(project=project, providers=providers)
    for found in discover(project).workflows:
        if found.path != path:
            try:
                session.load(found.path).builder_class = ScriptedBuilder
            except (InvalidDefinition, ValueError):
                continue
    workflow = session.load(path)
    workflow.builder_class = ScriptedBuilder
    run = await session.start(workflow.name, MESSAGE)

    async def answer_gates() -> None:
        while await run.next_gate() is not None:
            await run.answer("approve")

    gates = asyncio.ensure_future(answer_gates())
    # The failure of a run is in its state; a run without an end is reported as such.
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(run.wait(), MAX_RUN_SECONDS)
    gates.cancel()
    [stopped] = await asyncio.gather(gates, return_exceptions=True)
    if isinstance(stopped, Exception):
        print(f"    The gates were not answered: {stopped!r}")
    state = run.state.value
    results = dict(scopes[0].results) if scopes else {}
    prompts = [call.prompt for provider in providers.values() for call in provider.calls]
    await session.close()
    return f"{state}: {run.error or ''}", results, prompts


def prompt_of(node: dict[str, Any], project: Path) -> str | None:
    """Return the text of the prompt of a node, from the workflow or from the file of a command."""
    holder = node["loop"] if isinstance(node.get("loop"), dict) else node
    if isinstance(prompt := holder.get("prompt"), str):
        return prompt
    if not isinstance(name := holder.get("command"), str) or "with" in node:
        return None
    files = sorted((project / ".archon/commands").rglob(f"{name}.md"))
    return FRONT_MATTER.sub("", files[0].read_text()) if len(files) == 1 else None


def has_in_order(text: str, pieces: list[str]) -> bool:
    """Return whether a text begins with the first of these pieces, and has the others after it in order."""
    place = 0
    for number, piece in enumerate(pieces):
        found = text.find(piece.strip(), place)
        if found < 0 or (number == 0 and text[:found].strip()):
            return False
        place = found + len(piece.strip())
    return True


def find_differences(
    source: dict[str, Any],
    project: Path,
    results: dict[str, Any],
    prompts: list[str],
    compared: Counter[str],
) -> list[str]:
    """Return where a run is not what Archon's rules say of the recorded outcomes."""
    nodes = source.get("nodes", [])
    ids = {node["id"] for node in nodes}
    reference = Reference(lambda script: (True, ""), lambda prompt: "")
    for node in nodes:
        result = results.get(node["id"])
        if "include" in node:
            inner = [each for id, each in results.items() if id.startswith(f"{node['id']}__")]
            result = next((each for each in reversed(inner) if not was_skipped(each)), None)
        if result is None or was_skipped(result):
            reference.ended[node["id"]] = Ended("skipped")
        else:
            text = prompt_value_text(result.output).removesuffix("\n") if result.success else ""
            approval = node.get("approval")
            if isinstance(approval, dict):
                text = "Approved" if approval.get("capture_response") and text == "approve" else ""
            reference.ended[node["id"]] = Ended("completed" if result.success else "failed", text)
    differences = []
    for node in nodes:
        id, state = node["id"], reference.ended[node["id"]].state
        if "include" in node:
            continue
        try:
            runs = reference.joins(node) and ("when" not in node or reference.holds(shorthand(node["when"])))
        except UnusableError:
            if state != "failed":
                differences.append(f"{id} is {state}, but reads an output that it cannot use")
            continue
        except (AssertionError, KeyError) as error:
            differences.append(f"{id}: the rules do not cover it: {error!r}")
            continue
        if runs != (state != "skipped"):
            differences.append(f"{id} is {state}, but {'runs' if runs else 'is skipped'} by the rules")
        text = prompt_of(node, project) if state == "completed" else None
        if text is not None and {match[1] for match in REFERENCE.finditer(text)} <= ids:
            try:
                pieces = [reference.replace(piece) for piece in VARIABLE.split(ARGUMENTS.sub(MESSAGE, text))]
            except UnusableError:
                differences.append(f"{id} is {state}, but its prompt reads an output that it cannot use")
                continue
            if not any(has_in_order(asked, pieces) for asked in prompts):
                differences.append(f"{id} was asked something else")
            compared["prompts compared"] += 1
        compared["nodes compared"] += 1
    return differences


def shorthand(condition: str) -> str:
    """Return a condition with `$x.field` as `$x.output.field`, and quotes around numbers."""
    condition = re.sub(r"\$([\w-]+)\.(?!output\b)(\w+)", r"$\1.output.\2", condition)
    condition = re.sub(r"(==|!=|<=|>=|<|>)\s*([\w.-]+)\s*(?=&&|\|\||$)", r"\1 '\2'", condition)
    return re.sub(r"\s*(==|!=|<=|>=|<|>)\s*", r" \1 ", condition)


async def main(clone: str, *options: str) -> None:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kind, path in extract_workflows(clone, Path(folder), "--versions" in options):
            name = "/".join(path.parts[path.parts.index("workflows") + 1 :])
            counts[f"{kind}: files"] += 1
            try:
                document, _ = open_document(path, Path())
                errors = [each for each in check_document(document).problems if each.severity == "error"]
            except InvalidDefinition as error:
                errors = error.problems
            if errors:
                counts[f"{kind}: refused by name"] += 1
                print(f"{kind} {name}: refused: {errors[0].message}")
                continue
            counts[f"{kind}: read and checked"] += 1
            if "--check" in options:
                continue
            os.chdir(folder)
            source = yaml.safe_load(path.read_text())
            project = next(parent for parent in path.parents if (parent / ".archon").is_dir())
            outcome, results, prompts = await run_workflow(path, project)
            differences = find_differences(source, project, results, prompts, counts)
            ended = outcome.split(":")[0]
            is_over = ended in ("completed", "failed", "cancelled")
            counts[f"{kind}: run to an end"] += is_over
            counts[f"{kind}: run, {ended}"] += 1
            counts[f"{kind}: misread"] += bool(differences) or not is_over
            print(f"{kind} {name}: {outcome[:200]} {'; '.join(differences)}")
    for what, count in sorted(counts.items()):
        print(f"{count:4} {what}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
