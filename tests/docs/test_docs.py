"""Documentation that can fail: every block runs, every command and every link exists."""

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from nerve.core.workflow import WorkflowEventType

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs/guide.md", ROOT / "docs/migration.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced Python block, and the text block right behind it if there is one."""

    page: str
    line: int
    code: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text()
        fences = list(FENCE.finditer(text))
        for fence, following in pairwise([*fences, None]):
            if fence[1] != "python":
                continue
            told = following is not None and following[1] == "text"
            told = told and not text[fence.end() : following.start()].strip()
            line = text.count("\n", 0, fence.start()) + 1
            found.append(Block(page.name, line, fence[2], following[2] if told else None))
    return found


@pytest.mark.requirement("S0-68")
@pytest.mark.requirement("S1-26")
@pytest.mark.parametrize("block", blocks(), ids=str)
def test_a_python_block_runs_and_prints_what_the_page_says(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = run(block, monkeypatch)
    if block.output is not None:
        assert printed == block.output


def run(block: Block, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["page.py", *arguments])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.code, str(block), "exec"), {"__name__": "__main__"})  # noqa: S102
    return printed.getvalue()


def test_the_durable_function_of_the_readme_goes_on_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    block = next(block for block in blocks() if "publish.db" in block.code)
    told = re.search(r"\$ python publish.py yes\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert told is not None
    run(block, monkeypatch)
    assert run(block, monkeypatch, "yes") == told[1]


@pytest.mark.requirement("S1-26")
def test_the_migration_guide_has_every_row_before_and_after() -> None:
    text = (ROOT / "docs/migration.md").read_text()
    for pattern, node in [
        ("while", "WhileNode"),
        ("for", "LoopNode"),
        ("if", "BranchNode"),
        ("match", "SwitchNode"),
        ("input", "GateNode"),
        ("gather", "MapNode"),
    ]:
        section = text.split(f"\n## {pattern}\n")[1].split("\n## ")[0]
        before, after = section.split("\nAfter:\n")
        assert "```python" in before
        assert f"{node}(" in after


def test_every_command_named_exists() -> None:
    from nerve.cli import app

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        assert set(re.findall(r"\bmake ([a-z-]+)\b(?! sure)", code_of(text))) <= targets
        assert set(re.findall(r"\bnerve ([a-z]+)\b", code_of(text))) <= set(app)


def code_of(text: str) -> str:
    """What stands in backticks and in fences that are not Python."""
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    fences = [fence[2] for fence in FENCE.finditer(text) if fence[1] in ("", "sh")]
    return "\n".join(span for span in [*spans, *fences] if not span.startswith(("from ", "import ")))


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), f"{page.name} links to {target}"
            if anchor:
                assert anchor in anchors(linked), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_event_is_in_the_table_of_the_guide() -> None:
    text = (ROOT / "docs/guide.md").read_text()
    table = set(re.findall(r"`([a-z_]+)`", text.split("\n## Events\n")[1]))
    assert {event.value for event in WorkflowEventType} <= table
