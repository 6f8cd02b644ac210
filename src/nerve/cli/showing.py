"""`nerve show`: a workflow as a tree, as a diagram, or as data."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from nerve.cli.completion import WorkflowName
from nerve.cli.defined import document_of
from nerve.cli.flags import Flag
from nerve.cli.project import Project
from nerve.cli.usage import UsageError
from nerve.commander.core.harmless import harmless, in_json
from nerve.spec.check import Checked
from nerve.spec.check import check as check_document
from nerve.spec.models import WorkflowSpec
from nerve.spec.outline import Item, mermaid, outline
from nerve.spec.source import Unreadable
from nerve.spec.validate import hash_of, plain_form


def show(
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
        A workflow file, or the name of a workflow of the project.
    tree
        As a tree; this is what is shown without an option.
    mermaid
        As a Mermaid flowchart.
    json
        As one JSON object: its tree, and the spec it is read into.
    quiet
        Do not say what is wrong with it.
    """
    if tree + mermaid + json > 1:
        raise UsageError("use one of --tree, --mermaid and --json.")
    checked = opened(target)
    spec = checked.spec
    assert spec is not None
    if json:
        print(in_json(told(checked, spec)))
    elif mermaid:
        print(harmless(drawn(spec)), end="")
    else:
        print("\n".join(map(harmless, lines(outline(spec, words_of(checked))))))
    for problem in () if quiet else checked.errors:
        print(harmless(str(problem)), file=sys.stderr)
    return 0


def opened(given: str) -> Checked:
    """A workflow whose shape is right; Unreadable says what is wrong otherwise."""
    checked = check_document(document_of(Project(), given))
    if checked.spec is None:
        raise Unreadable(checked.errors)
    return checked


def words_of(checked: Checked) -> dict[str, str]:
    """What a file of steps calls the kinds of its steps."""
    return {"call": "agent", "gate": "approval"} if checked.document.states == "step" else {}


def drawn(spec: WorkflowSpec) -> str:
    return mermaid(spec)


def told(checked: Checked, spec: WorkflowSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "file": checked.document.file,
        "notation": checked.document.notation,
        "hash": hash_of(spec),
        "tree": outline(spec, words_of(checked)).to_dict(),
        "spec": plain_form(spec),
    }


def lines(item: Item, guide: str = "", branch: str = "") -> Iterator[str]:
    """The tree, one line an item."""
    kind = f"  {item.kind}" if item.kind != "workflow" else ""
    detail = " ".join(item.detail.split())
    yield f"{branch}{item.name}{kind}" + (f"  {detail}" if detail else "")
    for part in item.parts:
        last = part is item.parts[-1]
        inner = guide + ("   " if last else "│  ")
        yield from lines(part, inner, guide + ("└─ " if last else "├─ "))
