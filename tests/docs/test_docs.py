"""All pages: every block runs, and every command, path, link and name exists."""

import os
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from docs.pages import FENCE, PAGES, ROOT, Block, blocks, page, section
from nerve.core.workflow import WorkflowEventType

FILE_SUFFIXES = {"db", "js", "providers", "token"}
"""What follows a dot in `nerve.db`, `nerve.js`, the entry point group and the subprotocol."""


@pytest.mark.requirement("S0-68")
@pytest.mark.requirement("S1-26")
@pytest.mark.parametrize("block", blocks(), ids=str)
def test_a_python_block_prints_the_documented_output(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = block.run(monkeypatch)
    if block.output is not None:
        assert printed == block.output


def test_a_python_block_does_not_change_the_environment_of_other_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = dict(os.environ)
    block = Block("page.md", 1, 'import os\nos.environ["OTEL_TRACES_EXPORTER"] = "console"', None)
    block.run(monkeypatch)
    assert dict(os.environ) == before


@pytest.mark.requirement("S1-26")
def test_the_page_for_python_scripts_shows_every_pattern_before_and_after() -> None:
    text = page("docs/coming-from/python.md")
    for pattern, node in [
        ("while", "WhileNode"),
        ("for", "LoopNode"),
        ("if", "BranchNode"),
        ("match", "SwitchNode"),
        ("input", "GateNode"),
        ("gather", "MapNode"),
    ]:
        before, after = section(text, pattern).split("\nAfter:\n")
        assert "```python" in before
        assert f"{node}(" in after


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_named_exists(path: Path) -> None:
    from nerve.cli.parser import app

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = code_of(path.read_text(encoding="utf-8"))
    assert set(re.findall(r"\bmake ([a-z-]+)\b(?! sure)", code)) <= targets
    assert set(re.findall(r"\bnerve ([a-z]+)\b", code)) <= set(app)


def code_of(text: str) -> str:
    """Return the text in backticks and in fences that are not Python."""
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    fences = [fence[2] for fence in FENCE.finditer(text) if fence[1] in ("", "sh")]
    shown = [line for fence in FENCE.finditer(text) if fence[1] == "console" for line in fence[2].split("\n")]
    typed = [line for line in shown if line.startswith("$ ")]
    named = [*spans, *fences, *typed]
    return "\n".join(span for span in named if not span.startswith(("from ", "import ")))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_has_a_target(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", FENCE.sub("", path.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/internals/architecture.md"])
def test_every_named_file_of_the_project_exists(name: str) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", FENCE.sub("", page(name)))
    folders = [ROOT, ROOT / "src", ROOT / "src/nerve", ROOT / "docs"]
    made = ("steps/draft.md", ".venv/bin")
    missing = [file for file in named if not any((folder / file).exists() for folder in folders)]
    assert [file for file in missing if file not in made] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    found = {ROOT / "README.md"}
    while True:
        linked = {
            (path.parent / target.partition("#")[0]).resolve()
            for path in found
            for target in re.findall(r"\]\(([^)#]+\.md[^)]*)\)", path.read_text(encoding="utf-8"))
        }
        if linked <= found:
            break
        found |= linked
    assert set(PAGES) <= found


def test_every_event_is_in_the_table_of_events() -> None:
    table = set(re.findall(r"`([a-z_]+)`", page("docs/reference/events.md")))
    assert {event.value for event in WorkflowEventType} <= table


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_python_name_on_a_page_exists(path: Path) -> None:
    if path.name in ("decisions.md", "upstream.md"):  # they list names that do not exist
        return
    text = path.read_text(encoding="utf-8")
    for name in set(re.findall(r"`(nerve(?:\.[A-Za-z_]\w*)+)\b(?!\.\w)", text)):
        if name.split(".")[1] not in FILE_SUFFIXES:
            resolve_name(name)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_installs_nerve_from_a_package_index(path: Path) -> None:
    installed = re.findall(r"(?:pip|tool) install ([^\n`#]+)", path.read_text(encoding="utf-8"))
    assert [name for name in installed if not name.strip("' ").startswith((".", "dist/"))] == []
