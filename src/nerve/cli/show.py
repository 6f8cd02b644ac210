"""`nerve show`: show a workflow as a tree, a diagram or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from nerve.cli.completion import WorkflowName
from nerve.cli.errors import UsageError
from nerve.cli.parameters import Flag
from nerve.cli.targets import Project, load_target, load_target_document
from nerve.cli.workflow_inputs import describe_workflow_lines
from nerve.spec.checker import CheckedDocument, check_document
from nerve.spec.models import WorkflowSpec
from nerve.spec.outline import OutlineItem, build_outline, format_mermaid
from nerve.spec.validation import plain_form, spec_hash
from nerve.text.source import Document, InvalidDefinition
from nerve.ui.sanitize import dump_safe_json, sanitize_text


def show_command(
    target: WorkflowName,
    /,
    *,
    tree: Flag = False,
    mermaid: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Show a workflow. Nothing is executed or imported.

    Parameters
    ----------
    target
        A workflow file, or a workflow name.
    tree
        Print a tree. This is the default.
    mermaid
        Print a Mermaid flowchart.
    json
        Print one JSON object with the tree and the parsed spec.
    quiet
        Do not print problems of the workflow.
    """
    if tree + mermaid + json > 1:
        raise UsageError("--tree, --mermaid and --json cannot be used together.")
    document = load_target(Project(), target)
    if not isinstance(document, Document):
        lines = [document.id, *describe_workflow_lines(document)]
        print(dump_safe_json(document.model_dump(mode="json")) if json else sanitize_text("\n".join(lines)))
        return 0
    checked = require_spec(check_document(document))
    spec = checked.spec
    assert spec is not None
    if json:
        print(dump_safe_json(describe_checked_workflow(checked, spec)))
    elif mermaid:
        print(sanitize_text(format_mermaid(spec)), end="")
    else:
        print("\n".join(map(sanitize_text, format_outline(build_outline(spec, step_kind_labels(checked))))))
    for problem in () if quiet else checked.errors:
        print(sanitize_text(str(problem)), file=sys.stderr)
    return 0


def load_checked_target(target: str) -> CheckedDocument:
    """Return a checked workflow with a valid spec, or raise InvalidDefinition."""
    return require_spec(check_document(load_target_document(Project(), target)))


def require_spec(checked: CheckedDocument) -> CheckedDocument:
    if checked.spec is None:
        raise InvalidDefinition(checked.errors)
    return checked


def step_kind_labels(checked: CheckedDocument) -> dict[str, str]:
    """Return the names that JSON step files use for step kinds."""
    return {"call": "agent", "gate": "approval"} if checked.document.state_word == "step" else {}


def describe_checked_workflow(checked: CheckedDocument, spec: WorkflowSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "file": checked.document.file,
        "notation": checked.document.notation,
        "hash": spec_hash(spec),
        "tree": build_outline(spec, step_kind_labels(checked)).to_dict(),
        "spec": plain_form(spec),
    }


def format_outline(item: OutlineItem, guide: str = "", branch: str = "") -> Iterator[str]:
    """Yield the tree as lines, one per item."""
    kind = f"  {item.kind}" if item.kind != "workflow" else ""
    detail = " ".join(item.detail.split())
    yield f"{branch}{item.name}{kind}" + (f"  {detail}" if detail else "")
    for part in item.parts:
        last = part is item.parts[-1]
        inner = guide + ("   " if last else "│  ")
        yield from format_outline(part, inner, guide + ("└─ " if last else "├─ "))
