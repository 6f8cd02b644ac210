"""The screen in the README is the one that `nerve demo --crash` shows."""

import io
import re
from pathlib import Path

from rich.console import Console

from nerve.demo.scratch_project import ScratchProject
from nerve.demo.workflow import register_demo
from nerve.session import Session
from nerve.ui.progress_tree import ProgressTree
from nerve.ui.tree_panel import render_tree_panel

README = Path(__file__).parents[2] / "README.md"


def steady(text: str) -> list[str]:
    """Without what differs from time to time and from Python to Python."""
    text = re.sub(r"SyntaxError.*", "SyntaxError", text)
    text = re.sub(r"(?:\d+m )?\d+(?:\.\d)?s\b", "0.0s", text)
    text = re.sub(r" +\(0\.0s\)", " (0.0s)", text)  # a longer time leaves less padding
    text = re.sub(r"\([0-9a-f]{8}-[0-9a-f]{4}\)", "(00000000-0000)", text)
    return [re.sub(r"Process \d+", "Process 1", line).rstrip() for line in text.splitlines() if line]


def drawn(tree: ProgressTree) -> str:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(render_tree_panel(tree, 80))
    return console.file.getvalue()


async def test_the_readme_screen_matches_a_real_run_that_settled_every_step_once(nerve) -> None:
    output = nerve("demo", "--crash", "--yes", "--keep").stdout.splitlines()
    project = ScratchProject(Path(output[-1].removeprefix("Kept: ")))
    async with Session("demo", store=project.journal_file) as session:
        register_demo(session, project)
        [info] = session.list_workflow_runs()
        events = session.get_workflow_run(info.run_id).events
    settled = [event.path for event in events if event.event_type == "node_completed"]
    assert len(settled) == len(set(settled)) == 9
    assert len(project.read_effect_keys()) == 10
    cut = next(index for index, event in enumerate(events) if event.event_type == "node_retrying")
    tree = ProgressTree()
    for event in events[:cut]:
        tree.apply_event("", event)
    before = drawn(tree)
    tree.reused_before = events[cut].timestamp
    for event in events[cut:]:
        tree.apply_event("", event)
    killed = next(index for index, line in enumerate(output) if "SIGKILL" in line)
    screen = [before, *output[killed : killed + 2], drawn(tree), *output[-5:-1]]
    told = re.search(r"```text\n(╭.*?)```", README.read_text(), re.DOTALL)
    assert steady(told[1]) == steady("\n".join(screen))
